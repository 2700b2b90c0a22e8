"""Metadata, column types and indexes that all tables share. Also the tables of deliveries, events,
records and the results computed from them."""

from typing import Any, Final

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from app.database import marks

# --- what every table shares ----------------------------------------------------------------------

CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = sa.MetaData(naming_convention=CONVENTION)
STRICT: dict[str, Any] = {"sqlite_strict": True}
CLUSTERED: dict[str, Any] = {"sqlite_strict": True, "sqlite_with_rowid": False}


class Table(SQLModel):
    """Base class of all tables. It holds the metadata that the tables share."""

    metadata = metadata


BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def text_column(
    mark: marks.Mark, *, primary: bool = False, null: bool = False, default: str | None = None
) -> Any:
    """Declare a text column that is compared and sorted by bytes on every server.

    mark     the personal data in the column
    default  SQL of the default value
    """
    return Field(
        sa_column=sa.Column(
            TEXT,
            primary_key=primary,
            nullable=null,
            server_default=None if default is None else sa.text(default),
            info={marks.MARK: mark},
        )
    )


def big_column(*, null: bool = False, primary: bool = False, default: str | None = None) -> Any:
    """Declare a column of 64-bit integers: minor units of money, microseconds of time, or counts.

    default  SQL of the database's default value
    """
    return Field(
        sa_column=sa.Column(
            BIG,
            nullable=null,
            primary_key=primary,
            autoincrement=False,
            server_default=None if default is None else sa.text(default),
        )
    )


def numbered_column() -> Any:
    """Declare a primary key whose numbers the database assigns."""
    return Field(default=None, sa_column=sa.Column(BIG, primary_key=True, autoincrement=True))


def blob_column(mark: marks.Mark, *, primary: bool = False, null: bool = True) -> Any:
    null = null and not primary
    return Field(
        sa_column=sa.Column(
            sa.LargeBinary, primary_key=primary, nullable=null, info={marks.MARK: mark}
        )
    )


def partial_index(name: str, *columns: str, where: str) -> sa.Index:
    """Declare an index over only those rows that meet an SQL condition."""
    return sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


# --- the tables -----------------------------------------------------------------------------------


class MetaRow(Table, table=True):
    """One fact about the database itself, such as the environment to which it belongs."""

    __tablename__ = "meta"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.FACTS, primary=True)
    value: str = text_column(marks.FACTS)


class CounterRow(Table, table=True):
    """Counter of a series, or of orders with an outcome or finding, changed with the counted
    rows."""

    __tablename__ = "counters"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.not_personal("names of ours"), primary=True)
    value: int = big_column()


class HolderRow(Table, table=True):
    """Registration of a connection that writes to a PostgreSQL database."""

    __tablename__ = "holders"
    __table_args__ = CLUSTERED
    holder: str = text_column(marks.not_personal("a machine's boot id and a process"), primary=True)
    kind: str = text_column(marks.CODES)
    """Name of the process's work."""
    host: str = text_column(marks.not_personal("the name of a machine"))
    epoch: int = big_column()
    """Number that a process increases to take over."""
    until: int = big_column()
    """Time from which another process may take over."""
    newest: str = text_column(marks.CODES)
    """Random identifier of the last transaction."""


NUMBERED: Final[dict[str, Any]] = {**STRICT, "sqlite_autoincrement": True}
"""Arguments for tables whose row numbers must never be used twice, so that readers miss none."""


class InboxRow(Table, table=True):
    """Unread deliveries and rejections that were stored by one commit."""

    __tablename__ = "inbox"
    __table_args__ = NUMBERED
    seq: int | None = numbered_column()
    count: int = big_column()
    """Number of deliveries in `records`."""
    received_at: int = big_column()
    """Time of the oldest delivery."""
    size: int = big_column()
    """Bytes of all deliveries."""
    records: bytes = blob_column(
        marks.personal("a delivery, until it is read", erased="deleted"), null=False
    )
    taken_by: str | None = text_column(marks.CODES_DELETED, null=True)
    """Claim of the reader that works on the row, or NULL."""
    tries: int = big_column(default="0")
    """Number of claims that expired."""


