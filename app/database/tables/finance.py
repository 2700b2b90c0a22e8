"""The tables of finance: imports, and the lines of order books and statements that they brought.

A line is never changed. `since` is the number of the import that brought this version of it, and
`until` that of the import that brought the next one; what an import under way has written is seen
by nobody before it is published.
"""

from __future__ import annotations

from sqlalchemy import Index, text

from app.database import marks
from app.database.tables.core import CLUSTERED, STRICT, Table, big_column, blob_column, text_column


class LedgerLineRow(Table, table=True):
    """What an order's ledger contributes to a reconciliation, in the order in which books and
    statements are merged with it. A cache: see `finance/reconcile_rows.py`."""

    __tablename__ = "takings"
    __table_args__ = (
        Index(
            "ix_takings_order_key_generation_until", "order_key", "generation", "until", unique=True
        ),
        CLUSTERED,
    )
    key: str = text_column(marks.REFERENCE, primary=True)
    order_key: str = text_column(marks.REFERENCE, primary=True)
    minor: int = big_column()
    currency: str = text_column(marks.CODES)
    source: str = text_column(marks.CODES)
    payment: str = text_column(marks.REFERENCE)
    cite: str = text_column(marks.REFERENCE)
    at: int = big_column()
    opened_at: int = big_column()
    plain: int = big_column()
    told: str = text_column(marks.REFERENCE)
    generation: int = big_column()
    until: int | None = big_column(null=True)


class RulesRow(Table, table=True):
    """One saved set of rules, as its file said; the last one is in force. Append-only."""

    __tablename__ = "match_rules"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    at: int = big_column()
    who: str = text_column(marks.STAFF)
    digest: str = text_column(marks.RULES)
    toml: str = text_column(marks.RULES)


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
    result: str = text_column(
        marks.possibly_personal("cites references", because="it says what was found then")
    )


class BreakRow(Table, table=True):
    """One difference, which keeps its id from run to run. Append-only."""

    __tablename__ = "breaks"
    __table_args__ = (
        Index("ix_breaks_cause", "cause", "id"),
        Index("ix_breaks_subject", "subject"),
        Index("ix_breaks_order_ref", "order_ref"),
        CLUSTERED,
    )
    id: str = text_column(marks.CODES, primary=True)
    cause: str = text_column(marks.CODES)
    order_ref: str | None = text_column(marks.REFERENCE, null=True)
    payment: str | None = text_column(marks.REFERENCE, null=True)
    subject: str | None = text_column(marks.REFERENCE, null=True)


class BreakVersionRow(Table, table=True):
    """What a run saw of a break: money, age and evidence. Runs that see the same share one."""

    __tablename__ = "break_versions"
    __table_args__ = CLUSTERED
    break_id: str = text_column(marks.CODES, primary=True)
    version: int = big_column(primary=True)
    digest: str = text_column(marks.CODES)
    minor: int = big_column()
    currency: str = text_column(marks.CODES)
    since: int = big_column()
    seen: str = text_column(marks.REFERENCE)


class BreakSeenRow(Table, table=True):
    """That a run saw a break, and as which version."""

    __tablename__ = "break_seen"
    __table_args__ = CLUSTERED
    run: int = big_column(primary=True)
    break_id: str = text_column(marks.CODES, primary=True)
    version: int = big_column()


class BreakTurnRow(Table, table=True):
    """What a run changed in the life of a break: opened, changed, closed, reopened."""

    __tablename__ = "break_turns"
    __table_args__ = CLUSTERED
    break_id: str = text_column(marks.CODES, primary=True)
    run: int = big_column(primary=True)
    turn: str = text_column(marks.CODES)
    version: int = big_column()
    cites: str = text_column(marks.REFERENCE)


class BreakDeedRow(Table, table=True):
    """What a person did about a break; `value` is a name, an action or a line. Append-only."""

    __tablename__ = "break_deeds"
    __table_args__ = (Index("ix_break_deeds_break_id", "break_id", "number"), STRICT)
    number: int = big_column(primary=True)
    break_id: str = text_column(marks.CODES)
    at: int = big_column()
    who: str = text_column(marks.STAFF)
    deed: str = text_column(marks.CODES)
    value: str = text_column(marks.REFERENCE)
    reason: str = text_column(marks.TRAIL_WORDS)
    second: str | None = text_column(marks.STAFF, null=True)
    minor: int = big_column()
    currency: str = text_column(marks.CODES)


class ClosingRow(Table, table=True):
    """One closed month, written once: all of it as canonical JSON, and the SHA-256 of that."""

    __tablename__ = "closings"
    __table_args__ = STRICT
    period: str = text_column(marks.CODES, primary=True)
    as_of: int = big_column()
    closed_at: int = big_column()
    who: str = text_column(marks.STAFF)
    digest: str = text_column(marks.CODES)
    document: str = text_column(marks.CLOSED)


class ClosingPrintRow(Table, table=True):
    """The closed report in one format, as it was printed then; `content` is deflated (zlib)."""

    __tablename__ = "closing_prints"
    __table_args__ = STRICT
    period: str = text_column(marks.CODES, primary=True)
    format: str = text_column(marks.CODES, primary=True)
    content: bytes | None = blob_column(
        marks.possibly_personal(
            "holds references", because="it is the closed month's report as it was printed"
        )
    )


