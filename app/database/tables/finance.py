"""Tables of finance: imports and their lines, reconciliation runs, breaks and closings.

A line is never changed: `since` is the import that brought this version, and `until` the import
that brought the next.
"""

from sqlalchemy import Index

from app.database import marks
from app.database.tables.core import (
    CLUSTERED,
    STRICT,
    Table,
    big_column,
    blob_column,
    partial_index,
    text_column,
)


class LedgerLineRow(Table, table=True):
    """Cached data of an order's ledger for reconciliation (`finance/reconcile_rows.py`).

    `key` equals the key of matching lines.
    """

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
    """Saved set of matching rules, stored as its TOML file. The last set applies. Rows are never
    changed or deleted."""

    __tablename__ = "match_rules"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    at: int = big_column()
    who: str = text_column(marks.STAFF)
    digest: str = text_column(marks.RULES)
    toml: str = text_column(marks.RULES)


class RunRow(Table, table=True):
    """Reconciliation run with its period, rules and result.

    `lived` is 1 if the run opened and closed breaks.
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
        marks.possibly_personal(
            "references to orders",
            because="it records what was found at that time",
            ground="accounts",
        )
    )


class BreakRow(Table, table=True):
    """Break, with a permanent id in all runs that find it. Append-only."""

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
    """Version of a break: its money, age and evidence. Runs that find an equal version share the
    row."""

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
    """Break that a reconciliation run found, with the break's version."""

    __tablename__ = "break_seen"
    __table_args__ = CLUSTERED
    run: int = big_column(primary=True)
    break_id: str = text_column(marks.CODES, primary=True)
    version: int = big_column()


class BreakTurnRow(Table, table=True):
    """Change that a reconciliation run made to a break. `turn` is opened, changed, closed or
    reopened."""

    __tablename__ = "break_turns"
    __table_args__ = CLUSTERED
    break_id: str = text_column(marks.CODES, primary=True)
    run: int = big_column(primary=True)
    turn: str = text_column(marks.CODES)
    version: int = big_column()
    cites: str = text_column(marks.REFERENCE)


class BreakDeedRow(Table, table=True):
    """Act of a person on a break. Append-only."""

    __tablename__ = "break_deeds"
    __table_args__ = (Index("ix_break_deeds_break_id", "break_id", "number"), STRICT)
    number: int = big_column(primary=True)
    break_id: str = text_column(marks.CODES)
    at: int = big_column()
    who: str = text_column(marks.STAFF)
    deed: str = text_column(marks.CODES)
    value: str = text_column(marks.REFERENCE)
    """A person's name, an action or a line, depending on the act."""
    reason: str = text_column(marks.TRAIL_WORDS)
    second: str | None = text_column(marks.STAFF, null=True)
    minor: int = big_column()
    currency: str = text_column(marks.CODES)


class ClosingRow(Table, table=True):
    """Closed month, as canonical JSON with its SHA-256, in versions. Append-only."""

    __tablename__ = "closings"
    __table_args__ = STRICT
    period: str = text_column(marks.CODES, primary=True)
    version: int = big_column(primary=True)
    as_of: int = big_column()
    closed_at: int = big_column()
    who: str = text_column(marks.STAFF)
    second: str | None = text_column(marks.STAFF, null=True)
    digest: str = text_column(marks.CODES)
    document: str = text_column(marks.CLOSED)


class ReopeningRow(Table, table=True):
    """Reopening of a closed month, as canonical JSON with its SHA-256. Append-only.

    `version` is that of the reopened closing.
    """

    __tablename__ = "reopenings"
    __table_args__ = STRICT
    period: str = text_column(marks.CODES, primary=True)
    version: int = big_column(primary=True)
    at: int = big_column()
    who: str = text_column(marks.STAFF)
    digest: str = text_column(marks.CODES)
    document: str = text_column(marks.TRAIL_WORDS)


