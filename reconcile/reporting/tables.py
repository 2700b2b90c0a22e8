"""The report as tables: every table's name, heading, explanation and columns, declared once.

Leaves out: layout. JSON, CSV, workbook, page and PDF all print these tables and nothing else, so
a new column or table is one line here and a field in `report`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, Literal

from reconcile.instants import format_instant, parse_instant
from reconcile.money import Money, to_json
from reconcile.reporting import report as r
from reconcile.reporting.report import PeriodReport, Scope
from reconcile.values import frozen

Kind = Literal["text", "count", "money", "instant", "duration", "yes", "list"]
"""What a cell is. `money` is minor units of the row's own `currency`, and a plain count in a row
whose currency is None; `list` is a tuple of texts; any cell may be None."""


@frozen
class Column:
    """One column: the row's field or property, and what its cells are."""

    name: str
    kind: Kind = "text"

    @property
    def heading(self) -> str:
        """For people."""
        return self.name.replace("_", " ")


@frozen
class Table:
    """One table of the report.

    name   the field of PeriodReport that holds its rows
    row    the type of a row
    about  what a row is and how to read it, for people
    """

    name: str
    title: str
    about: str
    row: type[Any]
    columns: tuple[Column, ...]

    def rows(self, report: PeriodReport) -> tuple[Any, ...]:
        """Its rows in this report."""
        return tuple(getattr(report, self.name))


def _columns(declared: str) -> tuple[Column, ...]:
    """`currency count:count` is a text and a count."""
    found = []
    for each in declared.split():
        name, _, kind = each.partition(":")
        found.append(Column(name=name, kind=kind or "text"))  # type: ignore[arg-type]
    return tuple(found)


def _table(name: str, title: str, row: type[Any], columns: str, *, about: str) -> Table:
    return Table(name=name, title=title, about=about, row=row, columns=_columns(columns))


TABLES: Final[tuple[Table, ...]] = (
    _table("notes", "To be known first", r.Note, "sentence", about="What bears on the whole."),
    _table(
        "control",
        "Control totals by outcome",
        r.ControlRow,
        "currency bucket count:count sum:money captured:money refunded:money lost:money",
        about="Every order of the period stands in exactly one row; money that moved in the period "
        "stands in the row of its own currency.",
    ),
    _table(
        "outcomes",
        "Outcomes and why",
        r.OutcomeRow,
        "outcome group reason sentence orders:count further_attempts:count redelivered:count "
        "late:count out_of_order:count",
        about="Orders of the period by the reason that decided; and of these, how many took "
        "further attempts, or had events delivered again, late, or out of order.",
    ),
    _table(
        "times",
        "Outcomes over time",
        r.TimeRow,
        "start:instant success:count failure:count timeout:count open:count",
        about="Orders by when they were opened, and how they ended as far as is known.",
    ),
    _table(
        "breaks",
        "Breaks by cause and age",
        r.BreakRow,
        "cause age state currency count:count sum:money at_risk:money",
        about="Differences between ledgers, order book and statement that are still there. The sum "
        "is what they are about; at risk is what of it may be lost: not what is held and only "
        "missing in a file, nor what is owed back, nor a mistake of unit, nor what was accepted.",
    ),
    _table(
        "late",
        "Late changes: money of earlier months",
        r.LateRow,
        "month kind currency count:count sum:money",
        about="Movements dated before the period that became known in it.",
    ),
    _table(
        "changes",
        "Late changes: outcomes of earlier orders",
        r.ChangeRow,
        "before after count:count",
        about="Orders opened before the period whose published outcome changed in it.",
    ),
    _table(
        "adjustments",
        "Adjustments to closed months",
        r.AdjustmentRow,
        "period figure currency count_change:count sum_original:money sum_told:money "
        "sum_change:money sum_now:money closing",
        about="A closed report never changes. What was learned since stands here, in the month "
        "after the last closed one: the figure as it was closed, what reports since have added to "
        "it, what this one adds, and what it is now.",
    ),
    _table(
        "fees",
        "Fees",
        r.FeeRow,
        "currency kind count:count gross:money fee:money net:money",
        about="Statement lines placed in the period. Fees are positive where they cost.",
    ),
    _table(
        "money",
        "Money: from captured to settled, and to the bank",
        r.MoneyRow,
        "currency flow count:count sum:money",
        about="Net is captured less refunded, lost in disputes and fees. Not settled: no statement "
        "line yet; differs: the statement says less than the ledger; other currency: what was "
        "settled in another one, less what was settled of another one; not notified: lines that no "
        "webhook told of, the same as among the breaks; no movement: lines of open and won "
        "disputes and of payments in doubt, whose sum is not certain. Where files of the bank are "
        "there: in bank, what it has of what was settled; exchanged, what it booked in another "
        "currency; bank differs, what it has less than was paid out; not in bank, not booked yet; "
        "no payout, lines that name none.",
    ),
    _table(
        "delays",
        "How long webhooks took",
        r.DelayRow,
        "up_to:duration movements:count",
        about="From the provider's date of a movement to the moment it reached us.",
    ),
    _table(
        "findings",
        "Findings",
        r.FindingRow,
        "finding severity orders:count sentence",
        about="Orders of the period that have a finding. One order can have several.",
    ),
    _table(
        "flow",
        "Orders: opening, new, closed, closing",
        r.FlowRow,
        "currency step count:count sum:money",
        about="Opening: opened before the period and without a final outcome at its start. "
        "Closing: the same at its end. The sum is what these orders cost.",
    ),
    _table(
        "matching",
        "Matching: ledgers, order book and statement",
        r.MatchingRow,
        "side currency family bucket count:count sum:money fee:money net:money",
        about="Rows of orders that belong to the period by the date in the book, else by their "
        "first money. Each is in one bucket: it matched, it waits for the other side, or breaks. "
        "Sides: book, the lines of the order book; takings, what was captured, held against the "
        "book; settlement, the same, held against the statements; statement, their lines; payouts, "
        "the sums of their payouts, held against the bank; bank, what it booked.",
    ),
    _table(
        "ties",
        "Control: what must be equal",
        r.Tie,
        "name currency left left_value:money right right_value:money holds:yes",
        about="Each line is one number, added up in two ways.",
    ),
    _table(
        "break_lines",
        "Each break",
        r.BreakLine,
        "cause state order payment currency sum:money since:instant age_days:count sentence "
        "next_step identity cites:list",
        about="The oldest first.",
    ),
    _table(
        "late_lines",
        "Each late movement",
        r.LateLine,
        "order kind source payment currency sum:money at:instant received_at:instant cites:list",
        about="By the moment it became known.",
    ),
    _table(
        "change_lines",
        "Each late change of outcome",
        r.ChangeLine,
        "order at:instant before after because",
        about="By the moment it was published.",
    ),
    _table(
        "unlisted",
        "What is counted and not listed",
        r.Unlisted,
        "table listed:count bound:count left_out:count",
        about="Lists are bounded; the totals above count everything.",
    ),
)
"""In the order in which a reader wants them: where every order stands and why, what is wrong, what
changed late and what it cost; then what proves it, in full; the lists of single things last."""


