"""Files of a bundle that are rendered from its other files, and state nothing new.

Verification renders them again and compares them byte for byte. Only the program that made the
bundle can do this, because another release may word them differently. With another release, this
check is left undecided.
"""

import hashlib
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import reconcile
from app.core import pages, zones
from app.core.pages import TEMPLATES, letters
from app.evidence.bundle_letter import LetterFacts, bundle_letter, unheard_sentences
from app.evidence.letter_times import Times
from app.providers import schemes
from reconcile.ledger.explain import explain
from reconcile.ledger.grouping import grouped
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.plain import plain_answer, plain_finding

README: Final = """\
EVIDENCE OF ONE ORDER

This archive shows what a shop received from its payment service about one order, when it arrived,
by what it was judged to be genuine, and what the shop concluded from it. It was made by Tallyhook.
Every step below can be done on another computer, without a network, and needs no trust in the
shop's systems. What no step can show is said at the end, and must not be taken from here as proven.

Begin with report.html: two pages for people. manifest.json says of which order and as of which
moment this is, and whether it is redacted.


WHAT IS HERE

README.txt           this text
report.html          what happened, for people; opens in any browser, needs no network
explanation.txt      the conclusion in plain words, then with what each sentence rests on, the ids
                     of the evidence in [brackets]
ledger.json          the conclusion as data: outcome, totals, attempts, entries, timeline, findings
history.json         all that the conclusion follows from: deliveries as they were read, the shop's
                     own records, and the shop's policy on time limits
delivery-ID.json     an event's first arrival: when, from where, the verdict, the signature and the
                     key, its age; of redeliveries history.json says when they came ("again"), and
                     log.json has their entries
delivery-ID.body     its bytes as they came          \\
delivery-ID.whole    the request it was a part of     | only in a full bundle; a redacted one has
delivery-ID.headers  its headers as they came         | their digests, under "left_out"
delivery-ID.signed   the bytes its signature is over /
key-FINGERPRINT.pem  a public key that a payment service signs with
sessions.json        what the shop asked the payment service for, with the idempotency key, and the
                     answer; never the shop's token
revisions.json       what was published to the shop's systems about this order, and when
books.json           lines of the shop's order books and of settlement files that were matched
attachments.json     each file that people of the shop attached, and whether it was removed: its
                     digest, and the audit entries that the log counts among the order's
attachment-ID.*      such a file as it was attached (pdf, png, jpg, txt), and what was said of it
                     (details); only in a full bundle
sources.json         which profile reads which source; profile-N.toml is that profile: how the
                     service signs, names, dates and prices its events
heard.json           when each source last delivered something that was read; messages that may be
                     about the order and could not be read, and how many were refused
log.json             each delivery, record, revision and audit entry as a leaf of the shop's log,
                     with its proof; the key by which leaves name this order, the salts of what they
                     say, and how many leaves the order has, as the day's tree of all orders says
checkpoint.txt       the signed head of that log, to which the proofs lead
times.json           the shop's time zone, in which report.html and the plain words give times, and
                     how many seconds it was from UTC from which moment on; else all is in UTC
manifest.json        SHA-256 and size of every file here, and of those that were left out
manifest.json.minisig, evidence-key.pub, evidence-key.pem
                     the signature over the manifest, and the key, in two forms
verify.py            does steps 1 to 3, and 5 to 8, of the eleven that it lists; some 1400 lines, to
                     be read first


HOW TO CHECK IT

1. Ask the shop for its evidence key, by another way than this archive. The key that is in here
   only proves that nothing was changed since it was signed; whose key it is, the archive cannot
   prove. Compare:  cat evidence-key.pub

2. The signature over the manifest, with minisign (https://jedisct1.github.io/minisign):

     minisign -V -p evidence-key.pub -m manifest.json

   or with openssl 3:

     sed -n 2p manifest.json.minisig | openssl base64 -d -A | tail -c 64 > manifest.sig
     openssl dgst -blake2b512 -binary -out manifest.hash manifest.json
     openssl pkeyutl -verify -pubin -inkey evidence-key.pem -rawin -in manifest.hash \\
       -sigfile manifest.sig

3. Everything else but signatures, with Python 3.8 or later:

     python3 -I verify.py bundle.zip

   or by hand: sha256sum of each file against manifest.json. The verify.py in here is the word of
   whoever made this: compare its SHA-256 with app/evidence/verify.sha256 in Tallyhook's repository,
   at the release that manifest.json names, or run `python3 -m app.evidence.verify` there.

4. The signature of the checkpoint, which says which log all proofs lead to:

     head -n 3 checkpoint.txt > check.body
     sed -n 5p checkpoint.txt | cut -d ' ' -f 3 | openssl base64 -d -A | tail -c 64 > check.sig
     openssl pkeyutl -verify -pubin -inkey evidence-key.pem -rawin -in check.body \\
       -sigfile check.sig

   Where that fails, the checkpoint may be of before the shop changed its key: log.json has the keys
   of before, and what each of them signed of the next.

   A checkpoint that the shop gave you at an earlier time must be of the same log, which `tallyhook
   evidence verify --checkpoint` compares: then nothing that it covers can have been changed, taken
   out or put in since. Further lines of checkpoint.txt that begin
   with a dash are cosignatures of witnesses, who see each checkpoint of this log and cosign none
   that does not go on from the one before (https://c2sp.org/tlog-cosignature). Whoever trusts one
   gives its key to `tallyhook evidence verify --witness`.

5. Whoever has Tallyhook runs `tallyhook evidence verify bundle.zip`, which does all of this, reads
   the bodies again where they are here, and folds the history again to the same ledger.


WHO CAN CHECK WHAT

Anyone                that nothing here was changed since it was signed; that every delivery lies in
                      the log; that the conclusion follows from the history; and, where there is a
                      key-FINGERPRINT.pem, that the payment service signed what it signed.
The payment service   that it signed the deliveries under a shared secret, which it has and nobody
                      else should: delivery-ID.json names the key by its fingerprint, the first 8
                      bytes of the SHA-256 of the words "tallyhook secret fingerprint" directly
                      followed by the secret; delivery-ID.signed are the bytes that are signed. This
                      takes the full bundle.
The shop              that a redacted bundle and a full one are of the same deliveries: all files
                      that both have are equal (but where a customer's number stands in one, which
                      is masked), and the digests of the rest are in the manifest.


WHAT IT DOES NOT PROVE

Not everything here is sealed in the log. The first lines of a verification list what is only the
word of whoever made the bundle, such as the lines of books and settlement files, how a delivery was
addressed where its headers are left out, and that nothing came after what is here. This text,
report.html, explanation.txt and verify.py follow from the rest: `tallyhook evidence verify` of the
release that manifest.json names renders them again, and nothing else can tell that they do.

All of it hangs together as well if somebody has made it up under a key of their own: that it is the
shop's, only a key shows that you have from the shop by another way than this archive. And times are
the shop's: that something was in the log by a day is shown by a checkpoint of that day that
somebody else has kept, or by witnesses, and by nothing that is in here alone.

A shared secret is known to two. It shows the payment service that its own word is here; it cannot
show a third party which of the two wrote it. What the payment service never sent, nobody has.


BEFORE YOU HAND IT ON

A full bundle holds the customer's data as they came. A redacted one does not, but for digests:
whoever knows all of a body but the phone number in it can try numbers until its digest fits. Hand
either to nobody but those whom the order concerns.
"""

