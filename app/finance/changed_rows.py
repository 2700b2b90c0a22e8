"""Describe the rows that an import changed, before and after."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final

from app.context.context import AppContext
from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.errors import UsageError
from app.database.engine import Connection
from app.database.statements import Rows
from app.finance import line_version_store
from app.finance.import_store import Import, ImportKind
from app.finance.write_import import Write
from reconcile.instants import format_instant
from reconcile.money import Money, to_json

NAMES: Final = {
    "minor": "amount", "refunded": "refunded_amount", "group_name": "group", "order_ref": "order",
    "told": "text", "entry": "entry_reference",
}  # fmt: skip

MONEY: Final = frozenset({"minor", "refunded", "gross", "fee", "net"})

NOT_SHOWN: Final = frozenset({"match_key", "group_key"})

CALLED_BY: Final[dict[ImportKind, tuple[str, ...]]] = {
    "book": ("reference",),
    "statement": ("payment", "order_ref", "payout"),
    "bank": ("reference", "entry", "account"),
}
"""Columns that name a line for people, the best first."""

CSV_COLUMNS: Final = ("line", "name", "column", "before", "after")


def changed_document(kind: ImportKind, changed: line_version_store.ChangedLine) -> dict[str, Any]:
    """Return a changed line as a document. Phone numbers are hidden."""
    columns = line_version_store.LINES[kind].content
    before, after = (
        dict(zip(columns, version, strict=True)) for version in (changed.before, changed.after)
    )
    differ = [name for name in columns if before[name] != after[name] and name not in NOT_SHOWN]
    return {
        "line": changed.line,
        "name": next((after[name] for name in CALLED_BY[kind] if after[name]), None),
        "columns": [
            {
                "column": NAMES.get(name, name),
                "before": _shown(name, before),
                "after": _shown(name, after),
            }
            for name in differ
        ],
    }


def _shown(name: str, version: dict[str, Any]) -> Any:
    value = version[name]
    if value in (None, ""):
        return None
    if name == "phone":
        return "•••"
    if name in MONEY:
        return to_json(Money(minor=value, currency=version["currency"]))
    return format_instant(value) if name.endswith("_at") else value


def changed_csv(kind: ImportKind, lines: Iterable[line_version_store.ChangedLine]) -> str:
    """Return CSV rows, one for each changed column."""
    return "".join(
        csv_line(
            [
                found["line"],
                safe_cell(found["name"] or ""),
                each["column"],
                *(safe_cell(_text(each[side])) for side in ("before", "after")),
            ]
        )
        for found in (changed_document(kind, line) for line in lines)
        for each in found["columns"]
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['currency']} {value['amount']}"
    return "" if value is None else str(value)


def noting_changes(write: Write, kind: ImportKind, file: Path) -> Write:
    """Return a function that calls `write` and appends the changed rows to a new file. Raise
    UsageError if the file exists."""
    if file.exists():
        raise UsageError(f"{file.name} already exists: move it, or give --changes FILE")
    head = BYTE_ORDER_MARK + csv_line(CSV_COLUMNS)

    async def noting(
        connection: Connection, rows: Rows, **more: Any
    ) -> line_version_store.WrittenVersions:
        nonlocal head
        counts = await write(connection, rows, **more)
        try:
            with file.open("a", encoding="utf-8", newline="") as opened:
                opened.write(head + changed_csv(kind, counts.changes))
        except OSError as error:
            raise UsageError(f"{file.name} cannot be written: {error.strerror}") from None
        head = ""
        return counts

    return noting


async def changed_by(
    context: AppContext, found: Import
) -> AsyncIterator[list[line_version_store.ChangedLine]]:
    """Yield the lines that a published import changed, in batches."""
    if found.changed:
        async with context.database.reading() as connection:
            async for lines in line_version_store.changed_lines(connection, found):
                yield lines


async def first_changes(context: AppContext, found: Import) -> list[dict[str, Any]]:
    """Return the first MOST_CHANGES lines that an import changed."""
    first = list[line_version_store.ChangedLine]()
    async for lines in changed_by(context, found):
        first += lines
        if len(first) >= line_version_store.MOST_CHANGES:
            break
    return [changed_document(found.kind, each) for each in first[: line_version_store.MOST_CHANGES]]


async def changes_file(context: AppContext, found: Import) -> AsyncIterator[str]:
    """Yield a CSV file with all lines that an import changed."""
    yield BYTE_ORDER_MARK + csv_line(CSV_COLUMNS)
    async for lines in changed_by(context, found):
        yield changed_csv(found.kind, lines)
