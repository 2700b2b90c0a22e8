"""The tables of closed periods."""

from __future__ import annotations

from app.database.tables.base import STRICT, Table, big_column, blob_column, text_column


class ClosingRow(Table, table=True):
    """One closed month, written once: all of it as canonical JSON, and the SHA-256 of that."""

    __tablename__ = "closings"
    __table_args__ = STRICT
    period: str = text_column(primary=True)
    as_of: int = big_column()
    closed_at: int = big_column()
    who: str = text_column()
    digest: str = text_column()
    document: str = text_column()


class ClosingPrintRow(Table, table=True):
    """The closed report in one format, as it was printed then; `content` is deflated (zlib)."""

    __tablename__ = "closing_prints"
    __table_args__ = STRICT
    period: str = text_column(primary=True)
    format: str = text_column(primary=True)
    content: bytes | None = blob_column()