class SuspectRow(Table, table=True):
    """Stored delivery that is read alone, because readers failed when they read it."""

    __tablename__ = "suspects"
    __table_args__ = NUMBERED
    seq: int | None = numbered_column()
    received_at: int = big_column()
    tries: int = big_column()
    """Number of claims that expired or failed."""
    aside: int = big_column()
    """1 if nobody reads the delivery any more."""
    orders: str = text_column(marks.SET_ASIDE)
    """Orders that the delivery mentions, one on each line. Held while it is set aside."""
    record: bytes = blob_column(marks.SET_ASIDE, null=False)
    taken_by: str | None = text_column(marks.CODES_DELETED, null=True)
    """Claim of the reader that works on the delivery, or NULL."""


class UnreadValueRow(Table, table=True):
    """One value from an unreadable message, such as the reference of an order; empty if it has
    none.

    The row is deleted when the message has been read or judged.
    """

    __tablename__ = "unread_values"
    __table_args__ = (sa.Index("ix_unread_values_delivery_id", "delivery_id"), CLUSTERED)
    value: str = text_column(
        marks.personal("the content of a message that could not be read", erased="deleted"),
        primary=True,
    )
    delivery_id: str = text_column(marks.CODES_DELETED, primary=True)
    source: str = text_column(marks.CODES_DELETED)
    received_at: int = big_column()


class DeliveryRow(Table, table=True):
    """Delivery whose signature was verified.

    `body` is NULL after pruning, or if an earlier delivery has the same bytes.
    """

    __tablename__ = "deliveries"
    __table_args__ = (
        partial_index("ix_deliveries_envelope", "envelope", where="envelope IS NOT NULL"),
        partial_index("ix_deliveries_again", "event_id", "source", where="verdict = 'duplicate'"),
        sa.Index("ix_deliveries_source", "source", "id"),
        partial_index("ix_deliveries_verdict", "verdict", "id", where="verdict <> 'stored'"),
        partial_index("ix_deliveries_unreadable", "id", "source", where="verdict = 'unreadable'"),
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
    """Complete body of a request with several events, which the signature can cover."""

    __tablename__ = "envelopes"
    __table_args__ = STRICT
    digest: str = text_column(marks.CODES, primary=True)
    body: bytes | None = blob_column(marks.ARRIVED)


class EventRow(Table, table=True):
    """Event, read from the first delivery that contained it. The row can be built again from the
    stored bytes."""

    __tablename__ = "events"
    __table_args__ = (
        # On PostgreSQL several processes write, so the key (event_id, source, digest) prevents
        # duplicate events, even on other nodes. On SQLite the only writer checks this first, and a
        # key a third as long saves a quarter of its work.
        sa.Index("ix_events_row", "row").ddl_if(dialect="postgresql"),
        sa.Index("ix_events_event_id", "event_id").ddl_if(dialect="sqlite"),
        # Leaves out events without an order, since SQLite would scan all of them to find one.
        partial_index("ix_events_order_key", "order_key", where="order_key IS NOT NULL"),
        partial_index("ix_events_orphaned_payment", "payment", where="order_key IS NULL"),
        partial_index("ix_events_orphaned_session", "session", where="order_key IS NULL"),
        partial_index(
            "ix_events_suggested", "suggested", where="order_key IS NULL AND suggested IS NOT NULL"
        ),
        partial_index("ix_events_agreement", "agreement", where="agreement IS NOT NULL"),
        # Leaves out ignored kinds, which may be most events of a provider: see `unplaced_keys`.
        partial_index(
            "ix_events_unplaced",
            "order_key",
            "source",
            where="order_key IS NULL AND standing <> 'unconfirmed' "
            "AND claim NOT IN ('ignored', 'unrecognized')",
        ),
        partial_index("ix_events_of_other_shops", "order_ref", where="shop = 'other'"),
        partial_index("ix_events_other_shops_row", "row", where="shop = 'other'"),
        partial_index("ix_events_other_shops_payment", "payment", "row", where="shop = 'other'"),
        partial_index("ix_events_other_shops_session", "session", "row", where="shop = 'other'"),
        partial_index(
            "ix_events_of_unknown_shops",
            "source",
            where="shop = 'unstated' AND order_key IS NOT NULL",
        ),
        partial_index("ix_events_unconfirmed", "payment", where="standing = 'unconfirmed'"),
        partial_index("ix_events_standalone", "order_key", "row", where="standalone = 1"),
        partial_index("ix_events_standalone_payment", "payment", where="standalone = 1"),
        partial_index("ix_events_standalone_session", "session", where="standalone = 1"),
        partial_index("ix_events_movement", "movement", where="movement IS NOT NULL"),
        partial_index("ix_events_capture", "capture", where="capture IS NOT NULL"),
        STRICT,
    )
    row: int | None = numbered_column()
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
            "the provider's text about a failure; only the last digits of a possible phone number",
            erased="emptied",
        ),
        null=True,
    )
    standing: str = text_column(marks.CODES, default="'said'")
    capture: str | None = text_column(marks.REFERENCE, null=True)
    refunded_total: int | None = big_column(null=True)
    refunded_currency: str | None = text_column(marks.CODES, null=True)
    unclear: str | None = text_column(marks.CODES, null=True)
    method: str | None = text_column(marks.CODES, null=True)
    expected_by: int | None = big_column(null=True)
    revocable_days: int | None = big_column(null=True)
    shop: str | None = text_column(marks.CODES, null=True)
    suggested: str | None = text_column(marks.REFERENCE, null=True)
    agreement: str | None = text_column(marks.REFERENCE, null=True)
    standalone: int | None = big_column(null=True)
    parts: str | None = text_column(marks.CODES, null=True)
    states: str | None = text_column(marks.REFERENCE, null=True)
    stated_at: int | None = big_column(null=True)


