"""Build an evidence bundle: a ZIP with an order's evidence, a manifest and a signature."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import UNSHOWN, Masking
from app.core.text import counted
from app.database.engine import Connection
from app.database.statements import run
from app.evidence import (
    bundle_letter,
    gather_evidence,
    keys,
    letter_times,
    rendering,
    seal,
    verify,
)
from app.evidence.attachments import ENDINGS
from app.evidence.witnesses import witnesses_of
from app.orders.customers import checked_reason
from app.orders.holds import hold_if_due
from app.receiving.caught_up import must_have_read
from app.receiving.due_store import marks_of
from app.receiving.kept_request import refuse_too_many
from app.receiving.restrictions import Restriction, restricted_orders
from reconcile import instants
from reconcile.canonical import canonical_json
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.unheard import unheard_document
from reconcile.transparency.commitments import SAID, document_of_parts
from reconcile.transparency.cosignatures import signatures_of
from reconcile.transparency.evidence import history_document, value_document

SESSION_KINDS: Final = ("session_requested", "session_opened", "session_refused", "session_unknown")


@dataclass(slots=True)
class Files:
    """Files of an evidence bundle by name. The files in `personal` are only in a full bundle."""

    shown: dict[str, bytes] = field(default_factory=dict)
    personal: dict[str, bytes] = field(default_factory=dict, repr=False)


def files_of(dossier: gather_evidence.Dossier, *, key: str) -> Files:
    """Return a bundle's files except key, manifest and signature."""
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
        "revisions.json": _json([_said(dossier, f"revision:{e.seq}") for e in dossier.revisions]),
        "books.json": _json([dossier.masking.value(each) for each in dossier.lines]),
        "sources.json": _json(_sources(dossier)),
        "heard.json": _json(unheard_document(dossier.unheard)),
        "log.json": _json(_log(dossier)),
    }
    if facts.zone is not None:
        files.shown[letter_times.TIMES] = _json(facts.zone.document())
    for record, details in dossier.details.items():
        files.personal[f"record-{record}.details"] = details.encode()
    listed = [_attachment(files, each, dossier) for each in dossier.attached]
    files.shown["attachments.json"] = _json(listed)
    for number, profile in enumerate(dossier.profiles, 1):
        files.shown[f"profile-{number}.toml"] = profile.text
    if dossier.sealed.checkpoint:
        files.shown["checkpoint.txt"] = dossier.sealed.checkpoint.encode()
    return files


