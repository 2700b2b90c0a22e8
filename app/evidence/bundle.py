"""Makes the bundle: files, manifest, signature, ZIP."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.text import counted
from app.evidence import keys, letter, rendering, seal, verify
from app.evidence.attachments import ENDINGS
from app.evidence.gather_evidence import (
    AttachedFile,
    DeliveryEvidence,
    Dossier,
    Proven,
    Providers,
    gather_dossier,
)
from app.evidence.witnesses import Witnesses
from app.orders.customers import checked_reason
from app.orders.delivery_log import shown_address, shown_header
from app.orders.holds import hold_if_due
from app.orders.published_store import Published
from app.receiving.caught_up import must_have_read
from app.receiving.due_store import marks_of
from reconcile.canonical import canonical_json
from reconcile.instants import SECOND, Instant, format_duration, format_instant, format_known
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.records import Record
from reconcile.transparency.cosignatures import signatures_of
from reconcile.transparency.evidence import history_document, value_document

SESSION_KINDS: Final = ("session_requested", "session_opened", "session_refused", "session_unknown")


@dataclass(slots=True)
class Files:
    """`shown` is in the bundle whatever it is; `personal` only in a full one."""

    shown: dict[str, bytes] = field(default_factory=dict)
    personal: dict[str, bytes] = field(default_factory=dict, repr=False)


def files_of(dossier: Dossier, *, key: str) -> Files:
    """Every file but the key itself, the manifest and its signature. `key`: the key's name."""
    ledger = fold(dossier.history, policy=dossier.policy, as_of=dossier.as_of)
    files = Files()
    for delivery in dossier.deliveries:
        _add_delivery(files, delivery, dossier)
    facts = _letter_facts(dossier, key)
    files.shown |= {
        **rendering.rendered_files(ledger, facts),
        "history.json": _json(
            history_document(dossier.history, policy=dossier.policy, as_of=dossier.as_of)
        ),
        "ledger.json": _json(ledger_document(ledger)),
        "sessions.json": _json(_sessions(dossier)),
        "revisions.json": _json([_revision(each, dossier) for each in dossier.revisions]),
        "books.json": _json([dossier.masking.value(each) for each in dossier.lines]),
        "sources.json": _json(_sources(dossier)),
        "log.json": _json(_log(dossier)),
    }
    if facts.zone is not None:
        files.shown[letter.TIMES] = _json(facts.zone.document())
    for record, details in dossier.details.items():
        files.personal[f"record-{record}.details"] = details.encode()
    if dossier.attached is not None:
        listed = [_attachment(files, each, dossier) for each in dossier.attached]
        files.shown["attachments.json"] = _json(listed)
    for number, profile in enumerate(dossier.profiles, 1):
        files.shown[f"profile-{number}.toml"] = profile.text
    if dossier.sealed.checkpoint:
        files.shown["checkpoint.txt"] = dossier.sealed.checkpoint.encode()
    return files


