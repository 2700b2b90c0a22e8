"""Makes the bundle: files, manifest, signature, ZIP."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.access.operators import note_in_trail, permitted
from app.core.errors import UsageError
from app.evidence import keys
from app.evidence.gather_evidence import (
    DeliveryEvidence,
    Dossier,
    Proven,
    Providers,
    gather_dossier,
)
from app.evidence.keys import EvidenceKey
from app.evidence.letter import letter
from app.evidence.seal import CheckpointSigner, seal_all
from app.evidence.verify import FORMAT, MANIFEST, MAX_BYTES, MAX_MEMBERS, SIGNATURE, pack
from app.orders.customers import checked_reason
from app.orders.holds import hold_if_due
from app.orders.published_store import Published
from app.receiving.caught_up import must_have_read
from app.receiving.context import AppContext
from app.receiving.due_store import marks_of
from reconcile.canonical import canonical_json
from reconcile.instants import Instant, format_duration, format_instant, format_known
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.records import Record
from reconcile.transparency.evidence import history_document, value_document

README: Final = """\
EVIDENCE OF ONE ORDER

This archive shows what a shop received from its payment service about one order, when it arrived,
that it was genuine, and what the shop concluded from it. It was made by Tallyhook. It needs no
trust in the shop's systems to be checked: every step below can be done on another computer,
without a network.

Begin with report.html: two pages for people. manifest.json says of which order and as of which
moment this is, and whether it is redacted.


WHAT IS HERE

README.txt           this text
report.html          what happened, for people; opens in any browser, needs no network
explanation.txt      the conclusion in sentences; what stands in [brackets] are ids of the evidence
ledger.json          the conclusion as data: outcome, totals, attempts, entries, timeline, findings
history.json         all that the conclusion follows from: deliveries as they were read, the shop's
                     own records, and the shop's policy on time limits
delivery-ID.json     one arrival: when, from where, the verdict, the signature and the key, its age
delivery-ID.body     its bytes as they came          \\
delivery-ID.whole    the request it was a part of     | only in a full bundle; a redacted one has
delivery-ID.headers  its headers as they came         | their digests, under "left_out"
delivery-ID.signed   the bytes its signature is over /
key-FINGERPRINT.pem  a public key that a payment service signs with
sessions.json        what the shop asked the payment service for, with the idempotency key, and the
                     answer; never the shop's token
revisions.json       what the shop's systems were told of this order, and when
books.json           lines of the shop's order books and of settlement files that were matched
sources.json         which profile reads which source; profile-N.toml is that profile: how the
                     service signs, names, dates and prices its events
log.json             each delivery, record and revision as a leaf of the shop's log, with its proof
checkpoint.txt       the signed head of that log, to which the proofs lead
manifest.json        SHA-256 and size of every file here, and of those that were left out
manifest.json.minisig, evidence-key.pub, evidence-key.pem
                     the signature over the manifest, and the key, in two forms
verify.py            does steps 1 to 3, 5 and 6 for you; some 400 lines, to be read first


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

   or by hand: sha256sum of each file against manifest.json.

4. The signature of the checkpoint, which says which log all proofs lead to:

     head -n 3 checkpoint.txt > check.body
     sed -n 5p checkpoint.txt | cut -d ' ' -f 3 | openssl base64 -d -A | tail -c 64 > check.sig
     openssl pkeyutl -verify -pubin -inkey evidence-key.pem -rawin -in check.body \\
       -sigfile check.sig

   A checkpoint that the shop gave you at an earlier time must be of the same log: then nothing in
   it can have been changed, taken out or put in since.

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

A shared secret is known to two. It shows the payment service that its own word is here; it cannot
show a third party which of the two wrote it. What the payment service never sent, nobody has.


BEFORE YOU HAND IT ON

