"""Build the document of a log leaf, which seals one row.

A document holds salted digests and no readable text, so data can be deleted without changing the
log. It is sealed forever: once 0.1.0 is tagged, no member may be added to the documents of existing
rows.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from app.database import mapping
from app.database.statements import statement
from reconcile.canonical import canonical_json
from reconcile.instants import DAY, Instant, format_instant
from reconcile.ledger.events import CLAIM_KINDS
from reconcile.money import Money, to_json
from reconcile.transparency import commitments
from reconcile.transparency.evidence import value_document
from reconcile.transparency.merkle import Hash, leaf_hash

Members = dict[str, Any]

READING: Final = "reading"
"""Kind of leaf for a delivery that was read again."""


class Sealable(NamedTuple):
    """Present content of one row, as sealed."""

    kind: str
    subject: str
    """Identifier, unique among the rows of all kinds."""
    members: Members
    """Values that the leaf shows openly."""
    order: str | None = None
    said: Sequence[Any] | commitments.Parts | None = None
    """Parts of the row's content. For a delivery, the event as a row of EVENT_COLUMNS, or None."""

    def written(self) -> commitments.Written | None:
        """Return the canonical JSON of the row's parts.

        Raise TypeError or ValueError for an altered row without a canonical form.
        """
        said = self.said
        if said is None:
            return None
        return commitments.written_parts(said) if isinstance(said, Mapping) else _event_parts(said)


class LeafPlace(NamedTuple):
    """Position of a leaf among its order's leaves."""

    of: str
    """The order's commitment in hex."""
    nth: int
    """The position counted from 1."""
    after: int | None
    """Number of the order's previous leaf in the log, or None."""


class Leaf(NamedTuple):
    """One entry of the log: the document as canonical JSON (RFC 8785), and its hash."""

    number: int
    kind: str
    subject: str
    document: str
    hash: Hash

    def members(self) -> Members:
        """Parse the leaf's document. Raise ValueError without a JSON object."""
        found = json.loads(self.document)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        return found


LEAF_SELECT: Final = ", ".join(Leaf._fields)


def began_before(chain: Sequence[Leaf], instant: Instant) -> bool:
    """Check whether an order began before the instant's UTC day."""
    at = chain[0].members().get("at") if chain else None
    return at is None or at // DAY < instant // DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of rows that are sealed in the log."""

    name: str
    table: str
    columns: tuple[str, ...]
    """Columns of `table`. The first is the key."""
    numbered: bool
    """True if keys are 1, 2, 3 … in the order of commits. Otherwise writers must mark new rows."""
    sealable: Callable[[Sequence[Any]], Sealable]
    """Builds the sealed content from `columns` and `beside`."""
    beside: tuple[str, ...] = ()
    """Columns of another table, which `joined` adds."""
    joined: str = ""

    @property
    def selected(self) -> str:
        """Return the columns and tables for a query of rows of this kind."""
        columns = (*(f'{self.table}."{name}"' for name in self.columns), *self.beside)
        return statement(
            "{columns} FROM {table} {joined}",
            columns=", ".join(columns),
            table=self.table,
            joined=self.joined,
        )

    @property
    def key_column(self) -> str:
        """Return the name of the key column, with its table."""
        return f"{self.table}.{self.columns[0]}"

    def names(self, subject: str) -> bool:
        """Check whether a subject has the form of a subject of this kind."""
        return subject.startswith(f"{self.name}:") if self.numbered else ":" not in subject

    def subject(self, key: str | int) -> str:
        """Return a row's subject, such as `revision:7`."""
        return f"{self.name}:{key}" if self.numbered else str(key)

    def key(self, subject: str) -> str | int:
        return int(subject.partition(":")[2]) if self.numbered else subject


def leaf_of(
    row: Sealable,
    *,
    number: int,
    salt: bytes,
    place: LeafPlace | None = None,
    secret: bytes | None = None,
) -> Leaf:
    """Return the leaf that seals a row's present content. Without a secret, parts are not
    sealed."""
    members = {"kind": row.kind, "salt": salt.hex(), **row.members}
    if place is not None:
        members["of"], members["nth"], members["after"] = place
    if secret is not None and row.kind != ORDERS.name:
        written = row.written()
        members["parts"] = written and commitments.sealed_digest(written, secret=secret, salt=salt)
    content = canonical_json(members)
    subject = row.subject if row.kind != READING else f"{row.subject}:{number}"
    return Leaf(number, row.kind, subject, content.decode(), leaf_hash(content))


def digest_of_text(text: str | None) -> str | None:
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- the kinds of sealed rows ---------------------------------------------------------------------


def _delivery(row: Sequence[Any]) -> Sealable:
    delivery_id, received_at, source, digest, size, headers, pruned_at, envelope, *read = row
    # If a later release reads another claim, that is sealed as a `reading`.
    known = bool(read) and read[7] in CLAIM_KINDS
    return Sealable(
        "delivery",
        delivery_id,
        {
            "id": delivery_id,
            "at": received_at,
            "source": source,
            "body": digest,
            "size": size,
            "whole": envelope,
            "headers": None if pruned_at is not None else digest_of_text(headers),
        },
        order=read[0] if read else None,
        said=read if known else None,
    )


def _event_parts(row: Sequence[Any]) -> commitments.Written:
    values = (*row, *[_money(row[place - 1], row[place]) for place in _CURRENCIES])
    members = [
        f'"{name}":{write(value)}'
        for name, place, write in _SAID_MEMBERS
        if (value := values[place]) is not None
    ]
    written = {
        name: encode_basestring(value)
        for name, place in _PARTS
        if (value := row[place]) is not None
    }
    written[commitments.SAID] = f"{{{','.join(members)}}}"  # in its place, which `_PARTS` has kept
    return written


