"""The report as JSON values, and back: nothing is lost on the way.

Money is `{"amount": "1500.00", "currency": "KES"}`, moments are RFC 3339, durations microseconds.
A stored document gives the same report again, and so the same bytes in every format.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from reconcile.instants import format_instant, parse_instant
from reconcile.money import Money, to_json
from reconcile.reporting.report import PeriodReport, Scope
from reconcile.reporting.tables import TABLES, Column, Table


def report_document(report: PeriodReport) -> dict[str, Any]:
    """The report as JSON values: what it is of, whether the ties hold, then each table's rows."""
    scope = report.scope
    return {
        "from": format_instant(scope.start),
        "to": format_instant(scope.end),
        "as_of": format_instant(scope.as_of),
        "basis": scope.basis,
        "environment": scope.environment,
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
