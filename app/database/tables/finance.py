"""The tables of finance: imports, and the lines of order books and statements that they brought.

A line is never changed. `since` is the number of the import that brought this version of it, and
`until` that of the import that brought the next one; what an import under way has written is seen
by nobody before it is published.
"""

from __future__ import annotations

from sqlalchemy import Index, text

from app.database.tables.base import CLUSTERED, STRICT, Table, big_column, text_column


class ImportRow(Table, table=True):
    """One import of a file. `published_at` is NULL while it is under way, or if it was killed;
    `written` then tells whether it is still alive."""

    __tablename__ = "imports"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    kind: str = text_column()
    file: str = text_column()
    sha256: str = text_column()
    who: str = text_column()
    started_at: int = big_column()
    published_at: int | None = big_column(null=True)
    written: int = big_column()
    read: int = big_column()
    new: int = big_column()
    changed: int = big_column()
    unchanged: int = big_column()
    rejected: int = big_column()


class BookLineRow(Table, table=True):
    """One version of one line of an order book: a reference of one kind, as `match_key` has it.

    `phone` is empty, not NULL, once it was erased.
    """

    __tablename__ = "book_lines"
    __table_args__ = (
        Index(
            "ix_book_lines_group_key",
            "group_key",
            sqlite_where=text("group_key IS NOT NULL"),
            postgresql_where=text("group_key IS NOT NULL"),
        ),
        CLUSTERED,
    )
    match_key: str = text_column(primary=True)
    kind: str = text_column(primary=True)
    since: int = big_column(primary=True)
    until: int | None = big_column(null=True)
    line: str = text_column()
    reference: str = text_column()
    minor: int = big_column()
    currency: str = text_column()
    placed_at: int | None = big_column(null=True)
    status: str | None = text_column(null=True)
    group_key: str | None = text_column(null=True)
    group_name: str | None = text_column(null=True)
    phone: str | None = text_column(null=True)


class StatementLineRow(Table, table=True):
    """One version of one line of a statement: the `ordinal`-th movement of this kind of one
    payment (`subject`), or of one order or payout where no payment is named."""

    __tablename__ = "statement_lines"
    __table_args__ = (
        Index(
            "ix_statement_lines_match_key",
            "match_key",
            sqlite_where=text("match_key IS NOT NULL"),
            postgresql_where=text("match_key IS NOT NULL"),
        ),
        CLUSTERED,
    )
    subject: str = text_column(primary=True)
    kind: str = text_column(primary=True)
    source: str = text_column(primary=True)
    ordinal: int = big_column(primary=True)
    since: int = big_column(primary=True)
    until: int | None = big_column(null=True)
    line: str = text_column()
    match_key: str | None = text_column(null=True)
    payment: str | None = text_column(null=True)
    order_ref: str | None = text_column(null=True)
    currency: str = text_column()
    gross: int = big_column()
    fee: int = big_column()
    net: int = big_column()
    settled_at: int | None = big_column(null=True)
    payout: str | None = text_column(null=True)
