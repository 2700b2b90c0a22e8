"""What is sealed of each kind of row: the document of a leaf.

A document has the kind, a salt, and what the row says. Texts that may be deleted later stand in it
as their SHA-256, so that their deletion leaves the log whole. Numbers are whole and below 2**53;
money is text, times are microseconds since 1970.

A leaf names its order by a commitment (`of`). It says which of the order's leaves it is (`nth`) and
the number of the one before it (`after`), so none can be left out between two that are shown. A
delivery's leaf has the digest of what was read of its body (`reading`); where that is read or
joined to an order later on, a leaf of the kind `reading` says so.

A document is sealed for ever. Once 0.1.0 is tagged, a member may be added only where earlier rows
say nothing of it: it is left out there, or gets a new kind.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from app.database.mapping import EVENT_COLUMNS, RECORD_COLUMNS, REVISION_COLUMNS, delivery_of
from app.database.statements import statement
from reconcile.canonical import canonical_json
from reconcile.ledger.events import Event
from reconcile.transparency.merkle import Hash, leaf_hash
from reconcile.transparency.readings import sealed_reading

Members = dict[str, Any]
"""A JSON object of text, whole numbers and null."""

READING: Final = "reading"
"""The kind of a leaf that says how a delivery is read later on; it has no row of its own."""

READ: Final = frozenset(("delivery", READING))
"""Kinds of leaves that seal what was read."""


class Sealable(NamedTuple):
    """What one row says now. `subject` names it among all kinds.

    order  the order that its leaf names; None where it belongs to none
    event  what was read of a delivery; None where it could not be read
    """

    kind: str
    subject: str
    members: Members
    order: str | None = None
    event: Event | None = None


class LeafPlace(NamedTuple):
    """Where a leaf stands among its order's: the commitment to the order, in hex, which of the
    order's leaves it is, and the number of the one before it."""

    of: str
    nth: int
    after: int | None


class Leaf(NamedTuple):
    """One entry of the log: the document as canonical JSON (RFC 8785), and its hash."""

    number: int
    kind: str
    subject: str
    document: str
    hash: Hash

    def members(self) -> Members:
        """Return the document as values. Raise ValueError where it is none."""
        found = json.loads(self.document)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        return found


LEAF_SELECT: Final = ", ".join(Leaf._fields)
"""Columns of `log_leaves` that make a Leaf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of rows that are sealed.

    numbered  whether the key is 1, 2, 3 … in commit order; else ids, which writers must mark
    sealable  makes what is sealed of a row of `columns`, whose first is the key, and of `beside`
    beside    columns of another table, which `joined` joins
    """

    name: str
    table: str
    columns: tuple[str, ...]
    numbered: bool
    sealable: Callable[[Sequence[Any]], Sealable]
    beside: tuple[str, ...] = ()
    joined: str = ""

    @property
    def selected(self) -> str:
        """Return the columns and tables of a query of its rows."""
        columns = (*(f'{self.table}."{name}"' for name in self.columns), *self.beside)
        return statement(
            "{columns} FROM {table} {joined}",
            columns=", ".join(columns),
            table=self.table,
            joined=self.joined,
        )

    @property
    def key_column(self) -> str:
        """Return the key column, with its table."""
        return f"{self.table}.{self.columns[0]}"

    def subject(self, key: str | int) -> str:
        """Name a row of this kind: its id, or `revision:7`."""
        return f"{self.name}:{key}" if self.numbered else str(key)

    def key(self, subject: str) -> str | int:
        """Return the key of the row that a subject names."""
        return int(subject.partition(":")[2]) if self.numbered else subject


def leaf_of(
    row: Sealable,
    *,
    number: int,
    salt: bytes,
    place: LeafPlace | None = None,
    secret: bytes | None = None,
) -> Leaf:
    """Return the leaf that seals a row as it is now.

    place   among its order's leaves; None where the row belongs to no order
    secret  what the salts of a reading are drawn from; without it no reading is sealed
    """
    members = {"kind": row.kind, "salt": salt.hex(), **row.members}
    if place is not None:
        members |= place._asdict()
    if secret is not None and row.kind in READ:
        event = row.event
        members["reading"] = event and sealed_reading(event, secret=secret, salt=salt)
    content = canonical_json(members)
    subject = row.subject if row.kind != READING else f"{row.subject}:{number}"
    return Leaf(number, row.kind, subject, content.decode(), leaf_hash(content))


def digest_of_text(text: str | None) -> str | None:
    """Return the SHA-256 in hex of a text in UTF-8; None of None."""
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- the kinds -----------------------------------------------------------------------------------


