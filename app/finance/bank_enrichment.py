"""Import bank files of one account in several formats. One format creates the account's lines;
other formats only add texts to these lines."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from app.core.errors import UsageError
from app.core.text import counted
from app.database.engine import Connection
from app.finance.coverage_store import BankDays, CoverageLine, of_another_format
from app.finance.files.bank import BankForm
from app.finance.files.banks.entries import INTERIM, NOTIFICATION
from app.finance.line_version_store import lines_known
from app.finance.staged_rows import Row, Staged
from reconcile.instants import Instant

_COLUMNS: Final = tuple(BankForm.STAGED)
_TEXTS: Final = 3


async def accounts_to_enrich(
    connection: Connection,
    lines: Iterable[CoverageLine],
    *,
    booked_days: Callable[[str], Collection[str]],
) -> dict[str, str]:
    """Return the accounts to which this file only adds texts.

    - A notification (CAMT.054) never adds lines.
    - A report within the day adds lines if no other format has lines of the account.
    - Any other file adds lines if no other format has lines of its days.

    Each value is the error message for a file that fits no existing line. Raise UsageError if a
    booking would count twice or be left out.
    """
    found = dict[str, str]()
    for line in lines:
        if line.format is None or line.first_day is None or line.last_day is None:
            continue
        others = await of_another_format(connection, account=line.name, form=line.format)
        if line.format == NOTIFICATION or (line.format in INTERIM and others):
            found[line.name] = _NOTHING.format(line.name)
            continue
        shared = [
            each
            for each in others
            if each.first_day <= line.last_day and each.last_day >= line.first_day
        ]
        if not shared:
            continue
        within = not any(each.format in INTERIM for each in shared) and all(
            any(each.first_day <= day <= each.last_day for each in shared)
            for day in booked_days(line.name)
        )
        if not within:
            raise UsageError(_twice(line, shared))
        found[line.name] = _twice(line, shared)
    return found


_NOTHING: Final = (
    "no entry of this file has the same bank reference as a line of the account {}. Files of "
    "this format add no lines; they only complete existing ones. Import the statement of the "
    "same days first"
)


def _twice(line: CoverageLine, shared: Sequence[BankDays]) -> str:
    first = shared[0]
    have, them = "has", f"import {first.number}"
    if len(shared) > 1:
        have, them = f"and {counted(len(shared) - 1, 'other import')} have", "these imports"
    return (
        f"this file is {line.format}, of {line.first_day} to {line.last_day}, and import "
        f"{first.number} ({first.file}, {first.format}, {first.first_day} to "
        f"{first.last_day}) {have} some of these days of the account {line.name} already: a "
        f"booking would count twice. Use {first.format} for these days, or withdraw {them} "
        f"(`tallyhook bank withdraw {first.number}`) and import this file again"
    )


async def enrich(
    connection: Connection, staged: Staged, accounts: Mapping[str, str], *, as_of: Instant
) -> list[str]:
    """Replace staged entries by existing bank lines, fill missing texts, and return notes. Raise
    UsageError for an account without a fitting entry."""
    of, entry = 1 + _COLUMNS.index("account"), 1 + _COLUMNS.index("entry")
    filled, contents, gone = dict[str, Row](), dict[str, Row](), list[int]()
    alone, read = Counter[str](), Counter[str]()
    for batch in staged.in_order():
        rows = [row for row in batch if row[of] in accounts]
        known = await _lines_of(connection, {row[entry] for row in rows} - {""}, as_of=as_of)
        for row in rows:
            gone.append(row[0])
            read[row[of]] += 1
            found = known.get(_name_of(row[1:]), [])
            if len(found) != 1:
                alone[row[of]] += 1
                continue
            line, contents[line] = found[0]
            before = filled.get(line, (row[0], *contents[line]))
            texts = zip(before[-_TEXTS:], row[-_TEXTS:], strict=True)
            filled[line] = (*before[:-_TEXTS], *(old or new for old, new in texts))
    fuller = [row for line, row in filled.items() if row[1:] != contents[line]]
    enriched, notes = Counter(row[of] for row in fuller), list[str]()
    for account in sorted(accounts):
        if read[account] == alone[account]:
            raise UsageError(accounts[account])
        lines = counted(enriched[account], "line was", "lines were")
        notes.append(
            f"Lines of {account} come from files of another format, so no line was added; {lines} "
            f"completed. Of {counted(read[account], 'entry', 'entries')}, {alone[account]:,} "
            "matched no line by the bank's reference."
        )
    staged.drop(gone)
    staged.add(fuller)
    return notes


_NAMED_BY: Final = tuple(map(_COLUMNS.index, ("account", "currency", "minor", "entry")))
"""Columns that together identify a booking in every bank format."""


def _name_of(content: Row) -> tuple[Any, ...]:
    return tuple(content[place] for place in _NAMED_BY)


async def _lines_of(
    connection: Connection, entries: Collection[str], *, as_of: Instant
) -> dict[tuple[Any, ...], list[tuple[str, Row]]]:
    columns = f"line, {', '.join(_COLUMNS)}"
    found = defaultdict[tuple[Any, ...], list[tuple[str, Row]]](list)
    for line, *content in await lines_known(
        connection, "bank", columns, as_of=as_of, entry=entries
    ):
        found[_name_of(tuple(content))].append((line, tuple(content)))
    return found