# --- the report as JSON values, and back ----------------------------------------------------------


def report_document(report: PeriodReport) -> dict[str, Any]:
    """The report as JSON values: what it is of, whether the ties hold, then each table's rows."""
    scope = report.scope
    return {
        "from": format_instant(scope.start),
        "to": format_instant(scope.end),
        "as_of": format_instant(scope.as_of),
        "basis": scope.basis,
        "environment": scope.environment,
        **({} if scope.zone == "UTC" else {"zone": scope.zone}),
        "ties_hold": report.ties_hold,
        **{
            table.name: [_row(table, row) for row in getattr(report, table.name)]
            for table in TABLES
        },
    }


def _row(table: Table, row: Any) -> dict[str, Any]:
    return {column.name: _cell(column, getattr(row, column.name), row) for column in table.columns}


def _cell(column: Column, value: Any, row: Any) -> Any:
    if value is None:
        return None
    if column.kind == "money" and row.currency is not None:
        return to_json(Money(minor=value, currency=row.currency))
    if column.kind == "instant":
        return format_instant(value)
    return list(value) if column.kind == "list" else value


def report_of(document: dict[str, Any]) -> PeriodReport:
    """The report of a document. Raises KeyError, TypeError or ValueError where it is not one."""
    scope = Scope(
        start=parse_instant(document["from"]),
        end=parse_instant(document["to"]),
        as_of=parse_instant(document["as_of"]),
        basis=document["basis"],
        environment=document["environment"],
        zone=document.get("zone", "UTC"),
    )
    tables: dict[str, Any] = {
        table.name: tuple(_read_row(table, row) for row in document[table.name]) for table in TABLES
    }
    return PeriodReport(scope=scope, **tables)


def _read_row(table: Table, row: dict[str, Any]) -> Any:
    """Columns that are properties of the row follow from its fields and are not read."""
    own = {each.name for each in fields(table.row)}
    return table.row(
        **{
            column.name: _read(column, row[column.name])
            for column in table.columns
            if column.name in own and column.name in row  # an earlier version had fewer
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
