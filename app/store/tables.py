"""The tables. Private to this folder: `mapping` turns rows into values of `reconcile` and back.

SQLModel validates nothing in a table model, so every value that enters has been checked before:
events by the provider's profile, records by the operation that makes them.

    truth   deliveries  records  revisions  rejections  tokens  signoffs
    index   events  links  contested        rebuilt from deliveries by `reindex`
    cache   ledgers                          rebuilt by `refold --all`
    marks   order_due  unanswered  notifications  meta  counters
"""

from __future__ import annotations

from typing import Any

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

CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=CONVENTION)
ONLY = "only"
"""In the `info` of an index or a constraint: the one dialect that has it."""

_STRICT: dict[str, Any] = {"sqlite_strict": True}
_CLUSTERED: dict[str, Any] = {"sqlite_strict": True, "sqlite_with_rowid": False}


class _Table(SQLModel):
    """Shared base: all tables live in this module's own metadata."""

    metadata = metadata


_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def _text(*, primary: bool = False, null: bool = False) -> Any:
    """Text, compared and sorted by its bytes as on SQLite, whatever the server's locale."""
    return Field(sa_column=Column(_TEXT, primary_key=primary, nullable=null))


def _big(*, null: bool = False, primary: bool = False) -> Any:
    """A 64-bit integer: minor units of money, microseconds of time, counts."""
    kind = BigInteger().with_variant(Integer, "sqlite")
    return Field(sa_column=Column(kind, nullable=null, primary_key=primary, autoincrement=False))


def _blob() -> Any:
    return Field(sa_column=Column(LargeBinary, nullable=True))


class MetaRow(_Table, table=True):
    """One fact about the database itself, such as the environment that it serves."""

    __tablename__ = "meta"
    __table_args__ = _CLUSTERED
    name: str = _text(primary=True)
    value: str = _text()


class CounterRow(_Table, table=True):
    """A number that is raised inside the transaction that uses it, so that it has no gaps."""

    __tablename__ = "counters"
    __table_args__ = _CLUSTERED
    name: str = _text(primary=True)
    value: int = _big()


class DeliveryRow(_Table, table=True):
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
        _STRICT,
    )
    id: str = _text(primary=True)
    received_at: int = _big()
    source: str = _text()
    verdict: str = _text()
    event_id: str | None = _text(null=True)
    digest: str = _text()
    size: int = _big()
    headers: str = _text()
    body: bytes | None = _blob()
    problem: str | None = _text(null=True)
    pruned_at: int | None = _big(null=True)
    envelope: str | None = _text(null=True)


class EnvelopeRow(_Table, table=True):
    """The whole body of a request that brought several events. Each of its deliveries holds its own
    event's bytes; the signature may cover the whole."""

    __tablename__ = "envelopes"
    __table_args__ = _STRICT
    digest: str = _text(primary=True)
    body: bytes | None = _blob()


