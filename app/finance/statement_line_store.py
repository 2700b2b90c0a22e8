"""Lines of provider's statements: written by imports, read in key order as of any instant.

A line is one movement of money: the `ordinal`-th of its kind and subject (the payment it names;
without one the order, or else the payout) that its source's statements told of. A row of a file
is of a line that is known

    1  if it is equal to it in everything, each line once: a file that comes again adds nothing
    2  else, if it can only be the same movement (`reconcile.matching.statement_versions`): it is
       then a changed version of the line

and else a new line. Two equal refunds in one file are two lines, in the next file they still are.
A line keeps its id, `stm_` and 20 hex digits, from version to version; the id of a version is that,
a dot, and the number of its import.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, Rows, insert_rows, run, select_rows
from app.finance.line_version_store import Written, supersede
from reconcile.matching.statement_versions import Moved, paired

IDENTIFYING: Final = ("subject", "kind", "source")

TOLD: Final = (
    "match_key",
    "payment",
    "order_ref",
    "currency",
    "gross",
    "fee",
    "net",
    "settled_at",
    "payout",
)

STAGED: Final = (*IDENTIFYING, *TOLD)
"""What an import brings of a line."""

COLUMNS: Final = (*IDENTIFYING, "ordinal", "since", "line", *TOLD)

_Group = tuple[str, str, str]


def line_id_of(group: _Group, ordinal: int) -> str:
    """What all versions of a line share: `stm_` and 20 hex digits."""
    told = hashlib.blake2b("\x1f".join((*group, str(ordinal))).encode(), digest_size=10)
    return "stm_" + told.hexdigest()


async def write_statement(
    connection: AsyncConnection, rows: Sequence[tuple[Any, ...]], *, number: int
) -> Written:
    """Add the versions that rows of STAGED make, as of an import.

    The rows are in order, and those of one source, subject and kind are all there.
    """
    return await run(connection, _write, rows, number)


async def compare_statement(
    connection: AsyncConnection, rows: Sequence[tuple[Any, ...]]
) -> Written:
    """What `write_statement` would write."""
    return (await run(connection, _decide, rows))[0]


def _write(connection: PlainConnection, rows: Sequence[tuple[Any, ...]], number: int) -> Written:
    counts, fresh, behind = _decide(connection, rows)
    if behind:
        keys = (*IDENTIFYING, "ordinal", "since")
        supersede(connection, table="statement_lines", keys=keys, rows=behind, number=number)
    insert_rows(
        connection,
        table="statement_lines",
        columns=COLUMNS,
        rows=[
            (*group, ordinal, number, line_id_of(group, ordinal), *told)
            for group, ordinal, told in fresh
        ],
    )
    return counts


_Fresh = list[tuple[_Group, int, tuple[Any, ...]]]


def _decide(
    connection: PlainConnection, rows: Sequence[tuple[Any, ...]]
) -> tuple[Written, _Fresh, Rows]:
    """The counts, the versions to be added, and the keys of those that they supersede."""
    columns = (*IDENTIFYING, "ordinal", "since", *TOLD)
    sql = (
        f"SELECT {', '.join(columns)} FROM statement_lines "  # noqa: S608
        "WHERE subject IN ({}) AND until IS NULL"
    )
    found = select_rows(connection, sql=sql, values={row[0] for row in rows})
    known: dict[Any, Rows] = defaultdict(list)
    for row in found:
        known[row[:3]].append(row)
    counts, fresh, behind = Written(), _Fresh(), list[tuple[Any, ...]]()
    for group, told in groupby(rows, key=lambda row: row[:3]):
        lines = known.get(group)
        if lines is None:
            new = [(group, place, row[3:]) for place, row in enumerate(told)]
            fresh += new
            counts.new += len(new)
        else:
            counts.add(_versions(group, [row[3:] for row in told], lines, fresh, behind))
    return counts, fresh, behind


def _versions(
    group: _Group, told: list[tuple[Any, ...]], lines: Rows, fresh: _Fresh, behind: Rows
) -> Written:
    """Find the line of each row of one group; add to what is fresh and what is behind."""
    counts, following = Written(), max(line[3] for line in lines) + 1
    pairs = paired(
        told=[_moved(group[1], row) for row in told],
        known=[_moved(group[1], line[5:]) for line in lines],
    )
    for row, place in zip(told, pairs, strict=True):
        if place is None:
            fresh.append((group, following, row))
            following += 1
            counts.new += 1
        elif row == lines[place][5:]:
            counts.unchanged += 1
        else:
            fresh.append((group, lines[place][3], row))
            behind.append(lines[place][:5])
            counts.changed += 1
    return counts


def _moved(kind: str, told: tuple[Any, ...]) -> Moved:
    return Moved(
        kind=kind,
        told=told,
        money=(told[3], told[4]),
        settled_at=told[7],
        payout=told[8],
    )
