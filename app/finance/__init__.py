"""Order books and statements: imported, matched with ledgers, reported, and months closed."""

__all__ = (
    "book_line_store",
    "break_acts",
    "calendar",
    "close_period",
    "closed_periods",
    "files.presets",
    "imports",
    "ledger_line_store",
    "ledger_lines",
    "match_rules",
    "read_lines",
    "reconcile_period",
    "reconcile_rows",
    "report_period",
    "reports.journal",
    "reports.render",
    "verify_periods",
    "withdraw_import",
    "worklist",
)