def _delivery(row: Sequence[Any]) -> Sealable:
    """Seal `event` and `verdict` as they were read: an index, which `reindex` may correct."""
    # fmt: off
    (delivery_id, received_at, source, verdict, event_id, digest, size, headers, pruned_at,
     envelope, *read) = row
    # fmt: on
    order, event = _read(read)
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
        order=order,
        event=event,
    )


def _read(row: Sequence[Any]) -> tuple[str | None, Event | None]:
    """Return order and event of a row of EVENT_COLUMNS, which is empty where nothing was read."""
    if not row or row[2] is None:
        return None, None
    try:
        return row[0], delivery_of(row).event
    except ValueError:  # a claim of a later release: a reading of ours seals it when it is known
        return row[0], None


def reading_again(delivery: Sealable) -> Sealable:
    """Return what seals that a delivery is read otherwise, or belongs to another order, than its
    own leaf says. The number of its leaf completes the subject."""
    return Sealable(
        READING,
        f"{READING}:{delivery.subject}",
        {"delivery": delivery.subject},
        order=delivery.order,
        event=delivery.event,
    )


def delivery_read_again(subject: str) -> str:
    """Return the delivery that the subject of such a leaf names."""
    return subject.split(":")[1]


def _record(row: Sequence[Any]) -> Sealable:
    # fmt: off
    (record_id, recorded_at, kind, order, at, amount, currency, source, key, session,
     expires_at, reason, details, payment, author, replaces, tenders, free, dated) = row
    # fmt: on
    # In the document only where there is one.
    added = {"payment": payment, "author": author, "replaces": replaces, "tenders": tenders}
    added |= {name: True for name, said in (("free", free), ("dated", dated)) if said}
    return Sealable(
        "record",
        record_id,
        {
            "id": record_id,
            "recorded_at": recorded_at,
            "record": kind,
            "at": at,
            "amount": None if amount is None else str(amount),
            "currency": currency,
            "source": source,
            "key": key,
            "session": session,
            "expires_at": expires_at,
            "reason": reason,
            "details": digest_of_text(details),
            **{name: value for name, value in added.items() if value is not None},
        },
        order=order,
    )


def _revision(row: Sequence[Any]) -> Sealable:
    seq, order, at, outcome, fulfillable, substance, before, before_fulfillable, because = row
    members = {
        "id": seq,
        "at": at,
        "outcome": outcome,
        "fulfillable": fulfillable,
        "substance": substance,
        "before": before,
        "before_fulfillable": before_fulfillable,
        "because": digest_of_text(because),
    }
    return Sealable("revision", f"revision:{seq}", members, order=order)


def _audit_entry(row: Sequence[Any]) -> Sealable:
    number, *rest, reason, facts = row
    members = {"id": number, **dict(zip(_AUDIT_COLUMNS[1:-2], rest, strict=True))}
    members |= {"facts": digest_of_text(facts), "reason": digest_of_text(reason)}
    return Sealable("deed", f"deed:{number}", members)


def _orders(row: Sequence[Any]) -> Sealable:
    number, at, size, orders, root = row
    members = {"id": number, "at": at, "size": size, "orders": orders, "root": bytes(root).hex()}
    return Sealable("orders", f"orders:{number}", members)


_DELIVERY_COLUMNS: Final = (
    "id", "received_at", "source", "verdict", "event_id", "digest", "size", "headers", "pruned_at",
    "envelope",
)  # fmt: skip

_AUDIT_COLUMNS: Final = ("number", "at", "who", "role", "action", "subject", "reason", "facts")

DELIVERY: Final = Kind(
    name="delivery",
    table="deliveries",
    columns=_DELIVERY_COLUMNS,
    numbered=False,
    sealable=_delivery,
    beside=tuple(f"events.{name}" for name in EVENT_COLUMNS),
    joined="LEFT JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest",
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
    columns=REVISION_COLUMNS,
    numbered=True,
    sealable=_revision,
)
AUDIT_ENTRY: Final = Kind(
    name="deed",
    table="audit",
    columns=_AUDIT_COLUMNS,
    numbered=True,
    sealable=_audit_entry,
)

ORDERS: Final = Kind(
    name="orders",
    table="order_trees",
    columns=("number", "at", "size", "orders", "root"),
    numbered=True,
    sealable=_orders,
)

KINDS: Final[tuple[Kind, ...]] = (DELIVERY, RECORD, REVISION, AUDIT_ENTRY, ORDERS)
"""Everything that is sealed."""

KIND_OF: Final = {kind.name: kind for kind in KINDS}
