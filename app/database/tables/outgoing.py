"""The tables of what goes out: session requests without an answer, notifications, and destinations
that take none."""

from __future__ import annotations

from sqlalchemy import Index, text

from app.database.tables.base import CLUSTERED, STRICT, Table, big_column, text_column


class UnansweredRow(Table, table=True):
    """A session request without an answer: its bytes, with which its key must be sent again."""

    __tablename__ = "unanswered"
    __table_args__ = (Index("ix_unanswered_due_at", "due_at"), CLUSTERED)
    key: str = text_column(primary=True)
    order_key: str = text_column()
    request: str = text_column()
    due_at: int = big_column()
    held_until: int = big_column()
    tries: int = big_column()
    in_vain: int = big_column()


_WAITING = text("due_at IS NOT NULL")
_DEAD = text("due_at IS NULL AND delivered_at IS NULL")


class NotificationRow(Table, table=True):
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
        STRICT,
    )
    seq: int = big_column(primary=True)
    order_key: str = text_column()
    since: int = big_column()
    due_at: int | None = big_column(null=True)
    tries: int = big_column()
    delivered_at: int | None = big_column(null=True)
    problem: str | None = text_column(null=True)


class DestinationAwayRow(Table, table=True):
    """A destination of notifications while it takes none; it has no row otherwise. `destination` is
    a digest of its address, which may hold a credential."""

    __tablename__ = "destinations_away"
    __table_args__ = CLUSTERED
    destination: str = text_column(primary=True)
    since: int = big_column()
    failures: int = big_column()
    probe_at: int = big_column()
    problem: str = text_column()
