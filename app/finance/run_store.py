"""Runs of reconciliation: what each saw, and what that changed in the lives of breaks.

    1 number     taken first; what a run that was killed has written is seen by nobody
    2 saw        breaks, some hundreds in a transaction: nobody waits long for the writer
    3 finish     the run's own row, and the turns of the breaks: from then on everyone sees it

A break is new, changed, gone or back by comparison with the last run that lived; the comparison is
the database's own, so that it takes no memory.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks_shared import RECONCILING, take_lock
from app.database.statements import insert_rows, run, select_in
from reconcile.instants import Instant
from reconcile.matching.breaks import Break
from reconcile.matching.breaks_text import break_in, break_text

AT_ONCE: Final = 500
"""Breaks in memory at a time, about two kilobytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `at`: when it was finished; `result`: its control totals, as JSON; the rest as in
    its table."""

    number: int
    at: Instant
    as_of: Instant
    since: Instant | None
    until: Instant | None
    rules: int | None
    lived: bool
    breaks: int
    ties: bool
    result: str


_COLUMNS: Final = tuple(Run.__dataclass_fields__)


async def take_run_number(connection: AsyncConnection) -> int:
    """The next number. One that no finished run bears is one of a run that was killed."""
    number = await connection.scalar(
        text(
            "INSERT INTO counters (name, value) VALUES ('runs', 1) "
            "ON CONFLICT (name) DO UPDATE SET value=counters.value+1 RETURNING value"
        )
    )
    assert isinstance(number, int)
    return number


async def save_seen(
    connection: AsyncConnection, found: Sequence[Break], *, number: int, as_of: Instant
) -> None:
    """Write down what a run as of an instant saw: no break twice.

    A break of lines without a date is dated by that instant alone: of one that is known and says
    nothing else, the date at which it was seen first stays.
    """
    await run(connection, take_lock, RECONCILING)
    told = {each.identity: (each, break_text(each)) for each in found}
    versions = await _versions_of(connection, list(told))
    seen, fresh = [], []
    for name, (each, words) in told.items():
        undated = break_text(replace(each, since=0)) if each.since == as_of else words
        digest = hashlib.sha256(undated.encode()).hexdigest()
        known = versions.get(name, {})
        version = known.get(digest)
        if version is None:
            version = len(known) + 1
            money = each.money
            fresh.append((name, version, digest, money.minor, money.currency, each.since, words))
        seen.append((number, name, version))
    new = [
        (name, each.cause, each.order, each.payment, each.subject)
        for name, (each, _) in told.items()
        if name not in versions
    ]
    for table, columns, rows in (
        ("breaks", _BREAK, new),
        ("break_versions", _VERSION, fresh),
        ("break_seen", _SEEN, seen),
    ):
        await run(connection, insert_rows, table=table, columns=columns, rows=rows)


_BREAK: Final = ("id", "cause", "order_ref", "payment", "subject")
_VERSION: Final = ("break_id", "version", "digest", "minor", "currency", "since", "seen")
_SEEN: Final = ("run", "break_id", "version")
_TURN: Final = ("break_id", "run", "turn", "version", "cites")


async def _versions_of(
    connection: AsyncConnection, names: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Of each break that is known, the number of each version by its digest."""
    sql = "SELECT break_id, version, digest FROM break_versions WHERE break_id IN ({})"
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for name, version, digest in await select_in(connection, sql=sql, values=names):
        found[name][digest] = version
    return found


# --- turns ---------------------------------------------------------------------------------------

_OPENED: Final = (
    "SELECT seen.break_id, :run, 'opened', seen.version, '[]' FROM break_seen AS seen "
    "WHERE seen.run = :run AND NOT EXISTS "
    "(SELECT 1 FROM break_turns WHERE break_turns.break_id = seen.break_id)"
)

_REOPENED: Final = (
    "SELECT seen.break_id, :run, 'reopened', seen.version, '[]' FROM break_seen AS seen "
    "WHERE seen.run = :run AND EXISTS "
    "(SELECT 1 FROM break_turns WHERE break_turns.break_id = seen.break_id) AND NOT EXISTS "
    "(SELECT 1 FROM break_seen AS last WHERE last.run = :last AND last.break_id = seen.break_id)"
)