def _letter_facts(dossier: Dossier, key: str) -> letter.LetterFacts:
    return letter.LetterFacts(
        history=dossier.history,
        revisions=tuple(
            letter.PublishedOutcome(at=each.at, outcome=each.outcome, fulfillable=each.fulfillable)
            for each in dossier.revisions
        ),
        arrivals=tuple(
            letter.Arrival(
                source=each.arrived.source,
                received_at=each.arrived.received_at,
                key=each.proven.key,
                scheme=each.proven.scheme,
                public=each.proven.public is not None,
                signed_at=each.proven.signed_at,
            )
            for each in dossier.deliveries
        ),
        checkpoint=dossier.sealed.checkpoint,
        sealed=len(dossier.sealed.leaves),
        unsealed=len(dossier.sealed.unsealed),
        key=key,
        zone=letter.letter_zone(dossier.zone),
    )


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def entry(data: bytes) -> dict[str, Any]:
    """The manifest entry of a file."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


# --- deliveries ----------------------------------------------------------------------------------


def _add_delivery(files: Files, evidence: DeliveryEvidence, dossier: Dossier) -> None:
    name = f"delivery-{evidence.arrived.delivery_id}"
    kept = evidence.arrived.headers.encode() if evidence.arrived.headers else None
    proven = evidence.proven
    document = {
        "delivery": evidence.arrived.delivery_id,
        "received_at": format_instant(evidence.arrived.received_at),
        "source": evidence.arrived.source,
        "verdict": evidence.arrived.verdict,
        "problem": evidence.arrived.problem,
        "method": evidence.method,
        "address": evidence.url if dossier.full else shown_address(evidence.url, dossier.masking),
        "sha256": evidence.arrived.digest,
        "size": evidence.arrived.size,
        "body": _part(files, f"{name}.body", evidence.body),
        "whole": _part(files, f"{name}.whole", evidence.arrived.whole),
        "headers": _part(files, f"{name}.headers", kept),
        "signed": _part(files, f"{name}.signed", proven.content),
        "headers_shown": [_shown(each, value, dossier) for each, value in evidence.headers],
        "signature": _signature(proven, evidence.arrived.received_at),
        "let_go_at": format_known(evidence.arrived.pruned_at),
    }
    files.shown[f"{name}.json"] = _json(document)
    if proven.public is not None:
        files.shown[f"key-{proven.key}.pem"] = proven.public


def _shown(name: str, value: str, dossier: Dossier) -> list[str]:
    """A header without what is personal, by its value or by its name: of a redacted bundle also
    without what seems to be. In a full one they stand whole beside it."""
    if not dossier.full:
        return [name, shown_header(name, value, dossier.masking)]
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


def _attachment(files: Files, attached: AttachedFile, dossier: Dossier) -> dict[str, Any]:
    """A file, and what is said of it, are personal: in a redacted bundle are their digests, which
    the audit entry has, too."""
    record = attached.record
    name = f"attachment-{record.attachment_id}"
    details = (record.details or "").encode()
    return {
        "attachment": record.attachment_id,
        "about": record.about,
        "subject": dossier.masking.text(record.subject),
        "kind": record.kind,
        "media": record.media,
        "at": format_instant(record.at),
        "deed": record.audit_number,
        "facts": attached.facts,
        "content": _part(files, f"{name}.{ENDINGS[record.media]}", attached.content),
        "details": _part(files, f"{name}.details", details),
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
    return {
        "keys": list(sealed.keys),
        "endorsements": list(sealed.endorsements),
        **(
            {"origins": [{"log": name, "leaves": size} for name, size in sealed.origins]}
            if sealed.origins
            else {}
        ),
        "leaves": list(leaves),
        "unsealed": list(sealed.unsealed),
        "order": sealed.order and {
            "commitment": sealed.order.commitment, "key": sealed.order.key,
        },
        "tree": sealed.tree
        and {
            "leaf": sealed.tree.leaf,
            "leaves": sealed.tree.leaves,
            "last": sealed.tree.last,
            "path": [[shared, found.hex()] for shared, found in sealed.tree.path],
        },
        "readings": {
            delivery: {
                name: {"hash": part.hash} if part.salt is None else {"salt": part.salt}
                for name, part in parts.items()
            }
            for delivery, parts in sealed.readings.items()
        },
    }  # fmt: skip


KEY: Final = "evidence-key.pub"
"""The key as `minisign -p` reads it."""

ABOUT: Final = "signature over the manifest of an evidence bundle"
"""The signature's first line, which no signature covers: always the same, so a change is seen."""

KEY_PEM: Final = "evidence-key.pem"
"""The same key as `openssl` reads it."""


def bundle_of(dossier: Dossier, key: keys.EvidenceKey) -> bytes:
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
    signature = keys.minisign_signature(key, manifest, comment=comment, about=ABOUT)
    return verify.pack({**members, verify.MANIFEST: manifest, verify.SIGNATURE: signature.encode()})


def manifest_of(dossier: Dossier, files: Files) -> dict[str, Any]:
    """What is signed: order, instant, the program that rendered what is rendered, and the digest of
    every file, left out or not."""
    shown = {name: entry(data) for name, data in files.shown.items()}
    personal = {name: entry(data) for name, data in files.personal.items()}
    return {
        "format": verify.FORMAT,
        "release": rendering.release(),
        "program": rendering.program(),
        "order": dossier.history.order,
        "as_of": format_instant(dossier.as_of),
        "redacted": not dossier.full,
        "files": shown | (personal if dossier.full else {}),
        "left_out": {} if dossier.full else personal,
    }


def _check_bounds(members: dict[str, bytes]) -> None:
    size = sum(len(data) for data in members.values())
    if size > verify.MAX_BYTES * 0.9 or len(members) > verify.MAX_MEMBERS - 2:
        raise UsageError(
            f"this bundle would have {len(members):,} files and {size:,} bytes, more than can be "
            "checked in one piece: name an earlier --as-of, or leave personal data out"
        )