# Events of an order repeat its price.
@lru_cache(maxsize=mapping.AMOUNTS_REMEMBERED)
def _money(minor: int, currency: str | None) -> str | None:
    if currency is None:
        return None
    return canonical_json(to_json(Money(minor=minor, currency=currency))).decode()


_PLACES: Final = {
    name: place
    for place, name in enumerate((*mapping.EVENT_COLUMNS, "money", "order_money", "refunded_total"))
}

_CURRENCIES: Final = [_PLACES[f"{of}currency"] for of in ("", "order_", "refunded_")]

_TEXTS: Final = ("claim", "digest", "kind", "method", "shop", "source", "standing", "unclear")
_JSON: Final = ("money", "order_money", "parts", "refunded_total", "revocable_days", "states")
_INSTANTS: Final = ("expected_by", "occurred_at", "stated_at")
_WRITE: Final[Mapping[str, Callable[[Any], str]]] = {
    **dict.fromkeys(_TEXTS, encode_basestring),
    **dict.fromkeys(_JSON, str),
    **dict.fromkeys(_INSTANTS, lambda at: f'"{format_instant(at)}"'),
    "standalone": lambda flag: "true",
}
_SAID_MEMBERS: Final = [(name, _PLACES[name], _WRITE[name]) for name in sorted(_WRITE)]

_PARTS: Final = [
    (name, _PLACES[{"order": "order_ref", commitments.SAID: "digest"}.get(name, name)])
    for name in sorted({commitments.SAID, *commitments.TEXTS})
]


def reading_again(delivery: Sealable) -> Sealable:
    """Return a `reading` leaf's content: present event and order."""
    return Sealable(
        READING,
        f"{READING}:{delivery.subject}",
        {"delivery": delivery.subject},
        order=delivery.order,
        said=delivery.said,
    )


def delivery_sealed_by(subject: str) -> str:
    """Return the delivery's id from a leaf's subject."""
    return subject.split(":")[1] if ":" in subject else subject


def _record(row: Sequence[Any]) -> Sealable:
    columns = dict(zip(mapping.RECORD_COLUMNS, row, strict=True))
    said = None
    with suppress(TypeError, ValueError):  # a kind of a later release, or an altered row
        document = value_document(mapping.record_of(row))
        if columns["details"] is not None:
            document["details"] = digest_of_text(columns["details"])
        document |= {name: columns[name] for name in ("free", "dated") if columns[name] not in _SET}
        said = commitments.cut_into_parts(document, commitments.RECORD_TEXTS)
    members = {"id": columns["id"], "at": columns["recorded_at"]}
    return Sealable("record", columns["id"], members, order=columns["order_key"], said=said)


def _revision(row: Sequence[Any]) -> Sealable:
    seq, order, at, outcome, fulfillable, substance, before, before_fulfillable, because = row
    document = {
        "seq": seq,
        "at": format_instant(at),
        "outcome": outcome,
        "fulfillable": _FLAGS.get(fulfillable, fulfillable),
        "substance": substance,
        "before": before,
        "before_fulfillable": _FLAGS.get(before_fulfillable, before_fulfillable),
        "because": _parsed(because),
    }
    members = {"id": seq, "at": at}
    said = commitments.cut_into_parts(document, commitments.REVISION_TEXTS)
    return Sealable("revision", f"revision:{seq}", members, order=order, said=said)


_SET: Final = (None, 1)
_FLAGS: Final = {0: False, 1: True}


def _audit_entry(row: Sequence[Any]) -> Sealable:
    *entry, order = row
    document = dict(zip(AUDIT_COLUMNS, entry, strict=True))
    members = {"id": document["number"], "at": document["at"]}
    document |= {"at": format_instant(document["at"]), "facts": _parsed(document["facts"])}
    said = commitments.cut_into_parts(document, commitments.AUDIT_TEXTS)
    return Sealable("deed", f"deed:{document['number']}", members, order=order, said=said)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _orders(row: Sequence[Any]) -> Sealable:
    number, at, size, root = row
    members = {"id": number, "at": at, "size": size, "root": bytes(root).hex()}
    return Sealable("orders", f"orders:{number}", members)


_DELIVERY_COLUMNS: Final = (
    "id", "received_at", "source", "digest", "size", "headers", "pruned_at", "envelope",
)  # fmt: skip

AUDIT_COLUMNS: Final = ("number", "at", "who", "role", "action", "subject", "reason", "facts")
"""Columns with the content of an audit entry."""

DELIVERY: Final = Kind(
    name="delivery",
    table="deliveries",
    columns=_DELIVERY_COLUMNS,
    numbered=False,
    sealable=_delivery,
    beside=tuple(f"events.{name}" for name in mapping.EVENT_COLUMNS),
    joined="LEFT JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest",
)
RECORD: Final = Kind(
    name="record",
    table="records",
    columns=mapping.RECORD_COLUMNS,
    numbered=False,
    sealable=_record,
)
REVISION: Final = Kind(
    name="revision",
    table="revisions",
    columns=mapping.REVISION_COLUMNS,
    numbered=True,
    sealable=_revision,
)
AUDIT_ENTRY: Final = Kind(
    name="deed",
    table="audit",
    columns=(*AUDIT_COLUMNS, "order_key"),
    numbered=True,
    sealable=_audit_entry,
)

ORDERS: Final = Kind(
    name="orders",
    table="order_trees",
    columns=("number", "at", "size", "root"),
    numbered=True,
    sealable=_orders,
)

KINDS: Final[tuple[Kind, ...]] = (DELIVERY, RECORD, REVISION, AUDIT_ENTRY, ORDERS)

KIND_OF: Final = {kind.name: kind for kind in KINDS}
