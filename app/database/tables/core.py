"""What every table shares, one metadata, names of constraints and the kinds of columns; and the
tables of what was heard: deliveries, events, records, and what is folded from them.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    text,
)
from sqlmodel import Field, SQLModel

from app.database import marks

# --- what every table shares ----------------------------------------------------------------------

CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=CONVENTION)
STRICT: dict[str, Any] = {"sqlite_strict": True}
CLUSTERED: dict[str, Any] = {"sqlite_strict": True, "sqlite_with_rowid": False}


class Table(SQLModel):
    """Shared base: all tables live in this module's own metadata."""

    metadata = metadata


TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def text_column(
    mark: marks.Mark, *, primary: bool = False, null: bool = False, default: str | None = None
) -> Any:
    """Text, compared and sorted by its bytes as on SQLite, whatever the server's locale.

    default  what the database writes where a row does not say it, as SQL
    """
    kept = None if default is None else text(default)
    return Field(
        sa_column=Column(
            TEXT,
            primary_key=primary,
            nullable=null,
            server_default=kept,
            info={marks.MARK: mark},
        )
    )


def big_column(*, null: bool = False, primary: bool = False) -> Any:
    """A 64-bit integer: minor units of money, microseconds of time, counts."""
    kind = BigInteger().with_variant(Integer, "sqlite")
    return Field(sa_column=Column(kind, nullable=null, primary_key=primary, autoincrement=False))


def blob_column(mark: marks.Mark, *, primary: bool = False, null: bool = True) -> Any:
    """Bytes, which may be missing."""
    null = null and not primary
    return Field(
        sa_column=Column(LargeBinary, primary_key=primary, nullable=null, info={marks.MARK: mark})
    )


# --- the tables of what was heard -----------------------------------------------------------------


class MetaRow(Table, table=True):
    """One fact about the database itself, such as the environment that it serves."""

    __tablename__ = "meta"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.FACTS, primary=True)
    value: str = text_column(marks.FACTS)


class CounterRow(Table, table=True):
    """A number that changes in the transaction that uses it: the last of a series without gaps, or
    how many orders have an outcome or a finding."""

    __tablename__ = "counters"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.not_personal("names of ours"), primary=True)
    value: int = big_column()