# --- builds an order's evidence bundle, for who may have it, and writes down who did and why ------


SEAL_TRIES: Final = 100
SEAL_PAUSE_S: Final = 0.1
"""How often, and how far apart, it is looked whether all is sealed: a batch takes less, and where
much waits another process may be at it for some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRequest:
    """What is asked for. `reason` says why personal data go in; without it they stay out.
    `attachments`: whether the files that people attached are in it, or their digests are."""

    order: str
    as_of: Instant | None = None
    reason: str | None = None
    by: str | None = None
    attachments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A bundle: its bytes, and what was put in. `due`: the order is still to be folded, so that
    what is published next is not in it. `cosigned_by_too_few`: its checkpoint is, of the
    witnesses that there are. `attachments`: how many, None if not asked for."""

    archive: bytes
    order: str
    as_of: Instant
    deliveries: int
    unsealed: int
    full: bool
    due: bool
    attachments: int | None = None
    cosigned_by_too_few: bool = False

    @property
    def sha256(self) -> str:
        """Of the whole file, hex."""
        return hashlib.sha256(self.archive).hexdigest()


async def build_evidence(
    context: AppContext,
    request: BundleRequest,
    *,
    providers: Providers,
    signer: seal.CheckpointSigner,
) -> Built:
    """The bundle. Personal data take the role that may unmask, and a reason.

    Raises UsageError for who may not and for an empty reason, NotFoundError for no such order.
    """
    full = request.reason is not None
    if full:
        checked_reason(request.reason or "", [])
    async with context.database.reading() as connection:  # before anything is read for them
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
        deliveries=len(dossier.deliveries),
        unsealed=len(dossier.sealed.unsealed),
        full=full,
        due=await _is_due(context, request.order),
        attachments=None if dossier.attached is None else len(dossier.attached),
        cosigned_by_too_few=_by_too_few(dossier, providers.witnesses),
    )
    await _write_down(context, request, built, reason=reason)
    return built


async def _sealed_dossier(
    context: AppContext,
    request: BundleRequest,
    *,
    providers: Providers,
    signer: seal.CheckpointSigner,
) -> Dossier:
    """With proofs of what came a moment ago, too; another sealer may be in the middle of it.

    Raises UsageError where something stays unsealed that nobody would take for new: whoever
    verified such a bundle would be advised not to rely on it.
    """
    for _ in range(SEAL_TRIES):
        await seal.seal_all(context, signer)
        dossier = await gather_dossier(
            context,
            request.order,
            as_of=request.as_of,
            full=request.reason is not None,
            providers=providers,
            attachments=request.attachments,
        )
        if not dossier.sealed.unsealed:
            break
        await asyncio.sleep(SEAL_PAUSE_S)
    late = set(dossier.sealed.unsealed) & _came_before(
        dossier, Instant(dossier.as_of - verify.SEALED_WITHIN_S * SECOND)
    )
    if late:
        raise UsageError(
            f"{counted(len(late), 'part')} of it should have been sealed and is not yet: try again "
            "in a minute; `tallyhook log verify` says whether something is wrong with the log"
        )
    return dossier


def _came_before(dossier: Dossier, instant: Instant) -> set[str]:
    history = dossier.history
    return {
        *(each.delivery_id for each in history.deliveries if each.received_at < instant),
        *(each.record_id for each in history.records if each.recorded_at < instant),
        *(f"revision:{each.seq}" for each in dossier.revisions if each.at < instant),
        *(f"deed:{each.record.audit_number}" for each in dossier.attached or ()
          if each.record.at < instant),
    }  # fmt: skip


def _by_too_few(dossier: Dossier, witnesses: Witnesses | None) -> bool:
    lines = signatures_of(dossier.sealed.checkpoint)
    names = {(each.name, each.key_id) for each in lines}
    return witnesses is not None and witnesses.quorum > sum(
        (each.key.name, each.key.id) in names for each in witnesses.each
    )


async def _is_due(context: AppContext, order: str) -> bool:
    now = context.clock.now()
    async with context.database.reading() as connection:
        marks = await marks_of(connection, [order])
    return any(mark.due_at is not None and mark.due_at <= now for mark in marks)


async def _write_down(
    context: AppContext, request: BundleRequest, built: Built, *, reason: str
) -> None:
    """Who built what and why, before anybody has it."""
    async with context.database.writing() as connection:
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