def _letter_facts(dossier: gather_evidence.Dossier, key: str) -> bundle_letter.LetterFacts:
    return bundle_letter.LetterFacts(
        history=dossier.history,
        revisions=tuple(
            bundle_letter.PublishedOutcome(
                at=each.at, outcome=each.outcome, fulfillable=each.fulfillable
            )
            for each in dossier.revisions
        ),
        arrivals=tuple(
            bundle_letter.LetterArrival(
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
        zone=letter_times.letter_zone(dossier.zone),
        unheard=dossier.unheard,
    )


_json: Final = canonical_json


def entry(data: bytes) -> dict[str, Any]:
    """Return the manifest's entry for a file: its digest and its size."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


HARMLESS: Final = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "cache-control", "connection"),
        *("content-encoding", "content-length", "content-type", "date", "expect", "host"),
        *("transfer-encoding", "user-agent", "webhook-id", "webhook-signature"),
        "webhook-timestamp",
    }
)


# --- deliveries ----------------------------------------------------------------------------------


def _add_delivery(
    files: Files, evidence: gather_evidence.DeliveryEvidence, dossier: gather_evidence.Dossier
) -> None:
    name = f"delivery-{evidence.arrived.delivery_id}"
    kept = evidence.arrived.headers.encode() if evidence.arrived.headers else None
    proven = evidence.proven
    document = {
        "delivery": evidence.arrived.delivery_id,
        "received_at": instants.format_instant(evidence.arrived.received_at),
        "source": evidence.arrived.source,
        "verdict": evidence.arrived.verdict,
        "problem": evidence.arrived.problem,
        "method": evidence.method,
        "address": evidence.url if dossier.full else _redacted(evidence.url, dossier.masking),
        "sha256": evidence.arrived.digest,
        "size": evidence.arrived.size,
        "body": _part(files, f"{name}.body", evidence.body),
        "whole": _part(files, f"{name}.whole", evidence.arrived.whole),
        "headers": _part(files, f"{name}.headers", kept),
        "signed": _part(files, f"{name}.signed", proven.content),
        "headers_shown": [
            # A full one has them beside, as they came.
            [each, dossier.masking.value({each: value})[each]]
            if dossier.full
            else [each, value if each.lower() in HARMLESS else UNSHOWN]
            for each, value in evidence.headers
        ],
        "signature": {
            "scheme": proven.scheme,
            "where": proven.where,
            "over": proven.signed,
            "key": proven.key,
            "signed_at": instants.format_known(proven.signed_at),
            "age_at_arrival": None
            if proven.signed_at is None
            else instants.format_duration(evidence.arrived.received_at - proven.signed_at),
            "sentence": proven.sentence,
        },
        "let_go_at": instants.format_known(evidence.arrived.pruned_at),
    }
    files.shown[f"{name}.json"] = _json(document)
    if proven.public is not None:
        files.shown[f"key-{proven.key}.pem"] = proven.public


def _redacted(address: str, masking: Masking) -> str:
    path, mark, query = address.partition("?")
    pairs = (pair.partition("=") for pair in query.split("&"))
    shown = "&".join(f"{name}{sign}{UNSHOWN if value else ''}" for name, sign, value in pairs)
    return f"{masking.text(path)}{mark}{shown}"


def _part(files: Files, name: str, data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    files.personal[name] = data
    return {"file": name, **entry(data)}


# --- what else is known --------------------------------------------------------------------------


def _sessions(dossier: gather_evidence.Dossier) -> list[dict[str, Any]]:
    stored = dossier.history.as_stored().records
    records = (each for each in stored if each.kind in SESSION_KINDS)
    found = []
    for record in sorted(records, key=lambda each: (each.recorded_at, each.record_id)):
        details = dossier.details.get(record.record_id)
        if details is not None and not dossier.full:  # members with personal names are removed, too
            try:
                parsed = json.loads(details)
                if (shown := dossier.masking.value(parsed)) != parsed:
                    details = json.dumps(shown, ensure_ascii=False)
            except (ValueError, RecursionError):
                details = dossier.masking.text(details)
        found.append({**value_document(record), "details": details})
    return found


def _said(dossier: gather_evidence.Dossier, name: str) -> dict[str, Any]:
    return document_of_parts(dossier.sealed.said[name])


def _attachment(
    files: Files, attached: gather_evidence.AttachedFile, dossier: gather_evidence.Dossier
) -> dict[str, Any]:
    name, removed = f"attachment-{attached.attachment_id}", attached.removed
    return {
        "attached": _said(dossier, attached.attached),
        "removed": None if removed is None else _said(dossier, removed),
        "content": _part(files, f"{name}.{ENDINGS.get(attached.media)}", attached.content),
        "details": _part(files, f"{name}.details", attached.details),
    }


def _sources(dossier: gather_evidence.Dossier) -> list[Mapping[str, Any]]:
    return [
        {
            "source": each.source,
            "profile": each.profile,
            "file": f"profile-{number}.toml",
            "orders": each.orders,
            "link_by": each.link_by,
            "captures": each.captures,
            "vouchers": each.vouchers,
        }
        for number, each in enumerate(dossier.profiles, 1)
    ]


def _log(dossier: gather_evidence.Dossier) -> dict[str, Any]:
    leaves: Iterable[Any] = (
        {
            "id": each.subject,
            "index": each.number,
            "leaf": each.text,
            "proof": [step.hex() for step in each.path],
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
        "parts": {
            leaf: {
                name: {"hash": part.hash} if part.salt is None else {"salt": part.salt}
                for name, part in parts.items()
            }
            for leaf, parts in sealed.parts.items()
        },
    }  # fmt: skip


KEY: Final = "evidence-key.pub"

ABOUT: Final = "signature over the manifest of an evidence bundle"
"""First, unsigned line of the signature file."""

KEY_PEM: Final = "evidence-key.pem"


def bundle_of(dossier: gather_evidence.Dossier, key: keys.EvidenceKey) -> bytes:
    """Return the bundle's bytes. Raise UsageError for a too large bundle."""
    files = files_of(dossier, key=keys.key_name(key.public))
    files.shown[KEY] = keys.public_key_text(key.public).encode()
    files.shown[KEY_PEM] = key.public.pem().encode()
    manifest = canonical_json(manifest_of(dossier, files))
    members = files.shown | (files.personal if dossier.full else {})
    size = sum(len(data) for data in members.values())
    if size > verify.MAX_BYTES * 0.9 or len(members) > verify.MAX_MEMBERS - 2:
        raise UsageError(
            f"this bundle would be too large to verify ({len(members):,} files, {size:,} bytes): "
            "give an earlier --as-of, or build the bundle without personal data"
        )
    comment = f"evidence of an order as of {instants.format_instant(dossier.as_of)}"
    signature = keys.minisign_signature(key, manifest, comment=comment, about=ABOUT)
    return verify.pack({**members, verify.MANIFEST: manifest, verify.SIGNATURE: signature.encode()})


def manifest_of(dossier: gather_evidence.Dossier, files: Files) -> dict[str, Any]:
    """Return the manifest with the digest of every file."""
    shown = {name: entry(data) for name, data in files.shown.items()}
    personal = {name: entry(data) for name, data in files.personal.items()}
    return {
        "format": verify.FORMAT,
        "release": rendering.release(),
        "program": rendering.program(),
        "order": dossier.history.order,
        "as_of": instants.format_instant(dossier.as_of),
        "redacted": not dossier.full,
        "files": shown | (personal if dossier.full else {}),
        "left_out": {} if dossier.full else personal,
    }


# --- builds an order's evidence bundle, for who may have it, and writes down who did and why ------


SEAL_TRIES: Final = 100
SEAL_PAUSE_S: Final = 0.1
"""Pause in seconds before another attempt to seal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRequest:
    """Request for an evidence bundle."""

    order: str
    as_of: instants.Instant | None = None
    reason: str | None = None
    by: str | None = None
    attachments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Finished evidence bundle."""

    archive: bytes
    order: str
    as_of: instants.Instant
    deliveries: int
    unsealed: int
    full: bool
    """True if the bundle has personal data."""
    due: bool
    """True if a newer revision can be missing."""
    attachments: int | None = None
    cosigned_by_too_few: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.archive).hexdigest()


async def build_evidence(
    context: AppContext,
    request: BundleRequest,
    *,
    lines: gather_evidence.ReadsLines,
) -> Built:
    """Build an order's evidence bundle. Personal data needs a reason and permission.

    Raise UsageError if permission or a reason is missing, and NotFoundError for an unknown order.
    """
    full = request.reason is not None
    if full:
        checked_reason(context, request.reason or "")
    async with context.database.reading() as connection:  # checked before anything is read
        await permitted(connection, by=request.by, action="evidence_built")
        if full:
            await permitted(connection, by=request.by, action="unmasked")
            for each in (await run(connection, restricted_orders, [request.order])).values():
                await _permitted_of(connection, each, by=request.by)
    await must_have_read(context, as_of=request.as_of)
    await hold_if_due(context, [request.order])  # what the bundle reads must have been recorded
    signer = await seal.open_signer(context)
    dossier = await _sealed_dossier(context, request, lines=lines, signer=signer)
    reason = ""
    if request.reason:
        reason = checked_reason(context, request.reason, phones=dossier.phones)
    now, witnesses = context.clock.now(), witnesses_of(context.settings)
    async with context.database.reading() as connection:
        marks = await marks_of(connection, [request.order])
    cosigned = {(each.name, each.key_id) for each in signatures_of(dossier.sealed.checkpoint)}
    built = Built(
        archive=bundle_of(dossier, signer.key),
        order=request.order,
        as_of=dossier.as_of,
        deliveries=len(dossier.history.deliveries),
        unsealed=len(dossier.sealed.unsealed),
        full=full,
        due=any(mark.due_at is not None and mark.due_at <= now for mark in marks),
        attachments=sum(each.content is not None for each in dossier.attached)
        if request.attachments
        else None,
        cosigned_by_too_few=witnesses is not None
        and witnesses.quorum
        > sum((each.key.name, each.key.id) in cosigned for each in witnesses.each),
    )
    await _write_down(context, request, built, reason=reason)
    return built


async def _permitted_of(
    connection: Connection, restriction: Restriction, *, by: str | None
) -> None:
    try:
        await permitted(connection, by=by, action="erased")
    except UsageError as error:
        raise UsageError(
            f"{restriction.sentence} Only operators who may erase data can build a full bundle of "
            f"the order ({error}). Build a redacted bundle, which needs no reason"
        ) from None


async def _sealed_dossier(
    context: AppContext,
    request: BundleRequest,
    *,
    lines: gather_evidence.ReadsLines,
    signer: seal.CheckpointSigner,
) -> gather_evidence.Dossier:
    for _ in range(SEAL_TRIES):
        await seal.seal_all(context, signer)
        if await seal.seal_orders_for(context, request.order):
            await seal.seal_all(context, signer)
        dossier = await gather_evidence.gather_dossier(
            context,
            request.order,
            as_of=request.as_of,
            full=request.reason is not None,
            lines=lines,
            attachments=request.attachments,
        )
        if not dossier.sealed.unsealed:
            break
        await asyncio.sleep(SEAL_PAUSE_S)
    history, sealed = dossier.history, dossier.sealed
    sealed_by = dossier.as_of - verify.SEALED_WITHIN_S * instants.SECOND
    came = {
        **{each.delivery_id: each.received_at for each in history.deliveries},
        **{each.record_id: each.recorded_at for each in history.records},
        **{name: instants.parse_instant(parts[SAID]["at"]) for name, parts in sealed.said.items()
           if ":" in name},
    }  # fmt: skip
    late = [name for name in dossier.sealed.unsealed if came[name] < sealed_by]
    if late:
        raise UsageError(
            f"the log has not sealed {counted(len(late), 'part')} of the evidence in time: try "
            "again in a minute; if this repeats, run `tallyhook log verify`"
        )
    return dossier


async def _write_down(
    context: AppContext, request: BundleRequest, built: Built, *, reason: str
) -> None:
    async with context.database.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=request.by, action="evidence_built")
        facts = {
            "sha256": built.sha256,
            "as_of": instants.format_instant(built.as_of),
            "kind": "full" if built.full else "redacted",
        }
        said: dict[str, Any] = {"subject": request.order, "at": now, "reason": reason}
        await note_in_trail(connection, who, action="evidence_built", **said, facts=facts)
        if built.full:
            who = await permitted(connection, by=request.by, action="unmasked")
            await refuse_too_many(context, connection, who, more=1)
            await note_in_trail(connection, who, action="unmasked", **said)