def _numbered() -> Any:
    return Field(
        default=None,
        sa_column=Column(
            BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
    )


# A number that came again could be taken for the row that a reader has in its hands.
NUMBERED: Final[dict[str, Any]] = {**STRICT, "sqlite_autoincrement": True}


class InboxRow(Table, table=True):
    """Requests that were accepted in one commit and are not read yet, deliveries and refused ones,
    framed one behind the other: `count` records in `size` bytes, the oldest from `received_at`."""

    __tablename__ = "inbox"
    __table_args__ = NUMBERED
    seq: int | None = _numbered()
    count: int = big_column()
    received_at: int = big_column()
    size: int = big_column()
    records: bytes = blob_column(
        marks.personal("what arrived, until it is read", erased="deleted"), null=False
    )


class SuspectRow(Table, table=True):
    """One record of the inbox that is read alone, because a reader ended or failed over it. `aside`
    is 1 where it is read no more; `orders`, a line each, are then held."""

    __tablename__ = "suspects"
    __table_args__ = NUMBERED
    seq: int | None = _numbered()
    received_at: int = big_column()
    tries: int = big_column()
    aside: int = big_column()
    orders: str = text_column(marks.SET_ASIDE)
    record: bytes = blob_column(marks.SET_ASIDE, null=False)


class DeliveryRow(Table, table=True):
    """One verified arrival. `body` is NULL where an earlier delivery holds the same bytes, and
    after it was pruned; `headers` are then empty."""

    __tablename__ = "deliveries"
    __table_args__ = (
        Index(
            "ix_deliveries_envelope",
            "envelope",
            sqlite_where=text("envelope IS NOT NULL"),
            postgresql_where=text("envelope IS NOT NULL"),
        ),
        Index(
            "ix_deliveries_again",
            "event_id",
            "source",
            sqlite_where=text("verdict = 'duplicate'"),
            postgresql_where=text("verdict = 'duplicate'"),
        ),
        Index("ix_deliveries_source", "source", "id"),
        Index(
            "ix_deliveries_verdict",
            "verdict",
            "id",
            sqlite_where=text("verdict <> 'stored'"),
            postgresql_where=text("verdict <> 'stored'"),
        ),
        Index(
            "ix_deliveries_unreadable",
            "id",
            "source",
            sqlite_where=text("verdict = 'unreadable'"),
            postgresql_where=text("verdict = 'unreadable'"),
        ),
        STRICT,
    )
    id: str = text_column(marks.CODES, primary=True)
    received_at: int = big_column()
    source: str = text_column(marks.CODES)
    verdict: str = text_column(marks.CODES)
    event_id: str | None = text_column(marks.REFERENCE, null=True)
    digest: str = text_column(marks.CODES)
    size: int = big_column()
    headers: str = text_column(marks.ARRIVED)
    body: bytes | None = blob_column(marks.ARRIVED)
    problem: str | None = text_column(marks.PROBLEM, null=True)
    pruned_at: int | None = big_column(null=True)
    envelope: str | None = text_column(marks.CODES, null=True)


class EnvelopeRow(Table, table=True):
    """The whole body of a request that brought several events. Each of its deliveries holds its own
    event's bytes; the signature may cover the whole."""

    __tablename__ = "envelopes"
    __table_args__ = STRICT
    digest: str = text_column(marks.CODES, primary=True)
    body: bytes | None = blob_column(marks.ARRIVED)


class EventRow(Table, table=True):
    """One event, read from the delivery that first brought it. An index over raw bytes."""

    __tablename__ = "events"
    __table_args__ = (
        # Where several receivers write, the database keeps equal events apart. On SQLite the one
        # writer has looked, and a key a third as long spares it a quarter of its work.
        UniqueConstraint("event_id", "source", "digest").ddl_if(dialect="postgresql"),
        Index("ix_events_event_id", "event_id").ddl_if(dialect="sqlite"),
        # Without events of no order: SQLite would go through all of these to find one of them.
        Index(
            "ix_events_order_key",
            "order_key",
            sqlite_where=text("order_key IS NOT NULL"),
            postgresql_where=text("order_key IS NOT NULL"),
        ),
        *(
            Index(
                f"ix_events_orphaned_{reference}",
                reference,
                sqlite_where=text("order_key IS NULL"),
                postgresql_where=text("order_key IS NULL"),
            )
            for reference in ("payment", "session")
        ),
        STRICT,
    )
    row: int | None = Field(
        default=None,
        sa_column=Column(
            BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
    )
    order_key: str | None = text_column(marks.REFERENCE, null=True)
    source: str = text_column(marks.CODES)
    event_id: str = text_column(marks.REFERENCE)
    digest: str = text_column(marks.CODES)
    delivery_id: str = text_column(marks.CODES)
    received_at: int = big_column()
    kind: str = text_column(marks.REFERENCE)
    claim: str = text_column(marks.CODES)
    occurred_at: int | None = big_column(null=True)
    order_ref: str | None = text_column(marks.REFERENCE, null=True)
    session: str | None = text_column(marks.REFERENCE, null=True)
    payment: str | None = text_column(marks.REFERENCE, null=True)
    movement: str | None = text_column(marks.REFERENCE, null=True)
    amount: int | None = big_column(null=True)
    currency: str | None = text_column(marks.CODES, null=True)
    order_amount: int | None = big_column(null=True)
    order_currency: str | None = text_column(marks.CODES, null=True)
    reason: str | None = text_column(
        marks.possibly_personal(
            "the provider's words for a failure; of what may be a phone number the last digits "
            "alone",
            erased="emptied",
        ),
        null=True,
    )
    standing: str = text_column(marks.CODES, default="'said'")
    capture: str | None = text_column(marks.REFERENCE, null=True)
    refunded_total: int | None = big_column(null=True)
    refunded_currency: str | None = text_column(marks.CODES, null=True)


class ConfirmationRow(Table, table=True):
    """An event that does not count by itself, until its provider's own answer settles it."""

    __tablename__ = "confirmations"
    __table_args__ = (Index("ix_confirmations_source", "source", "tries", "due_at"), CLUSTERED)
    event_id: str = text_column(marks.REFERENCE, primary=True)
    source: str = text_column(marks.CODES, primary=True)
    digest: str = text_column(marks.CODES, primary=True)
    asked_since: int = big_column()
    due_at: int = big_column()
    tries: int = big_column()


class LinkRow(Table, table=True):
    """Which order a payment or session reference belongs to, by the first that named both."""

    __tablename__ = "links"
    __table_args__ = CLUSTERED
    reference: str = text_column(marks.REFERENCE, primary=True)
    kind: str = text_column(marks.CODES, primary=True)
    source: str = text_column(marks.CODES, primary=True)
    order_key: str = text_column(marks.REFERENCE)


class ContestedRow(Table, table=True):
    """Two orders that share a reference or an event id; each must see the other's events."""

    __tablename__ = "contested"
    __table_args__ = CLUSTERED
    order_key: str = text_column(marks.REFERENCE, primary=True)
    other: str = text_column(marks.REFERENCE, primary=True)


class RecordRow(Table, table=True):
    """One fact from the merchant's side. Append-only."""

    __tablename__ = "records"
    __table_args__ = (
        Index("ix_records_order_key", "order_key"),
        Index(
            "ix_records_holds",
            "order_key",
            "reason",
            sqlite_where=text("kind IN ('held', 'released')"),
            postgresql_where=text("kind IN ('held', 'released')"),
        ),
        STRICT,
    )
    id: str = text_column(marks.CODES, primary=True)
    recorded_at: int = big_column()
    kind: str = text_column(marks.CODES)
    order_key: str = text_column(marks.REFERENCE)
    at: int = big_column()
    amount: int | None = big_column(null=True)
    currency: str | None = text_column(marks.CODES, null=True)
    source: str | None = text_column(marks.CODES, null=True)
    key: str | None = text_column(marks.CODES, null=True)
    session: str | None = text_column(marks.REFERENCE, null=True)
    expires_at: int | None = big_column(null=True)
    reason: str | None = text_column(
        marks.possibly_personal(
            "the shop's words, or the payment service's without the customer's number",
            because="it is sealed",
        ),
        null=True,
    )
    details: str | None = text_column(
        marks.possibly_personal(
            "what was asked for and answered, without the customer's number", because="it is sealed"
        ),
        null=True,
    )
    payment: str | None = text_column(marks.REFERENCE, null=True)
    author: str | None = text_column(marks.STAFF, null=True)


class OrderDueRow(Table, table=True):
    """When an order must be folded next. `generation` counts the evidence that has arrived."""

    __tablename__ = "order_due"
    __table_args__ = (
        Index(
            "ix_order_due_due_at",
            "due_at",
            sqlite_where=text("due_at IS NOT NULL"),
            postgresql_where=text("due_at IS NOT NULL"),
        ),
        CLUSTERED,
    )
    order_key: str = text_column(marks.REFERENCE, primary=True)
    due_at: int | None = big_column(null=True)
    generation: int = big_column()


class LedgerRow(Table, table=True):
    """The last fold of an order, for listings. Can be dropped and rebuilt."""

    __tablename__ = "ledgers"
    __table_args__ = (Index("ix_ledgers_outcome", "outcome", "order_key"), CLUSTERED)
    order_key: str = text_column(marks.REFERENCE, primary=True)
    as_of: int = big_column()
    outcome: str = text_column(marks.CODES)
    fulfillable: int = big_column()
    findings: str = text_column(marks.CODES)
    substance: str = text_column(marks.REFERENCE)
    next_decision_at: int | None = big_column(null=True)
    rules: str = text_column(marks.CODES)


class RevisionRow(Table, table=True):
    """One published change of an order's ledger. `seq` has no gaps and is in commit order."""

    __tablename__ = "revisions"
    __table_args__ = (
        Index("ix_revisions_order_key", "order_key", "seq"),
        Index("ix_revisions_at", "at", "order_key"),
        STRICT,
    )
    seq: int = big_column(primary=True)
    order_key: str = text_column(marks.REFERENCE)
    at: int = big_column()
    outcome: str = text_column(marks.CODES)
    fulfillable: int = big_column()
    substance: str = text_column(marks.REFERENCE)
    before_outcome: str | None = text_column(marks.CODES, null=True)
    before_fulfillable: int | None = big_column(null=True)
    because: str = text_column(
        marks.possibly_personal(
            "cites references, and reasons of events and records",
            because="it is sealed and published",
        )
    )


class OrderListingRow(Table, table=True):
    """An order under its outcome, and under each of its findings, by the number of its last
    revision: `outcome succeeded`, `finding overpaid`. A cache, rebuilt with the ledgers."""

    __tablename__ = "order_listings"
    __table_args__ = CLUSTERED
    word: str = text_column(marks.CODES, primary=True)
    seq: int = big_column(primary=True)
    order_key: str = text_column(marks.REFERENCE)


class ArrivalsRow(Table, table=True):
    """How many deliveries of a source came in one minute since 1970: taken, and refused. An empty
    source: of names that are configured for none."""

    __tablename__ = "arrivals"
    __table_args__ = (Index("ix_arrivals_source", "source", "minute"), CLUSTERED)
    minute: int = big_column(primary=True)
    source: str = text_column(marks.not_personal("names of the settings"), primary=True)
    taken: int = big_column()
    refused: int = big_column()


class RejectionRow(Table, table=True):
    """One refused arrival, in a ring bounded in count and bytes."""

    __tablename__ = "rejections"
    __table_args__ = STRICT
    id: str = text_column(marks.CODES_DELETED, primary=True)
    received_at: int = big_column()
    source: str = text_column(marks.CODES_DELETED)
    verdict: str = text_column(marks.CODES_DELETED)
    digest: str = text_column(marks.CODES_DELETED)
    size: int = big_column()
    headers: str = text_column(marks.REFUSED)
    body: bytes | None = blob_column(marks.REFUSED)
    problem: str | None = text_column(marks.PROBLEM_DELETED, null=True)