EventRow.__table__.primary_key.ddl_if(dialect="sqlite")  # type: ignore[attr-defined]


class ConfirmationRow(Table, table=True):
    """Event that has no effect until its provider confirms or denies it, when asked."""

    __tablename__ = "confirmations"
    __table_args__ = (
        sa.Index("ix_confirmations_source", "source", "named", "tries", "turn", "due_at"),
        sa.Index("ix_confirmations_lane", "source", "lane", "tries", "turn"),
        partial_index("ix_confirmations_taken", "source", where="taken_until IS NOT NULL"),
        CLUSTERED,
    )
    event_id: str = text_column(marks.REFERENCE, primary=True)
    source: str = text_column(marks.CODES, primary=True)
    digest: str = text_column(marks.CODES, primary=True)
    asked_since: int = big_column()
    due_at: int = big_column()
    tries: int = big_column()
    named: int = big_column()
    lane: int = big_column()
    turn: int = big_column()
    taken_until: int | None = big_column(null=True)
    """End of the claim of the process that asks, or NULL."""
    answered_at: int | None = big_column(null=True)
    """Time of the last answer that decided nothing."""


class LinkRow(Table, table=True):
    """Link from a payment's or session's reference to an order. The first event or record that
    names both creates the link."""

    __tablename__ = "links"
    __table_args__ = CLUSTERED
    reference: str = text_column(marks.REFERENCE, primary=True)
    kind: str = text_column(marks.CODES, primary=True)
    source: str = text_column(marks.CODES, primary=True)
    order_key: str = text_column(marks.REFERENCE)


class ContestedRow(Table, table=True):
    """Two orders that share a reference or event id. The ledger of each order is computed with the
    other order's events, too."""

    __tablename__ = "contested"
    __table_args__ = CLUSTERED
    order_key: str = text_column(marks.REFERENCE, primary=True)
    other: str = text_column(marks.REFERENCE, primary=True)


class RecordRow(Table, table=True):
    """Fact that the merchant's side stated. Rows are never changed or deleted."""

    __tablename__ = "records"
    __table_args__ = (
        sa.Index("ix_records_order_key", "order_key"),
        partial_index(
            "ix_records_holds", "order_key", "reason", where="kind IN ('held', 'released')"
        ),
        partial_index(
            "ix_records_placing",
            "source",
            "payment",
            where="kind IN ('payment_assigned', 'payment_dismissed')",
        ),
        partial_index("ix_records_redated", "replaces", where="kind = 'redated'"),
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
            "text from the shop, or from the payment service without the customer's number",
            because="it is sealed",
            ground="claims",
        ),
        null=True,
    )
    details: str | None = text_column(
        marks.possibly_personal(
            "a request and its answer, without the customer's number",
            because="it is sealed",
            ground="claims",
        ),
        null=True,
    )
    payment: str | None = text_column(marks.REFERENCE, null=True)
    author: str | None = text_column(marks.STAFF, null=True)
    replaces: str | None = text_column(marks.CODES, null=True)
    tenders: str | None = text_column(marks.CODES, null=True)
    free: int | None = big_column(null=True)
    dated: int | None = big_column(null=True)