class ClosingPrintRow(Table, table=True):
    """Part of a closed month's report or journal in one format. `content` is compressed (zlib)."""

    __tablename__ = "closing_prints"
    __table_args__ = STRICT
    period: str = text_column(marks.CODES, primary=True)
    version: int = big_column(primary=True)
    format: str = text_column(marks.CODES, primary=True)
    part: int = big_column(primary=True)
    content: bytes | None = blob_column(
        marks.possibly_personal(
            "references to orders",
            because="it is the closed month as printed",
            ground="accounts",
        )
    )


class ImportRow(Table, table=True):
    """Import of a file."""

    __tablename__ = "imports"
    __table_args__ = (
        partial_index("ix_imports_withdraws", "withdraws", where="withdraws IS NOT NULL"),
        STRICT,
    )
    number: int = big_column(primary=True)
    kind: str = text_column(marks.CODES)
    file: str = text_column(
        marks.possibly_personal(
            "the name of the merchant's file",
            because="it records the origin of lines",
            ground="accounts",
        )
    )
    sha256: str = text_column(marks.CODES)
    who: str = text_column(marks.STAFF)
    started_at: int = big_column()
    published_at: int | None = big_column(null=True)
    """NULL while the import runs, or if it was killed."""
    written: int = big_column()
    """Number that grows while the import runs."""
    read: int = big_column()
    new: int = big_column()
    changed: int = big_column()
    unchanged: int = big_column()
    rejected: int = big_column()
    withdraws: int | None = big_column(null=True)
    """Number of an earlier import that this row withdraws."""
    reason: str | None = text_column(marks.IMPORT_WORDS, null=True)
    """Reason why that import is withdrawn."""


class CoverageRow(Table, table=True):
    """Time span that files of a source, bank account or order book cover. Append-only.

    A file states the span, or a person declares it. `withdraws` is the number of an earlier
    declaration that this row cancels.
    """

    __tablename__ = "coverage"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    of_import: int | None = big_column(null=True)
    kind: str = text_column(marks.CODES)
    name: str = text_column(marks.not_personal("names a source, an account or an order book"))
    wallet: str | None = text_column(marks.CODES, null=True)
    since: int | None = big_column(null=True)
    until: int | None = big_column(null=True)
    who: str = text_column(marks.STAFF)
    at: int = big_column()
    reason: str | None = text_column(marks.IMPORT_WORDS, null=True)
    withdraws: int | None = big_column(null=True)
    format: str | None = text_column(
        marks.not_personal("a format, or the columns of a table"), null=True
    )
    first_day: str | None = text_column(marks.CODES, null=True)
    last_day: str | None = text_column(marks.CODES, null=True)


class BankBalancesRow(Table, table=True):
    """Opening and closing balance of one bank statement, with the bank's days. Append-only."""

    __tablename__ = "bank_balances"
    __table_args__ = CLUSTERED
    of_import: int = big_column(primary=True)
    place: int = big_column(primary=True)
    account: str = text_column(marks.not_personal("the merchant's own account"))
    currency: str = text_column(marks.CODES)
    opened: str = text_column(marks.CODES)
    closed: str = text_column(marks.CODES)
    opening: int = big_column()
    closing: int = big_column()
    difference: int = big_column()
    """Amount that the entries do not explain."""
    proposal: str | None = text_column(marks.CODES, null=True)
    """Proposal by which two people accepted this difference."""


class MappingRow(Table, table=True):
    """Description of a file's columns that a person saved under a name, as TOML."""

    __tablename__ = "mappings"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.RULES, primary=True)
    kind: str = text_column(marks.CODES)
    toml: str = text_column(marks.RULES)
    who: str = text_column(marks.STAFF)
    at: int = big_column()