A full bundle holds the customer's data as they came. A redacted one does not, but for digests:
whoever knows all of a body but the phone number in it can try numbers until its digest fits. Hand
either to nobody but those whom the order concerns.
"""


VERIFIER: Final = Path(__file__).with_name("verify.py")

SESSION_KINDS: Final = ("session_requested", "session_opened", "session_refused", "session_unknown")


@dataclass(slots=True)
class Files:
    """`shown` is in the bundle whatever it is; `personal` only in a full one."""

    shown: dict[str, bytes] = field(default_factory=dict)
    personal: dict[str, bytes] = field(default_factory=dict, repr=False)


def files_of(dossier: Dossier, *, key: str) -> Files:
    """Every file but the key itself, the manifest and its signature. `key`: the key's name."""
    ledger = fold(dossier.history, policy=dossier.policy, as_of=dossier.as_of)
    document = ledger_document(ledger)
    files = Files()
    for told in dossier.told:
        _add_delivery(files, told, dossier)
    files.shown |= {
        "README.txt": README.encode(),
        "verify.py": VERIFIER.read_bytes(),
        "history.json": _json(
            history_document(dossier.history, policy=dossier.policy, as_of=dossier.as_of)
        ),
        "ledger.json": _json(document),
        "explanation.txt": "".join(f"{line}\n" for line in document["explanation"]).encode(),
        "report.html": letter(ledger, dossier, key=key).encode(),
        "sessions.json": _json(_sessions(dossier)),
        "revisions.json": _json([_revision(each, dossier) for each in dossier.revisions]),
        "books.json": _json([dossier.masking.value(each) for each in dossier.lines]),
        "sources.json": _json(_sources(dossier)),
        "log.json": _json(_log(dossier)),
    }
    for record, details in dossier.details.items():
        files.personal[f"record-{record}.details"] = details.encode()
    for number, profile in enumerate(dossier.profiles, 1):
        files.shown[f"profile-{number}.toml"] = profile.text
    if dossier.sealed.checkpoint:
        files.shown["checkpoint.txt"] = dossier.sealed.checkpoint.encode()
    return files


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def entry(data: bytes) -> dict[str, Any]:
    """How the manifest tells a file."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


# --- deliveries ----------------------------------------------------------------------------------


def _add_delivery(files: Files, told: DeliveryEvidence, dossier: Dossier) -> None:
    name = f"delivery-{told.arrived.delivery_id}"
    kept = told.arrived.headers.encode() if told.arrived.headers else None
    proven = told.proven
    document = {
        "delivery": told.arrived.delivery_id,
        "received_at": format_instant(told.arrived.received_at),
        "source": told.arrived.source,
        "verdict": told.arrived.verdict,
        "problem": told.arrived.problem,
        "method": told.method,
        "address": dossier.masking.text(told.url),
        "sha256": told.arrived.digest,
        "size": told.arrived.size,
        "body": _part(files, f"{name}.body", told.body),
        "whole": _part(files, f"{name}.whole", told.arrived.whole),
        "headers": _part(files, f"{name}.headers", kept),
        "signed": _part(files, f"{name}.signed", proven.content),
        "headers_shown": [_shown(each, value, dossier) for each, value in told.headers],
        "signature": _signature(proven, told.arrived.received_at),
        "let_go_at": format_known(told.arrived.pruned_at),
    }
    files.shown[f"{name}.json"] = _json(document)
    if proven.public is not None:
        files.shown[f"key-{proven.key}.pem"] = proven.public


def _shown(name: str, value: str, dossier: Dossier) -> list[str]:
    """A header without what is personal, by its value or by its name."""
    return [name, dossier.masking.value({name: value})[name]]


def _part(files: Files, name: str, data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    files.personal[name] = data
    return {"file": name, **entry(data)}


def _signature(proven: Proven, received_at: Instant) -> dict[str, Any]:
    age = None if proven.signed_at is None else received_at - proven.signed_at
    return {
        "scheme": proven.scheme,
        "where": proven.where,
        "over": proven.signed,
        "key": proven.key,
        "signed_at": format_known(proven.signed_at),
        "age_at_arrival": None if age is None else format_duration(age),
        "sentence": proven.sentence,
    }


# --- what else is known --------------------------------------------------------------------------


def _sessions(dossier: Dossier) -> list[dict[str, Any]]:
    """What we asked the service, with its idempotency key, and what it answered."""
    records = (each for each in dossier.history.records if each.kind in SESSION_KINDS)
    ordered = sorted(records, key=lambda each: (each.recorded_at, each.record_id))
    return [_session(each, dossier) for each in ordered]


def _session(record: Record, dossier: Dossier) -> dict[str, Any]:
    details = dossier.details.get(record.record_id)
    return {**value_document(record), "details": _details(details, dossier)}


def _details(text: str | None, dossier: Dossier) -> Any:
    try:
        return dossier.masking.value(json.loads(text or "null"))
    except (ValueError, RecursionError):
        return dossier.masking.text(text or "")


def _revision(published: Published, dossier: Dossier) -> dict[str, Any]:
    return {
        "seq": published.seq,
        "at": format_instant(published.at),
        "outcome": published.outcome,
        "fulfillable": published.fulfillable,
        "before": published.before_outcome,
        "because": [dossier.masking.text(each) for each in published.because],
    }


def _sources(dossier: Dossier) -> list[Mapping[str, Any]]:
    return [
        {
            "source": each.source,
            "profile": each.profile,
            "file": f"profile-{number}.toml",
            "orders": each.orders,
        }
        for number, each in enumerate(dossier.profiles, 1)
    ]


def _log(dossier: Dossier) -> dict[str, Any]:
    leaves: Iterable[Any] = (
        {
            "id": each.subject,
            "index": each.index,
            "leaf": each.text,
            "hash": each.hash.hex(),
            "proof": [step.hex() for step in each.proof],
        }
        for each in dossier.sealed.leaves
    )
    sealed = dossier.sealed
    return {"keys": list(sealed.keys), "leaves": list(leaves), "unsealed": list(sealed.unsealed)}


KEY: Final = "evidence-key.pub"
"""The key as `minisign -p` reads it."""

ABOUT: Final = "signature over the manifest of an evidence bundle"
"""The signature's first line, which no signature covers: always the same, so a change is seen."""

KEY_PEM: Final = "evidence-key.pem"
"""The same key as `openssl` reads it."""


