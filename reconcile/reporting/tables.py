"""Declare every table of the report."""

from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from reconcile.instants import format_instant, parse_instant
from reconcile.matching.wallets import WalletSums
from reconcile.money import Money, to_json
from reconcile.reporting import report as r
from reconcile.reporting.report import PeriodReport, Scope

Kind = Literal["text", "count", "money", "instant", "duration", "yes", "list"]
"""Kind of a column's cells. In a row without a currency, `money` is a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind = "text"
    currency: str = "currency"

    def money_in(self, row: Any) -> Money | None:
        """Return the money in the row's cell, or None."""
        value = getattr(row, self.name)
        if self.kind != "money" or value is None:
            return None
        currency = getattr(row, self.currency)
        return None if currency is None else Money(minor=value, currency=currency)

    @property
    def heading(self) -> str:
        return _HEADINGS.get(self.name, self.name.replace("_", " ").capitalize())


_HEADINGS: Final[dict[str, str]] = {
    "at": "Date",
    "at_risk": "At risk",
    "age_days": "Days old",
    "because": "Why",
    "bound": "At most",
    "bucket": "Stands as",
    "cites": "Rests on",
    "disbursed": "Paid to others",
    "closing": "Closing",
    "count": "Number",
    "count_change": "Change in number",
    "holds": "Agrees",
    "in_bank": "In the bank",
    "in_wallet": "At the provider",
    "left": "One way",
    "left_out": "Not listed",
    "left_value": "Adds up to",
    "listed": "Listed",
    "lost": "Lost in disputes",
    "movements": "Payments and refunds",
    "late": "Webhook late",
    "open": "Open",
    "of": "Of",
    "older": "Over 90 days",
    "origin": "Taken from",
    "out_of_order": "Out of order",
    "received_at": "Known since",
    "redelivered": "Sent again",
    "right": "The other way",
    "right_value": "Also adds up to",
    "sentence": "What it means",
    "rate": "For one unit",
    "start": "From",
    "stated": "By the statement",
    "success": "Paid",
    "failure": "Failed",
    "timeout": "Timed out",
    "identity": "Break",
    "name": "What is added up",
    "sum": "Amount",
    "sum_change": "Change",
    "sum_now": "Now",
    "sum_original": "As closed",
    "sum_told": "Reported since",
    "up_to": "Took",
    "up_to_1_day": "Up to 1 day",
    "up_to_30_days": "8 to 30 days",
    "up_to_7_days": "2 to 7 days",
    "up_to_90_days": "31 to 90 days",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """One table of the report."""

    name: str
    title: str
    about: str
    row: type[Any]
    columns: tuple[Column, ...]

    def rows(self, report: PeriodReport) -> tuple[Any, ...]:
        return tuple(getattr(report, self.name))


def table_of(name: str, title: str, row: type[Any], columns: str, *, about: str) -> ReportTable:
    """Build a table."""
    parts = [[*each.split(":"), "text", "currency"] for each in columns.split()]
    declared = tuple(
        Column(name=name, kind=kind, currency=rest[0] if len(rest) > 2 else "currency")  # type: ignore[arg-type]
        for name, kind, *rest in parts
    )
    return ReportTable(name=name, title=title, about=about, row=row, columns=declared)


TABLES: Final[tuple[ReportTable, ...]] = (
    table_of("notes", "Please note", r.Note, "sentence", about="Notes on the whole report."),
    table_of(
        "control",
        "Orders by outcome",
        r.ControlRow,
        "currency bucket count:count sum:money captured:money refunded:money lost:money",
        about=(
            "Every order of the period is counted in exactly one row. Money that moved in the "
            "period is in the row of its own currency."
        ),
    ),
    table_of(
        "outcomes",
        "Outcomes and reasons",
        r.OutcomeRow,
        "outcome group reason sentence orders:count further_attempts:count redelivered:count "
        "late:count out_of_order:count",
        about="Orders of the period by the deciding reason, and how many took further attempts or "
        "had events delivered again, late or out of order.",
    ),
    table_of(
        "times",
        "Outcomes over time",
        r.TimeRow,
        "start:instant success:count failure:count timeout:count open:count",
        about="Orders by the time when they were opened, and how they ended if that is known.",
    ),
    table_of(
        "breaks",
        "Breaks by cause and age",
        r.BreakAgeRow,
        "cause age state currency count:count sum:money at_risk:money",
        about="Open differences between ledgers, order book and statement. The sum is the amount "
        "concerned; at risk is the part that may be lost. It excludes money held but missing in a "
        "file, money owed back, unit mistakes and accepted breaks.",
    ),
    table_of(
        "late",
        "Late payments and refunds of earlier months",
        r.LateRow,
        "month kind currency count:count sum:money",
        about="Payments and refunds dated before the period that became known in it. Returned "
        "money is negative, because these months have less than was known.",
    ),
    table_of(
        "changes",
        "Earlier orders whose outcome changed",
        r.ChangeRow,
        "before after count:count",
        about="Orders opened before the period whose published outcome changed in it.",
    ),
    table_of(
        "adjustments",
        "Adjustments to closed months",
        r.AdjustmentRow,
        "period figure currency count_change:count sum_original:money sum_told:money "
        "sum_change:money sum_now:money closing",
        about="A closed report never changes. Later knowledge is here, in the month after the "
        "last closed one: the figure at closing, the changes in later reports, this report's "
        "change, and the figure now.",
    ),
    table_of(
        "own",
        "Totals in your own currency",
        r.OwnRow,
        "currency of flow sum:money",
        about="Money of the period at each day's rates; a row without a currency is the total of "
        "all currencies. Left by rates and rounding: money is captured and settled at the "
        "rates of "
        "different days, and each day's sum is rounded.",
    ),
    table_of(
        "settled_in",
        "Captured in … settled in …",
        r.SettledInRow,
        "captured_in settled_in count:count captured:money:captured_in settled:money:settled_in "
        "rate",
        about="Payments of the period by captured currency and settled currency, before fees, "
        "with the value of one unit. If the second currency is empty, the payment waits for its "
        "statement line.",
    ),
    table_of(
        "fees",
        "Fees",
        r.FeeRow,
        "currency kind count:count gross:money fee:money net:money",
        about="Statement lines placed in the period. Fees that you pay are positive.",
    ),
    table_of(
        "suspense",
        "Captured without an order",
        r.SuspenseRow,
        "currency line count:count sum:money",
        about="Payments that name no order, until somebody assigns them. The opening amount plus "
        "money received, less money assigned to orders, given back or booked as other business, "
        "is held at the end. The last rows divide that by age. No row of orders contains it.",
    ),
    table_of(
        "money",
        "From captured to the bank",
        r.MoneyRow,
        "currency flow count:count sum:money",
        about="Net is captured less refunds, lost disputes and fees, and should equal the "
        "statement. Not settled yet: no statement line so far. Settled for less: the statement "
        "has less than was captured. Settled, no webhook read: lines that no webhook stated, the "
        "same as among the breaks. Settled, open or in doubt: lines of open and won disputes and "
        "of payments in doubt. The last rows compare it with the bank. Less in the bank: it "
        "booked less than was paid out. In no payout: lines that name none.",
    ),
    table_of(
        "wallets",
        "Balances at providers",
        WalletSums,
        "source wallet currency opening:money settled:money withdrawn:money transferred:money "
        "held:money disbursed:money closing:money stated:money since:instant",
        about=(
            "Each balance at the start, its changes, the balance at the end, and the balance in "
            "the statement. Withdrawn money is on its way to the bank. Held-back money is a "
            "separate balance, with its first day. If no statement states a balance, it is zero "
            "before the first line."
        ),
    ),
    table_of(
        "delays",
        "Webhook delay",
        r.DelayRow,
        "up_to:duration movements:count",
        about="From the provider's date of a payment or refund to the moment its webhook came.",
    ),
    table_of(
        "findings",
        "Findings",
        r.FindingRow,
        "finding severity orders:count sentence",
        about="Orders of the period that have a finding. One order can have several.",
    ),
    table_of(
        "flow",
        "Orders opened and finished",
        r.FlowRow,
        "currency step count:count sum:money",
        about=(
            "Open at the start: opened before the period, and without a final outcome when the "
            "period began. Open at the end: without a final outcome when the period ended. The "
            "amount is the price of these orders."
        ),
    ),
    table_of(
        "matching",
        "Matching of ledgers, order book, statement and bank",
        r.MatchingRow,
        "side currency family bucket count:count sum:money fee:money net:money",
        about="Rows of the period's orders: the date in the order book decides, or the first "
        "payment if the book has no date. Each row is in one group: it matched, it waits for "
        "the other side, or it is a break. "
        "Payouts are the sums paid out according to the statements, compared with the bank.",
    ),
    table_of(
        "rates",
        "Rates of the totals in your own currency",
        r.RateRow,
        "of day rate origin",
        about="The value of one unit in your own currency: from your file for that day, else from "
        "the period's statements.",
    ),
    table_of(
        "coverage",
        "What the files cover",
        r.CoverageRow,
        "kind name wallet since:instant until:instant whole:yes payments:count declared_by",
        about="Days of the period that a file covers. Other days were compared with nothing.",
    ),
    table_of(
        "balances",
        "Bank statements that do not add up",
        r.BalanceRow,
        "account currency opened closed opening:money closing:money difference:money state "
        "next_opening:money accepted_by second why",
        about=(
            "Differences between the entries of a statement and its balances, as two people "
            "accepted them. If the next statement begins with the closing balance, the difference "
            "is confirmed. If it begins with another balance, the difference is open again."
        ),
    ),
    table_of(
        "unsettled",
        "Captured and not settled",
        r.UnsettledRow,
        "currency age count:count sum:money",
        about="Payments of the period that no statement line settles, by their age, without "
        "accepted ones.",
    ),
    table_of(
        "exceptions",
        "Exceptions",
        r.ExceptionRow,
        "line sentence why",
        about="Conditions that did not hold when two people closed the month, each with why.",
    ),
    table_of(
        "ties",
        "Sums that must agree",
        r.Tie,
        "name currency left left_value:money right right_value:money holds:yes",
        about="Each line is one number, added up in two ways.",
    ),
    table_of(
        "break_lines",
        "List of breaks",
        r.BreakLine,
        "cause state order payment currency sum:money since:instant age_days:count sentence "
        "next_step identity cites:list",
        about="The oldest first.",
    ),
    table_of(
        "late_lines",
        "List of late payments and refunds",
        r.LateLine,
        "order kind source payment currency sum:money at:instant received_at:instant cites:list",
        about="Sorted by the time when the money became known. Returned money is negative.",
    ),
    table_of(
        "change_lines",
        "List of changed outcomes",
        r.ChangeLine,
        "order at:instant before after because",
        about="Sorted by the time of publication.",
    ),
    table_of(
        "unlisted",
        "Length of the lists",
        r.Unlisted,
        "table listed:count bound:count left_out:count",
        about="The lists have a maximum length. The totals above count everything.",
    ),
)
"""All tables of the report, in reading order."""


def scope_document(scope: Scope) -> dict[str, Any]:
    """Return the scope of a report as JSON values."""
    document: dict[str, Any] = {
        "from": format_instant(scope.start),
        "to": format_instant(scope.end),
        "as_of": format_instant(scope.as_of),
        "basis": scope.basis,
        "environment": scope.environment,
    }
    if scope.zone != "UTC":
        document["zone"] = scope.zone
    if scope.merchant:
        document["merchant"] = scope.merchant
    if scope.closed_at is not None:
        document["closed_by"] = scope.closed_by
        document["closed_at"] = format_instant(scope.closed_at)
        document["version"] = scope.version
    if scope.proposed_at is not None:
        document["approved_by"] = scope.approved_by
        document["proposed_at"] = format_instant(scope.proposed_at)
    return document


def report_document(report: PeriodReport) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        **scope_document(report.scope),
        "ties_hold": report.ties_hold,
        **{
            table.name: [
                {c.name: _cell(c, getattr(row, c.name), row) for c in table.columns}
                for row in getattr(report, table.name)
            ]
            for table in TABLES
        },
    }


