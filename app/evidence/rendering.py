"""Render a bundle's files that repeat other files in words."""

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

This archive shows what a shop received from its payment service about one order. It shows when each
message arrived, how the shop checked that the message was genuine, and what the shop concluded. The
program Tallyhook made the archive. You can do every step below on another computer, without a
network and without trusting the shop's systems. Read "What it does not prove" before you rely on
the archive.

Begin with report.html: two pages in plain words. manifest.json states the order, the time as of
which the archive was made, and whether it is redacted.


WHAT IS HERE

README.txt           this text
report.html          what happened, for people; opens in any browser without a network
explanation.txt      the conclusion in plain words, and then sentence by sentence, each with the ids
                     of its evidence in [brackets]
ledger.json          the conclusion as data: outcome, totals, attempts, entries, timeline, findings
history.json         everything from which the conclusion follows: the deliveries as they were read,
                     the shop's own records, and the shop's time limits
delivery-ID.json     the first arrival of an event: its time, its origin, the shop's verdict, the
                     signature with its key and age. If the event arrived again, history.json has
                     the times ("again"), and log.json has the log entries.
delivery-ID.body     the body, byte for byte             \\
delivery-ID.whole    the request that contained the body  | only in a full bundle; the manifest of a
delivery-ID.headers  the headers, byte for byte           | redacted bundle has their digests under
delivery-ID.signed   the bytes that were signed          /  "left_out"
key-FINGERPRINT.pem  a public key of a payment service, which verifies its signatures
sessions.json        the shop's requests to the payment service, with their idempotency keys, and
                     the answers; the shop's token is never included
revisions.json       what was published to the shop's systems about this order, and when
books.json           the matched lines of the shop's order books and of settlement files
attachments.json     the files that people of the shop attached: their digests, whether they were
                     removed, and the entries of the shop's audit trail about them
attachment-ID.*      an attached file (pdf, png, jpg or txt), and its description (details); only in
                     a full bundle
sources.json         the profile that was used to read each source; profile-N.toml is such a
                     profile: how the service signs, names, dates and prices its events
heard.json           for each source, when it last delivered a readable message; the unreadable
                     messages that may be about the order; the number of refused messages
log.json             the leaf of the shop's log for each delivery, record, revision and audit entry,
                     with its inclusion proof; the key of the order's pseudonym in the log; the
                     salts of the sealed values; and the number of the order's leaves, according to
                     the daily tree of all orders
checkpoint.txt       the signed head of the log, to which all inclusion proofs lead
times.json           the shop's time zone with its offsets from UTC; report.html and the plain words
                     use this zone. All other times are in UTC.
manifest.json        the SHA-256 and size of every file here, and of every file that was left out
manifest.json.minisig, evidence-key.pub, evidence-key.pem
                     the signature of the manifest, and the public key in two formats
verify.py            a program that checks this archive; its first lines list eleven steps, of which
                     it does 1 to 3 and 5 to 8. It has some 1400 lines: read them before you run it.


HOW TO CHECK IT

1. Ask the shop for its evidence key through another channel. The key in this archive proves only
   that nothing was changed after signing. It does not prove whose key it is. Compare the shop's key
   with this one:  cat evidence-key.pub

2. Verify the signature of the manifest with minisign (https://jedisct1.github.io/minisign):

     minisign -V -p evidence-key.pub -m manifest.json

   or with openssl 3:

     sed -n 2p manifest.json.minisig | openssl base64 -d -A | tail -c 64 > manifest.sig
     openssl dgst -blake2b512 -binary -out manifest.hash manifest.json
     openssl pkeyutl -verify -pubin -inkey evidence-key.pem -rawin -in manifest.hash \\
       -sigfile manifest.sig

3. Check everything except the signatures with Python 3.8 or later:

     python3 -I verify.py bundle.zip

   or compare the sha256sum of each file with manifest.json. The maker of this archive could have
   changed verify.py. So compare its SHA-256 with app/evidence/verify.sha256 in Tallyhook's
   repository, at the release that manifest.json names, or run `python3 -m app.evidence.verify`
   there.

4. Verify the signature of the checkpoint, which identifies the log to which all proofs lead:

     head -n 3 checkpoint.txt > check.body
     sed -n 5p checkpoint.txt | cut -d ' ' -f 3 | openssl base64 -d -A | tail -c 64 > check.sig
     openssl pkeyutl -verify -pubin -inkey evidence-key.pem -rawin -in check.body \\
       -sigfile check.sig

   If this fails, the checkpoint may have been signed before the shop changed its key. log.json has
   the earlier keys, and the signature with which each key endorsed the next one.

   If the shop gave you a checkpoint earlier, run `tallyhook evidence verify --checkpoint` to check
   that both belong to the same log. If they do, nothing that your checkpoint covers was changed,
   removed or inserted since.

   Further lines of checkpoint.txt that begin with a dash are cosignatures of witnesses
   (https://c2sp.org/tlog-cosignature). A witness cosigns a checkpoint only if it extends the one
   that the witness cosigned before. If you trust a witness, give its key to `tallyhook evidence
   verify --witness`.

5. If you have Tallyhook, run `tallyhook evidence verify bundle.zip`. It does all of these checks,
   reads the bodies again if they are included, and derives the ledger from the history again.


WHO CAN CHECK WHAT

Anyone                can check that nothing here was changed after signing, that the log contains
                      every delivery, and that the conclusion follows from the history. If there is
                      a key-FINGERPRINT.pem, anyone can also check the signatures that the payment
                      service made with that key.
The payment service   can check the signatures that it made with a shared secret, because nobody
                      but the service and the shop should have the secret. This takes a full bundle.
                      delivery-ID.signed has the signed bytes. delivery-ID.json names the secret by
                      its fingerprint: the first 8 bytes of the SHA-256 of the words "tallyhook
                      secret fingerprint" directly followed by the secret.
The shop              can check that a redacted bundle and a full one contain the same deliveries.
                      All files that both contain are equal, except for masked phone numbers of
                      customers. The manifest has the digests of the other files.


WHAT IT DOES NOT PROVE

Not everything here is sealed in the log. The first lines of a verification list the parts for which
you have only the word of the person who made the bundle. Such parts are the lines of order books
and settlement files, the address of a delivery whose headers are left out, and the claim that
nothing arrived later. Steps 1 to 4 do not check that this text, report.html, explanation.txt and
verify.py agree with the other files. Only `tallyhook evidence verify` of the release that
manifest.json names can check that: it makes these four files again and compares them.

Someone else could have invented all of this and signed it with a key of their own. Only a key that
the shop gave you through another channel proves that the archive is the shop's.

All times are those of the shop's clock. Nothing in this archive alone proves that an entry was in
the log by a certain day. A checkpoint of that day that somebody else kept proves it, and so does a
cosignature of a witness.

A shared secret is known to two parties. So the signature convinces the payment service that it
wrote the message itself, but cannot show a third party which of the two wrote it. The archive
cannot contain what the payment service never sent.


BEFORE YOU HAND IT ON

A full bundle contains the customer's unmasked data. A redacted bundle contains only digests of
them. But somebody who knows a whole body except for the phone number can try numbers until the
digest matches. Give either bundle only to people whom the order concerns.
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
    """Return the verifier as one file."""
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
    """Return the rendered files of a bundle. The keys are file names."""
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