_CHANGED: Final = (
    "SELECT seen.break_id, :run, 'changed', seen.version, '[]' FROM break_seen AS seen "
    "JOIN break_seen AS last ON last.run = :last AND last.break_id = seen.break_id "
    "WHERE seen.run = :run AND last.version <> seen.version"
)

_GONE: Final = (
    "SELECT last.break_id, last.version, break_versions.seen FROM break_seen AS last "
    "JOIN break_versions ON break_versions.break_id = last.break_id "
    "AND break_versions.version = last.version "
    "WHERE last.run = :last AND last.break_id > :after AND NOT EXISTS "
    "(SELECT 1 FROM break_seen AS seen WHERE seen.run = :run AND seen.break_id = last.break_id) "
    "ORDER BY last.break_id LIMIT :limit"
)


async def last_lived(connection: AsyncConnection) -> Run | None:
    """The last run that moved the lives of breaks."""
    found = await _runs(connection, "WHERE lived = 1 ORDER BY number DESC LIMIT 1", {})
    return next(iter(found), None)


async def gone_breaks(
    connection: AsyncConnection, *, number: int, last: Run
) -> AsyncIterator[list[tuple[str, int, Break]]]:
    """(id, version, what was seen) of the breaks that the last run saw and this one did not."""
    after = ""
    while True:
        rows = await connection.execute(
            text(_GONE), {"run": number, "last": last.number, "after": after, "limit": AT_ONCE}
        )
        found = [(row[0], row[1], break_in(row[2])) for row in rows]
        if not found:
            return
        yield found
        after = found[-1][0]


async def save_closed(
    connection: AsyncConnection, closed: Sequence[tuple[str, int, Sequence[str]]], *, number: int
) -> None:
    """Write down that breaks have closed: (id, version last seen, the evidence that closed it)."""
    rows = [
        (name, number, "closed", version, json.dumps(cites, ensure_ascii=False))
        for name, version, cites in closed
    ]
    await run(connection, insert_rows, table="break_turns", columns=_TURN, rows=rows)


async def finish_run(connection: AsyncConnection, done: Run, *, last: Run | None) -> None:
    """Let everyone see it. `last`: the last run that lived, to which this one is compared."""
    if done.lived:
        both = {"run": done.number, "last": 0 if last is None else last.number}
        for turned, values in (
            (_CHANGED, both),
            (_REOPENED, both),
            (_OPENED, {"run": done.number}),
        ):
            sql = f"INSERT INTO break_turns ({', '.join(_TURN)}) {turned}"
            await connection.execute(text(sql), values)
    values_of = {name: getattr(done, name) for name in _COLUMNS}
    values_of |= {"lived": int(done.lived), "ties": int(done.ties)}
    await connection.execute(
        text(
            f"INSERT INTO runs ({', '.join(_COLUMNS)}) "  # noqa: S608
            f"VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
        ),
        values_of,
    )


# --- reading -------------------------------------------------------------------------------------


async def run_of(connection: AsyncConnection, number: int) -> Run | None:
    """A finished run."""
    found = await _runs(connection, "WHERE number = :number", {"number": number})
    return next(iter(found), None)


async def runs(connection: AsyncConnection, *, limit: int) -> list[Run]:
    """The finished ones, newest first."""
    return await _runs(connection, "ORDER BY number DESC LIMIT :limit", {"limit": limit})


async def _runs(connection: AsyncConnection, which: str, values: dict[str, Any]) -> list[Run]:
    rows = await connection.execute(
        text(f"SELECT {', '.join(_COLUMNS)} FROM runs {which}"),  # noqa: S608
        values,
    )
    found = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
    return [
        Run(**each | {"lived": each["lived"] == 1, "ties": each["ties"] == 1}) for each in found
    ]


async def seen_by(
    connection: AsyncConnection, number: int, *, after: str = "", limit: int = AT_ONCE
) -> list[tuple[str, Break]]:
    """(id, what was seen) of the breaks of a run, by id."""
    rows = await connection.execute(
        text(
            "SELECT break_seen.break_id, break_versions.seen FROM break_seen JOIN break_versions "
            "ON break_versions.break_id = break_seen.break_id "
            "AND break_versions.version = break_seen.version "
            "WHERE run = :run AND break_seen.break_id > :after "
            "ORDER BY break_seen.break_id LIMIT :limit"
        ),
        {"run": number, "after": after, "limit": limit},
    )
    return [(row[0], break_in(row[1])) for row in rows]