def _cell(column: Column, value: Any, row: Any) -> Any:
    if value is None:
        return None
    if (money := column.money_in(row)) is not None:
        return to_json(money)
    if column.kind == "instant":
        return format_instant(value)
    return list(value) if column.kind == "list" else value


def report_of(document: dict[str, Any]) -> PeriodReport:
    """Parse a report from JSON values. Raises KeyError, TypeError or ValueError for invalid
    values."""
    scope = Scope(
        start=parse_instant(document["from"]),
        end=parse_instant(document["to"]),
        as_of=parse_instant(document["as_of"]),
        basis=document["basis"],
        environment=document["environment"],
        zone=document.get("zone", "UTC"),
        merchant=document.get("merchant", ""),
        closed_by=document.get("closed_by", ""),
        closed_at=parse_instant(document["closed_at"]) if "closed_at" in document else None,
        approved_by=document.get("approved_by", ""),
        proposed_at=parse_instant(document["proposed_at"]) if "proposed_at" in document else None,
        version=document.get("version", 1),
    )
    tables: dict[str, Any] = {
        table.name: tuple(_read_row(table, row) for row in document[table.name]) for table in TABLES
    }
    return PeriodReport(scope=scope, **tables)


def _read_row(table: ReportTable, row: dict[str, Any]) -> Any:
    own = {each.name for each in fields(table.row)}
    return table.row(
        **{
            column.name: _read(column, row[column.name])
            for column in table.columns
            if column.name in own
        }
    )


def _read(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.kind == "money" and isinstance(value, dict):
        return int(value["amount"].replace(".", ""))
    if column.kind == "instant":
        return parse_instant(value)
    return tuple(value) if column.kind == "list" else value