class ImportTaskRow(Table, table=True):
    """File in the watched import folder that needs a person's decision. The row is deleted with the
    file."""

    __tablename__ = "import_tasks"
    __table_args__ = CLUSTERED
    folder: str = text_column(marks.CODES, primary=True)
    file: str = text_column(
        marks.possibly_personal(
            "the name of the merchant's file",
            because="it names the waiting file, and is deleted with it",
            ground="accounts",
        ),
        primary=True,
    )
    problem: str = text_column(
        marks.possibly_personal(
            "messages about the file, which may quote a cell",
            because="staff need the messages to correct the file; deleted with the file",
            ground="accounts",
        )
    )
    since: int = big_column()


class BookLineRow(Table, table=True):
    """Version of a line in an order book, once for each reference in it."""

    __tablename__ = "book_lines"
    __table_args__ = (
        partial_index("ix_book_lines_group_key", "group_key", where="group_key IS NOT NULL"),
        partial_index("ix_book_lines_phone", "phone", where="phone IS NOT NULL"),
        partial_index("ix_book_lines_method", "method", where="method IS NOT NULL"),
        CLUSTERED,
    )
    match_key: str = text_column(marks.REFERENCE, primary=True)
    """The reference as normalized text."""
    kind: str = text_column(marks.CODES, primary=True)
    """Kind of the reference."""
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
            "the shop's own reference",
            because="it matches payments and proves a closed month",
            ground="accounts",
        ),
        null=True,
    )
    phone: str | None = text_column(
        marks.personal("the customer's number", erased="emptied"), null=True
    )
    """Phone number. Empty, not NULL, after an erasure."""
    refunded: int | None = big_column(null=True)
    """Refunded amount, a part of `minor`. NULL if not stated."""
    refunded_at: int | None = big_column(null=True)
    method: str | None = text_column(marks.not_personal("the name of a payment method"), null=True)


class BankLineRow(Table, table=True):
    """Version of a line of a bank account. Dots replace erased phone numbers."""

    __tablename__ = "bank_lines"
    __table_args__ = (
        Index("ix_bank_lines_booked_at", "booked_at"),
        Index("ix_bank_lines_line", "line"),
        CLUSTERED,
    )
    subject: str = text_column(marks.CODES, primary=True)
    """Digest of the line."""
    ordinal: int = big_column(primary=True)
    """Number that distinguishes identical lines."""
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
    """Run of scheduled work, or a run that a person requested (`asked`).

    A row in the state `seen` is no run: its `due_at` is the time since which the entry is known.
    """

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
    """End of the present process's right to the run. After a failure, time of the next try."""
    ended_at: int | None = big_column(null=True)
    waits_since: int | None = big_column(null=True)
    run: int | None = big_column(null=True)
    problem: str | None = text_column(marks.SCHEDULE_WORDS, null=True)
    delivered: str = text_column(marks.SCHEDULE_WORDS)
    """Places to which the result was sent, as JSON."""


class StatementLineRow(Table, table=True):
    """Version of a line of a settlement statement."""

    __tablename__ = "statement_lines"
    __table_args__ = (
        partial_index("ix_statement_lines_match_key", "match_key", where="match_key IS NOT NULL"),
        partial_index("ix_statement_lines_payout", "payout", where="payout IS NOT NULL"),
        partial_index(
            "ix_statement_lines_wallet",
            "source",
            "wallet",
            "currency",
            "settled_at",
            where="wallet IS NOT NULL",
        ),
        CLUSTERED,
    )
    subject: str = text_column(marks.REFERENCE, primary=True)
    """Payment of the line, or else its order or payout."""
    kind: str = text_column(marks.CODES, primary=True)
    source: str = text_column(marks.CODES, primary=True)
    ordinal: int = big_column(primary=True)
    """Number that distinguishes movements of one kind."""
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
    wallet: str | None = text_column(marks.CODES, null=True)
    refund: str | None = text_column(marks.REFERENCE, null=True)
    details: str | None = text_column(marks.CODES, null=True)
    balance: int | None = big_column(null=True)
