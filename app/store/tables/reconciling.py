"""The tables of reconciliation: takings, runs and what they saw, and what people decided."""

from __future__ import annotations

from sqlalchemy import Index

from app.store.tables.base import CLUSTERED, Table, big_column, text_column


class TakingRow(Table, table=True):
    """What an order's ledger contributes to a reconciliation, in the order in which books and
    statements are merged with it. A cache: see `takings.py`."""

    __tablename__ = "takings"
    __table_args__ = (
        Index("ix_takings_order_key", "order_key", "generation", "until", unique=True),
        CLUSTERED,
    )
    key: str = text_column(primary=True)
    order_key: str = text_column(primary=True)
    generation: int = big_column()
    until: int | None = big_column(null=True)
    outcome: str = text_column()
    fulfillable: int = big_column()
    expected: int | None = big_column(null=True)
    currency: str | None = text_column(null=True)
    opened_at: int = big_column()
    movements: str = text_column()
    findings: str = text_column()