VERIFIER: Final = Path(__file__).with_name("verify.py")
_PARTS: Final = tuple(
    VERIFIER.with_name(f"{name}.py")
    for name in ("verify_forms", "verify_archive", "verify_entries")
)
_IMPORTED: Final = re.compile(r"^from app\.evidence\.verify_\w+ import (\([^)]*\)|.*)\n", re.M)
_HEAD_ENDS: Final = "from __future__ import annotations\n\n"


@cache
def stand_alone() -> str:
    """Return the verifier as one file. Its imports are replaced by the text of the imported
    modules."""
    parts = [each.read_text("utf-8").partition(_HEAD_ENDS)[2] for each in _PARTS]
    text = VERIFIER.read_text("utf-8")
    first = _IMPORTED.search(text)
    assert first is not None
    whole = text[: first.start()] + "\n\n".join(parts) + text[first.start() :]
    return _IMPORTED.sub("", whole)


def verifier_digest() -> str:
    """Return the line of `verify.sha256`, for `sha256sum --check`."""
    return f"{hashlib.sha256(stand_alone().encode()).hexdigest()}  {VERIFIER.name}\n"


def rendered_files(ledger: Ledger, facts: LetterFacts) -> dict[str, bytes]:
    """Return the rendered files by name."""
    # First in plain words for people; then each sentence with the ids that support it, in UTC.
    plain = [
        *plain_answer(ledger, unheard=facts.unheard),
        *(plain_finding(each) for each in grouped(ledger.findings)),
    ]
    said = map(Times(facts.zone).text, dict.fromkeys(plain))
    lines = [*said, "", *explain(ledger), "", *unheard_sentences(facts.unheard, Times(None))]
    return {
        "README.txt": README.encode(),
        "verify.py": stand_alone().encode(),
        "explanation.txt": "".join(f"{line}\n" for line in lines).encode(),
        "report.html": bundle_letter(ledger, facts).encode(),
    }


def release() -> str:
    """Return the program's version for people."""
    return version("tallyhook")


@cache
def program() -> str:
    """Return the hex SHA-256 of the code that renders these files."""
    engine = Path(reconcile.__file__).parent
    files = [
        *engine.glob("*.py"),
        *(engine / "ledger").glob("*.py"),
        *(
            Path(__file__).with_name(name)
            for name in (
                "bundle_letter.py",
                "letter_times.py",
                "rendering.py",
                "verify.py",
                "verify_archive.py",
                "verify_entries.py",
                "verify_forms.py",
            )
        ),
        *(TEMPLATES / name for name in letters.HTML),
    ]
    files += [Path(str(each.__file__)) for each in (pages, letters, zones, schemes)]
    digest = hashlib.sha256(f"{version('jinja2')} {version('markupsafe')}".encode())
    for file in sorted(files, key=lambda each: (each.parent.name, each.name)):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