class ImportRow(Table, table=True):
    """One import of a file. `published_at` is NULL while it is under way, or if it was killed;
    `written` then shows whether it is still alive. One that takes another one back says which
    (`withdraws`), and why (`reason`)."""

    __tablename__ = "imports"
    __table_args__ = (
        Index(
            "ix_imports_withdraws",
            "withdraws",
            sqlite_where=text("withdraws IS NOT NULL"),
            postgresql_where=text("withdraws IS NOT NULL"),
        ),
        STRICT,
    )
    number: int = big_column(primary=True)
    kind: str = text_column(marks.CODES)
    file: str = text_column(
        marks.possibly_personal(
            "the name of the merchant's file", because="it says where lines came from"
        )
    )
    sha256: str = text_column(marks.CODES)
    who: str = text_column(marks.STAFF)
    started_at: int = big_column()
    published_at: int | None = big_column(null=True)
    written: int = big_column()
    read: int = big_column()
    new: int = big_column()
    changed: int = big_column()
    unchanged: int = big_column()
    rejected: int = big_column()
    withdraws: int | None = big_column(null=True)
    reason: str | None = text_column(marks.IMPORT_WORDS, null=True)


class BookLineRow(Table, table=True):
    """One version of one line of an order book: a reference of one kind, as `match_key` has it.
    `refunded` is what of `minor` the book says went back, NULL where it does not say.

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
        Index(
            "ix_book_lines_phone",
            "phone",
            sqlite_where=text("phone IS NOT NULL"),
            postgresql_where=text("phone IS NOT NULL"),
        ),
        CLUSTERED,
    )
    match_key: str = text_column(marks.REFERENCE, primary=True)
    kind: str = text_column(marks.CODES, primary=True)
    since: int = big_column(primary=True)
    until: int | None = big_column(null=True)
    line: str = text_column(marks.CODES)
    reference: str = text_column(marks.REFERENCE)
    minor: int = big_column()
    currency: str = text_column(marks.CODES)
    placed_at: int | None = big_column(null=True)
    status: str | None = text_column(marks.CODES, null=True)
    group_key: str | None = text_column(marks.REFERENCE, null=True)
    group_name: str | None = text_column(
        marks.possibly_personal(
            "a reference of the shop's own",
            because="payments are matched by it, and a closed month is proved by it",
        ),
        null=True,
    )
    phone: str | None = text_column(
        marks.personal("the customer's number", erased="emptied"), null=True
    )
    refunded: int | None = big_column(null=True)
    refunded_at: int | None = big_column(null=True)


class BankLineRow(Table, table=True):
    """One version of one line of a bank account: the `ordinal`-th of those that the bank states
    alike; `subject` is the digest of what it states. In texts, phone numbers that were erased
    show as dots."""

    __tablename__ = "bank_lines"
    __table_args__ = CLUSTERED
    subject: str = text_column(marks.CODES, primary=True)
    ordinal: int = big_column(primary=True)
    since: int = big_column(primary=True)
    until: int | None = big_column(null=True)
    line: str = text_column(marks.CODES)
    account: str = text_column(marks.not_personal("the merchant's own account"))
    currency: str = text_column(marks.CODES)
    minor: int = big_column()
    booked_at: int = big_column()
    entry: str = text_column(marks.BANK_WORDS)
    reference: str = text_column(marks.BANK_WORDS)
    counterparty: str = text_column(marks.BANK_WORDS)
    told: str = text_column(marks.BANK_WORDS)


class ScheduledRunRow(Table, table=True):
    """One time of one entry of the schedule, or one that a person asked for (`asked`); or, with the
    state `seen`, since when an entry has been watched. `until`: of one that runs the end of its
    lease, of one that failed when it is tried again. `delivered` is JSON: what went which way."""

    __tablename__ = "scheduled_runs"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.CODES, primary=True)
    due_at: int = big_column(primary=True)
    cron: str = text_column(marks.CODES)
    state: str = text_column(marks.CODES)
    asked: int = big_column()
    late: int = big_column()
    tries: int = big_column()
    as_of: int = big_column()
    until: int | None = big_column(null=True)
    ended_at: int | None = big_column(null=True)
    run: int | None = big_column(null=True)
    problem: str | None = text_column(marks.SCHEDULE_WORDS, null=True)
    delivered: str = text_column(marks.SCHEDULE_WORDS)


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
    subject: str = text_column(marks.REFERENCE, primary=True)
    kind: str = text_column(marks.CODES, primary=True)
    source: str = text_column(marks.CODES, primary=True)
    ordinal: int = big_column(primary=True)
    since: int = big_column(primary=True)
    until: int | None = big_column(null=True)
    line: str = text_column(marks.CODES)
    match_key: str | None = text_column(marks.REFERENCE, null=True)
    payment: str | None = text_column(marks.REFERENCE, null=True)
    order_ref: str | None = text_column(marks.REFERENCE, null=True)
    currency: str = text_column(marks.CODES)
    gross: int = big_column()
    fee: int = big_column()
    net: int = big_column()
    settled_at: int | None = big_column(null=True)
    payout: str | None = text_column(marks.REFERENCE, null=True)