class OrderDueRow(Table, table=True):
    """Due time of the next computation of an order's ledger."""

    __tablename__ = "order_due"
    __table_args__ = (
        partial_index("ix_order_due_due_at", "due_at", where="due_at IS NOT NULL"),
        partial_index("ix_order_due_backwards", "backwards", where="backwards IS NOT NULL"),
        CLUSTERED,
    )
    order_key: str = text_column(marks.REFERENCE, primary=True)
    due_at: int | None = big_column(null=True)
    generation: int = big_column()
    """Number that increases with new evidence."""
    backwards: str | None = text_column(marks.REFERENCE, null=True)
    """The reference in reverse, to find orders by its end."""


class LedgerRow(Table, table=True):
    """Cache of the ledger that was last computed for an order."""

    __tablename__ = "ledgers"
    __table_args__ = (sa.Index("ix_ledgers_outcome", "outcome", "order_key"), CLUSTERED)
    order_key: str = text_column(marks.REFERENCE, primary=True)
    as_of: int = big_column()
    outcome: str = text_column(marks.CODES)
    fulfillable: int = big_column()
    findings: str = text_column(marks.CODES)
    substance: str = text_column(marks.REFERENCE)
    next_decision_at: int | None = big_column(null=True)
    rules: str = text_column(marks.CODES)
    expected_by: int | None = big_column(null=True)
    method_class: str | None = text_column(marks.CODES, null=True)
    revocable_until: int | None = big_column(null=True)


class RevisionRow(Table, table=True):
    """One published change of an order's ledger. `seq` numbers the changes in the order of their
    commits, without gaps."""

    __tablename__ = "revisions"
    __table_args__ = (
        sa.Index("ix_revisions_order_key", "order_key", "seq"),
        sa.Index("ix_revisions_at", "at", "order_key"),
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
            "references, and reasons from events and records",
            because="it is sealed and published",
            ground="claims",
        )
    )


class OrderListingRow(Table, table=True):
    """Entry in a list of orders with one outcome or finding. A cache, rebuilt with the ledgers."""

    __tablename__ = "order_listings"
    __table_args__ = CLUSTERED
    word: str = text_column(marks.CODES, primary=True)
    """Name of the list, such as `outcome succeeded` or `finding overpaid`."""
    seq: int = big_column(primary=True)
    """Number of the order's last revision."""
    order_key: str = text_column(marks.REFERENCE)


class ArrivalsRow(Table, table=True):
    """Numbers of accepted and refused deliveries of a source in one minute since 1970.

    The empty source stands for all unconfigured names.
    """

    __tablename__ = "arrivals"
    __table_args__ = (sa.Index("ix_arrivals_source", "source", "minute"), CLUSTERED)
    minute: int = big_column(primary=True)
    source: str = text_column(marks.not_personal("names from the settings"), primary=True)
    taken: int = big_column()
    refused: int = big_column()


class RefusalsRow(Table, table=True):
    """Number of a source's refused deliveries with one verdict in one hour."""

    __tablename__ = "refusals"
    __table_args__ = (
        partial_index("ix_refusals_source", "source", where="since_accepted > 0"),
        CLUSTERED,
    )
    hour: int = big_column(primary=True)
    """Hours since 1970."""
    source: str = text_column(marks.not_personal("names from the settings"), primary=True)
    """The source. Empty for all names that are not configured."""
    verdict: str = text_column(marks.CODES, primary=True)
    count: int = big_column()
    since_accepted: int = big_column()
    """Number of refusals since the source's last accepted delivery."""
    first_at: int = big_column()
    """Time of the first of these refusals."""


class RejectionRow(Table, table=True):
    """Refused delivery. Old rows are deleted, so that the table stays below a limit of rows and
    bytes."""

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