class EventRow(_Table, table=True):
    """One event, read from the delivery that first brought it. An index over raw bytes."""

    __tablename__ = "events"
    __table_args__ = (
        # Where several receivers write, the database keeps equal events apart. On SQLite the one
        # writer has looked, and a key a third as long spares it a quarter of its work.
        UniqueConstraint("event_id", "source", "digest", info={ONLY: "postgresql"}),
        Index("ix_events_event_id", "event_id", info={ONLY: "sqlite"}),
        Index("ix_events_order_key", "order_key"),
        *(
            Index(
                f"ix_events_orphaned_{reference}",
                reference,
                sqlite_where=text("order_key IS NULL"),
                postgresql_where=text("order_key IS NULL"),
            )
            for reference in ("payment", "session")
        ),
        _STRICT,
    )
    row: int | None = Field(
        default=None,
        sa_column=Column(
            BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
    )
    order_key: str | None = _text(null=True)
    source: str = _text()
    event_id: str = _text()
    digest: str = _text()
    delivery_id: str = _text()
    received_at: int = _big()
    kind: str = _text()
    claim: str = _text()
    occurred_at: int | None = _big(null=True)
    order_ref: str | None = _text(null=True)
    session: str | None = _text(null=True)
    payment: str | None = _text(null=True)
    movement: str | None = _text(null=True)
    amount: int | None = _big(null=True)
    currency: str | None = _text(null=True)
    order_amount: int | None = _big(null=True)
    order_currency: str | None = _text(null=True)
    reason: str | None = _text(null=True)
    standing: str = Field(sa_column=Column(_TEXT, nullable=False, server_default=text("'said'")))


class ConfirmationRow(_Table, table=True):
    """An event that does not count by itself, until its provider's own answer settles it."""

    __tablename__ = "confirmations"
    __table_args__ = (Index("ix_confirmations_source", "source", "tries", "due_at"), _CLUSTERED)
    event_id: str = _text(primary=True)
    source: str = _text(primary=True)
    digest: str = _text(primary=True)
    asked_since: int = _big()
    due_at: int = _big()
    tries: int = _big()


class LinkRow(_Table, table=True):
    """Which order a payment or session reference belongs to, by the first that named both."""

    __tablename__ = "links"
    __table_args__ = _CLUSTERED
    reference: str = _text(primary=True)
    kind: str = _text(primary=True)
    source: str = _text(primary=True)
    order_key: str = _text()


class ContestedRow(_Table, table=True):
    """Two orders that share a reference or an event id; each must see the other's events."""

    __tablename__ = "contested"
    __table_args__ = _CLUSTERED
    order_key: str = _text(primary=True)
    other: str = _text(primary=True)


class RecordRow(_Table, table=True):
    """One fact from the merchant's side. Append-only."""

    __tablename__ = "records"
    __table_args__ = (Index("ix_records_order_key", "order_key"), _STRICT)
    id: str = _text(primary=True)
    recorded_at: int = _big()
    kind: str = _text()
    order_key: str = _text()
    at: int = _big()
    amount: int | None = _big(null=True)
    currency: str | None = _text(null=True)
    source: str | None = _text(null=True)
    key: str | None = _text(null=True)
    session: str | None = _text(null=True)
    expires_at: int | None = _big(null=True)
    reason: str | None = _text(null=True)
    details: str | None = _text(null=True)


class UnansweredRow(_Table, table=True):
    """A session request without an answer: its bytes, with which its key must be sent again."""

    __tablename__ = "unanswered"
    __table_args__ = (Index("ix_unanswered_due_at", "due_at"), _CLUSTERED)
    key: str = _text(primary=True)
    order_key: str = _text()
    request: str = _text()
    due_at: int = _big()
    held_until: int = _big()
    tries: int = _big()
    in_vain: int = _big()


class OrderDueRow(_Table, table=True):
    """When an order must be folded next. `generation` counts the evidence that has arrived."""

    __tablename__ = "order_due"
    __table_args__ = (
        Index(
            "ix_order_due_due_at",
            "due_at",
            sqlite_where=text("due_at IS NOT NULL"),
            postgresql_where=text("due_at IS NOT NULL"),
        ),
        _CLUSTERED,
    )
    order_key: str = _text(primary=True)
    due_at: int | None = _big(null=True)
    generation: int = _big()


class LedgerRow(_Table, table=True):
    """The last fold of an order, for listings. Can be dropped and rebuilt."""

    __tablename__ = "ledgers"
    __table_args__ = (Index("ix_ledgers_outcome", "outcome", "order_key"), _CLUSTERED)
    order_key: str = _text(primary=True)
    as_of: int = _big()
    outcome: str = _text()
    fulfillable: int = _big()
    findings: str = _text()
    substance: str = _text()
    next_decision_at: int | None = _big(null=True)


class RevisionRow(_Table, table=True):
    """One published change of an order's ledger. `seq` has no gaps and is in commit order."""

    __tablename__ = "revisions"
    __table_args__ = (Index("ix_revisions_order_key", "order_key", "seq"), _STRICT)
    seq: int = _big(primary=True)
    order_key: str = _text()
    at: int = _big()
    outcome: str = _text()
    fulfillable: int = _big()
    substance: str = _text()
    before_outcome: str | None = _text(null=True)
    before_fulfillable: int | None = _big(null=True)
    because: str = _text()


class RejectionRow(_Table, table=True):
    """One refused arrival, in a ring bounded in count and bytes."""

    __tablename__ = "rejections"
    __table_args__ = _STRICT
    id: str = _text(primary=True)
    received_at: int = _big()
    source: str = _text()
    verdict: str = _text()
    digest: str = _text()
    size: int = _big()
    headers: str = _text()
    body: bytes | None = _blob()
    problem: str | None = _text(null=True)


class TokenRow(_Table, table=True):
    """A program that may use the API. Only the token's SHA-256 is kept."""

    __tablename__ = "tokens"
    __table_args__ = (UniqueConstraint("hash"), _STRICT)
    name: str = _text(primary=True)
    hash: str = _text()
    created_at: int = _big()
    revoked_at: int | None = _big(null=True)


_WAITING = text("due_at IS NOT NULL")
_DEAD = text("due_at IS NULL AND delivered_at IS NULL")


class NotificationRow(_Table, table=True):
    """What the shop is to be told of one revision. `due_at` is NULL once that is over: it was
    delivered at `delivered_at`, or, where that is NULL too, given up."""

    __tablename__ = "notifications"
    __table_args__ = (
        Index(
            "ix_notifications_due_at",
            "due_at",
            "seq",
            sqlite_where=_WAITING,
            postgresql_where=_WAITING,
        ),
        Index(
            "ix_notifications_waiting",
            "order_key",
            "seq",
            sqlite_where=_WAITING,
            postgresql_where=_WAITING,
        ),
        Index("ix_notifications_dead", "seq", sqlite_where=_DEAD, postgresql_where=_DEAD),
        _STRICT,
    )
    seq: int = _big(primary=True)
    order_key: str = _text()
    since: int = _big()
    due_at: int | None = _big(null=True)
    tries: int = _big()
    delivered_at: int | None = _big(null=True)
    problem: str | None = _text(null=True)


class SignoffRow(_Table, table=True):
    """What a person, or a check, said of one item of the go-live checklist. Append-only."""

    __tablename__ = "signoffs"
    __table_args__ = _STRICT
    number: int = _big(primary=True)
    item: str = _text()
    state: str = _text()
    at: int = _big()
    signer: str = _text()
    note: str = _text()
