"""The tables of reconciliation: takings, runs and what they saw, and what people decided."""

from __future__ import annotations

from sqlalchemy import Index

from app.database.tables.base import CLUSTERED, STRICT, Table, big_column, text_column


class TakingRow(Table, table=True):
    """What an order's ledger contributes to a reconciliation, in the order in which books and
    statements are merged with it. A cache: see `takings.py`."""

    __tablename__ = "takings"
    __table_args__ = (
        Index(
            "ix_takings_order_key_generation_until", "order_key", "generation", "until", unique=True
        ),
        CLUSTERED,
    )
    key: str = text_column(primary=True)
    order_key: str = text_column(primary=True)
    minor: int = big_column()
    currency: str = text_column()
    source: str = text_column()
    payment: str = text_column()
    cite: str = text_column()
    at: int = big_column()
    opened_at: int = big_column()
    plain: int = big_column()
    told: str = text_column()
    generation: int = big_column()
    until: int | None = big_column(null=True)


class RulesRow(Table, table=True):
    """One saved set of rules, as its file said; the last one is in force. Append-only."""

    __tablename__ = "match_rules"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    at: int = big_column()
    who: str = text_column()
    digest: str = text_column()
    toml: str = text_column()


class RunRow(Table, table=True):
    """One reconciliation: what it asked, under which rules, and what it came to.

    `lived` is 1 where it moved the life of breaks: as of its own moment, under the rules in force.
    """

    __tablename__ = "runs"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    at: int = big_column()
    as_of: int = big_column()
    since: int | None = big_column(null=True)
    until: int | None = big_column(null=True)
    rules: int | None = big_column(null=True)
    lived: int = big_column()
    breaks: int = big_column()
    ties: int = big_column()
    result: str = text_column()


class BreakRow(Table, table=True):
    """One difference, which keeps its id from run to run. Append-only."""

    __tablename__ = "breaks"
    __table_args__ = (
        Index("ix_breaks_cause", "cause", "id"),
        Index("ix_breaks_subject", "subject"),
        CLUSTERED,
    )
    id: str = text_column(primary=True)
    cause: str = text_column()
    order_ref: str | None = text_column(null=True)
    payment: str | None = text_column(null=True)
    subject: str | None = text_column(null=True)


class BreakVersionRow(Table, table=True):
    """What a run saw of a break: money, age and evidence. Runs that see the same share one."""

    __tablename__ = "break_versions"
    __table_args__ = CLUSTERED
    break_id: str = text_column(primary=True)
    version: int = big_column(primary=True)
    digest: str = text_column()
    minor: int = big_column()
    currency: str = text_column()
    since: int = big_column()
    seen: str = text_column()


class BreakSeenRow(Table, table=True):
    """That a run saw a break, and as which version."""

    __tablename__ = "break_seen"
    __table_args__ = CLUSTERED
    run: int = big_column(primary=True)
    break_id: str = text_column(primary=True)
    version: int = big_column()


class BreakTurnRow(Table, table=True):
    """What a run changed in the life of a break: opened, changed, closed, reopened."""

    __tablename__ = "break_turns"
    __table_args__ = CLUSTERED
    break_id: str = text_column(primary=True)
    run: int = big_column(primary=True)
    turn: str = text_column()
    version: int = big_column()
    cites: str = text_column()


class BreakDeedRow(Table, table=True):
    """What a person did about a break; `value` is a name, an action or a line. Append-only."""

    __tablename__ = "break_deeds"
    __table_args__ = (Index("ix_break_deeds_break_id", "break_id", "number"), STRICT)
    number: int = big_column(primary=True)
    break_id: str = text_column()
    at: int = big_column()
    who: str = text_column()
    deed: str = text_column()
    value: str = text_column()
    reason: str = text_column()
    second: str | None = text_column(null=True)
    minor: int = big_column()
    currency: str = text_column()