def bundle_of(dossier: Dossier, key: EvidenceKey) -> bytes:
    """The bundle's bytes: the same for the same dossier and key.

    Raises UsageError where it would be larger than `verify` takes.
    """
    files = files_of(dossier, key=keys.key_name(key.public))
    files.shown[KEY] = keys.public_key_text(key.public).encode()
    files.shown[KEY_PEM] = key.public.pem().encode()
    manifest = canonical_json(manifest_of(dossier, files))
    members = files.shown | (files.personal if dossier.full else {})
    _check_bounds(members)
    comment = f"evidence of an order as of {format_instant(dossier.as_of)}"
    signature = keys.signed(key, manifest, comment=comment, about=ABOUT)
    return pack({**members, MANIFEST: manifest, SIGNATURE: signature.encode()})


def manifest_of(dossier: Dossier, files: Files) -> dict[str, Any]:
    """What is signed: order, instant, and the digest of every file, left out or not."""
    shown = {name: entry(data) for name, data in files.shown.items()}
    personal = {name: entry(data) for name, data in files.personal.items()}
    return {
        "format": FORMAT,
        "order": dossier.history.order,
        "as_of": format_instant(dossier.as_of),
        "redacted": not dossier.full,
        "files": shown | (personal if dossier.full else {}),
        "left_out": {} if dossier.full else personal,
    }


def _check_bounds(members: dict[str, bytes]) -> None:
    size = sum(len(data) for data in members.values())
    if size > MAX_BYTES * 0.9 or len(members) > MAX_MEMBERS - 2:
        raise UsageError(
            f"this bundle would have {len(members):,} files and {size:,} bytes, more than can be "
            "checked in one piece: name an earlier --as-of, or leave personal data out"
        )


# --- builds an order's evidence bundle, for who may have it, and writes down who did and why ------


SEAL_TRIES: Final = 10
SEAL_PAUSE_S: Final = 0.1
"""How often, and how far apart, it is looked whether all is sealed: a batch takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRequest:
    """What is asked for. `reason` says why personal data go in; without it they stay out."""

    order: str
    as_of: Instant | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A bundle: its bytes, and what was put in. `due`: the order is still to be folded, so that
    what its systems are told next is not in it."""

    archive: bytes
    order: str
    as_of: Instant
    deliveries: int
    unsealed: int
    full: bool
    due: bool

    @property
    def sha256(self) -> str:
        """Of the whole file, hex."""
        return hashlib.sha256(self.archive).hexdigest()


async def build_evidence(
    context: AppContext, request: BundleRequest, *, providers: Providers, signer: CheckpointSigner
) -> Built:
    """The bundle. Personal data take the role that may unmask, and a reason.

    Raises UsageError for who may not and for an empty reason, NotFoundError for no such order.
    """
    full = request.reason is not None
    if full:
        checked_reason(request.reason or "", [])
    async with context.store.reading() as connection:  # before anything is read for them
        await permitted(connection, by=request.by, action="evidence_built")
        if full:
            await permitted(connection, by=request.by, action="unmasked")
    await must_have_read(context)
    await hold_if_due(context, [request.order])  # what is read in it must have been recorded
    dossier = await _sealed_dossier(context, request, providers=providers, signer=signer)
    reason = checked_reason(request.reason, sorted(dossier.phones)) if request.reason else ""
    built = Built(
        archive=bundle_of(dossier, signer.key),
        order=request.order,
        as_of=dossier.as_of,
        deliveries=len(dossier.told),
        unsealed=len(dossier.sealed.unsealed),
        full=full,
        due=await _is_due(context, request.order),
    )
    await _write_down(context, request, built, reason=reason)
    return built


async def _sealed_dossier(
    context: AppContext, request: BundleRequest, *, providers: Providers, signer: CheckpointSigner
) -> Dossier:
    """With proofs of what came a moment ago, too; another sealer may be in the middle of it."""
    for _ in range(SEAL_TRIES):
        await seal_all(context, signer)
        dossier = await gather_dossier(
            context,
            request.order,
            as_of=request.as_of,
            full=request.reason is not None,
            providers=providers,
        )
        if not dossier.sealed.unsealed:
            break
        await asyncio.sleep(SEAL_PAUSE_S)
    return dossier


async def _is_due(context: AppContext, order: str) -> bool:
    now = context.clock.now()
    async with context.store.reading() as connection:
        marks = await marks_of(connection, [order])
    return any(mark.due_at is not None and mark.due_at <= now for mark in marks)


async def _write_down(
    context: AppContext, request: BundleRequest, built: Built, *, reason: str
) -> None:
    """Who built what and why, before anybody has it."""
    async with context.store.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=request.by, action="evidence_built")
        facts = {
            "sha256": built.sha256,
            "as_of": format_instant(built.as_of),
            "kind": "full" if built.full else "redacted",
        }
        subject = request.order
        await note_in_trail(
            connection,
            who,
            action="evidence_built",
            subject=subject,
            at=now,
            reason=reason,
            facts=facts,
        )
        if built.full:
            who = await permitted(connection, by=request.by, action="unmasked")
            await note_in_trail(
                connection, who, action="unmasked", subject=subject, at=now, reason=reason
            )
