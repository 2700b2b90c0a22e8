"""What is sealed of each kind of row: the document of a leaf.

A document has the kind, a salt, and what the row says. Texts that may be deleted later stand in it
as their SHA-256, so that nothing in the log has to go with them. Numbers are whole and below 2**53;
money is text, times are microseconds since 1970.

A document is for ever: a member may be added only where rows of before say nothing of it, and then
it is left out, or under the name of a new kind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from app.database.mapping import RECORD_COLUMNS
from reconcile.canonical import canonical_json
from reconcile.transparency.merkle import Hash, leaf_hash

Members = dict[str, Any]
"""JSON: text, whole numbers, null."""


class Sealable(NamedTuple):
    """What one row says now. `subject` names it among all kinds."""

    kind: str
    subject: str
    members: Members


class Leaf(NamedTuple):
    """One entry of the log: the document as canonical JSON (RFC 8785), and its hash."""

    number: int
    kind: str
    subject: str
    document: str
    hash: Hash

    def members(self) -> Members:
        """The document as values. Raises ValueError where it is none."""
        found = json.loads(self.document)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of rows that are sealed.

    numbered  whether the key is 1, 2, 3 … in commit order; else ids, which writers must mark
    sealable  what is sealed of a row of `columns`, of which the first is the key
    """

    name: str
    table: str
    columns: tuple[str, ...]
    numbered: bool
    sealable: Callable[[Sequence[Any]], Sealable]

    def subject(self, key: str | int) -> str:
        """How a row of this kind is named: its id, or `revision:7`."""
        return f"{self.name}:{key}" if self.numbered else str(key)

    def key(self, subject: str) -> str | int:
        """The key of the row that a subject names."""
        return int(subject.partition(":")[2]) if self.numbered else subject


def leaf_bytes(members: Members) -> bytes:
    """What a leaf's hash is taken of: the document as canonical JSON."""
    return canonical_json(members)


def leaf_of(row: Sealable, *, number: int, salt: bytes) -> Leaf:
    """The leaf that seals a row as it is now."""
    content = leaf_bytes({"kind": row.kind, "salt": salt.hex(), **row.members})
    return Leaf(number, row.kind, row.subject, content.decode(), leaf_hash(content))


def digest_of_text(text: str | None) -> str | None:
    """SHA-256 in hex of a text in UTF-8; None of none."""
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- the kinds -----------------------------------------------------------------------------------


def _delivery(row: Sequence[Any]) -> Sealable:
    """`event` and `verdict` as reading gave them: an index, which `reindex` may correct."""
    # fmt: off
    (delivery_id, received_at, source, verdict, event_id, digest, size, headers, pruned_at,
     envelope) = row
    # fmt: on
    return Sealable(
        "delivery",
        delivery_id,
        {
            "id": delivery_id,
            "received_at": received_at,
            "source": source,
            "body": digest,
            "size": size,
            "whole": envelope,
            "event": event_id,
            "headers": None if pruned_at is not None else digest_of_text(headers),
            "verdict": verdict,
        },
    )


def _record(row: Sequence[Any]) -> Sealable:
    # fmt: off
    (record_id, recorded_at, kind, order, at, amount, currency, source, key, session,
     expires_at, reason, details, payment, author) = row
    # fmt: on
    # Records of before there were these have none: their documents stay what they were.
    added = {"payment": payment, "author": author}
    return Sealable(
        "record",
        record_id,
        {
            "id": record_id,
            "recorded_at": recorded_at,
            "record": kind,
            "order": order,
            "at": at,
            "amount": None if amount is None else str(amount),
            "currency": currency,
            "source": source,
            "key": key,
            "session": session,
            "expires_at": expires_at,
            "reason": reason,
            "details": digest_of_text(details),
            **{name: said for name, said in added.items() if said is not None},
        },
    )


def _revision(row: Sequence[Any]) -> Sealable:
    seq, order, at, outcome, fulfillable, substance, before, before_fulfillable, because = row
    return Sealable(
        "revision",
        f"revision:{seq}",
        {
            "id": seq,
            "order": order,
            "at": at,
            "outcome": outcome,
            "fulfillable": fulfillable,
            "substance": substance,
            "before": before,
            "before_fulfillable": before_fulfillable,
            "because": digest_of_text(because),
        },
    )


def _deed(row: Sequence[Any]) -> Sealable:
    number, at, who, role, action, subject, reason, facts = row
    return Sealable(
        "deed",
        f"deed:{number}",
        {
            "id": number,
            "at": at,
            "who": who,
            "role": role,
            "action": action,
            "subject": subject,
            "facts": digest_of_text(facts),
            "reason": digest_of_text(reason),
        },
    )


_DELIVERY_COLUMNS: Final = (
    "id", "received_at", "source", "verdict", "event_id", "digest", "size", "headers", "pruned_at",
    "envelope",
)  # fmt: skip
_REVISION_COLUMNS: Final = (
    "seq", "order_key", "at", "outcome", "fulfillable", "substance", "before_outcome",
    "before_fulfillable", "because",
)  # fmt: skip

DELIVERY: Final = Kind(
    name="delivery",
    table="deliveries",
    columns=_DELIVERY_COLUMNS,
    numbered=False,
    sealable=_delivery,
)
RECORD: Final = Kind(
    name="record",
    table="records",
    columns=RECORD_COLUMNS,
    numbered=False,
    sealable=_record,
)
REVISION: Final = Kind(
    name="revision",
    table="revisions",
    columns=_REVISION_COLUMNS,
    numbered=True,
    sealable=_revision,
)
DEED: Final = Kind(
    name="deed",
    table="audit",
    columns=("number", "at", "who", "role", "action", "subject", "reason", "facts"),
    numbered=True,
    sealable=_deed,
)

KINDS: Final[tuple[Kind, ...]] = (DELIVERY, RECORD, REVISION, DEED)
"""Everything that is sealed."""

KIND_OF: Final = {kind.name: kind for kind in KINDS}
