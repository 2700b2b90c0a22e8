"""The files of a bundle, from a dossier. The same dossier gives the same bytes.

A redacted bundle and a full one of the same order and instant share every file but those that hold
what is personal; the redacted one states the digests of those, so that the two can be matched. A
number of a customer that stands in a shared file, as in a reference, is masked in the redacted one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.evidence.dossier import Dossier, Proven, Told
from app.evidence.letter import letter
from app.evidence.words import README
from app.orders.published_store import Published
from reconcile.instants import Instant, format_duration, format_instant
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.records import Record
from reconcile.transparency.evidence import history_document, value_document

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


def _add_delivery(files: Files, told: Told, dossier: Dossier) -> None:
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
        "let_go_at": _instant(told.arrived.pruned_at),
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
        "signed_at": _instant(proven.signed_at),
        "age_at_arrival": None if age is None else format_duration(age),
        "sentence": proven.sentence,
    }


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


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
