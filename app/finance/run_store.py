"""Runs of reconciliation: the breaks that each saw, and changes to their lives.

    1 number     take it first; nobody sees what a killed run has written
    2 saw        write breaks, some hundreds in a transaction, so that nobody waits long
    3 finish write the run's row and the changes of breaks: from then on everyone sees it

A break is new, changed, gone or back, compared with the last run that changed breaks. The database
compares, so that this takes no memory.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Select, column, insert, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import RECONCILING, take_lock
from app.database.statements import insert_rows, run, select_in, statement
from app.finance.break_store import MATCH_STANDS
from app.finance.import_store import newest_published
from reconcile.instants import EARLIEST, Instant
from reconcile.matching.books import match_key
from reconcile.matching.breaks import Break, break_in, break_text
from reconcile.matching.causes import CAUSES

AT_ONCE: Final = 500
"""Breaks in memory at a time, about two kilobytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    at      when it finished
    rules   the number of the saved rules; 0 if none were saved; None for rules of a file
    lived   whether it changed breaks
    breaks  number of breaks that it found
    ties    whether its control totals agree
    result  its control totals, as JSON
    """

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
_RUNS: Final = table("runs", *map(column, _COLUMNS))


async def take_run_number(connection: AsyncConnection) -> int:
    """Return the next number. A number without a finished run belongs to a run that was killed."""
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
    """Store the breaks that a run saw as of an instant, each once.

    A break of lines without a date is dated by that instant. If it is known and otherwise
    unchanged, it keeps the date at which it was first seen.
    """
    await run(connection, take_lock, RECONCILING)
    breaks = {each.identity: (each, break_text(each)) for each in found}
    versions: dict[str, dict[str, int]] = defaultdict(dict)
    sql = "SELECT break_id, version, digest FROM break_versions WHERE break_id IN ({})"
    for name, version, digest in await select_in(connection, sql=sql, values=list(breaks)):
        versions[name][digest] = version
    seen, fresh = [], []
    for name, (each, words) in breaks.items():
        undated = break_text(replace(each, since=EARLIEST)) if each.since == as_of else words
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
        for name, (each, _) in breaks.items()
        if name not in versions
    ]
    await run(connection, insert_rows, table="breaks", columns=_BREAK, rows=new)
    await run(connection, insert_rows, table="break_versions", columns=_VERSION, rows=fresh)
    await run(connection, insert_rows, table="break_seen", columns=_SEEN, rows=seen)


_BREAK: Final = ("id", "cause", "order_ref", "payment", "subject")
_VERSION: Final = ("break_id", "version", "digest", "minor", "currency", "since", "seen")
_SEEN: Final = ("run", "break_id", "version")
_TURN: Final = ("break_id", "run", "turn", "version", "cites")


# --- changes of breaks ----------------------------------------------------------------------------

_OPENED: Final = (
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'opened', seen.version, '[]' FROM break_seen AS seen "
    "WHERE seen.run = :run AND NOT EXISTS "
    "(SELECT 1 FROM break_turns WHERE break_turns.break_id = seen.break_id)"
)

_REOPENED: Final = (
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'reopened', seen.version, '[]' FROM break_seen AS seen "
    "WHERE seen.run = :run AND EXISTS "
    "(SELECT 1 FROM break_turns WHERE break_turns.break_id = seen.break_id) AND NOT EXISTS "
    "(SELECT 1 FROM break_seen AS last WHERE last.run = :last AND last.break_id = seen.break_id)"
)

_CHANGED: Final = (
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'changed', seen.version, '[]' FROM break_seen AS seen "
    "JOIN break_seen AS last ON last.run = :last AND last.break_id = seen.break_id "
    "WHERE seen.run = :run AND last.version <> seen.version"
)

_UNUSED: Final = statement(
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'reopened', seen.version, '[]' FROM break_seen AS seen "
    "JOIN break_seen AS last ON last.run = :last AND last.break_id = seen.break_id "
    "WHERE seen.run = :run AND last.version = seen.version AND EXISTS (SELECT 1 FROM break_deeds "
    "WHERE break_deeds.break_id = seen.break_id AND break_deeds.at > :last_as_of AND {stands})",
    stands=statement(MATCH_STANDS, as_of=":as_of"),
)
"""Breaks that the run saw although a person had matched them since the run before."""

_GONE: Final = (
    "SELECT last.break_id, last.version, break_versions.seen FROM break_seen AS last "
    "JOIN break_versions ON break_versions.break_id = last.break_id "
    "AND break_versions.version = last.version "
    "WHERE last.run = :last AND last.break_id > :after AND NOT EXISTS "
    "(SELECT 1 FROM break_seen AS seen WHERE seen.run = :run AND seen.break_id = last.break_id) "
    "ORDER BY last.break_id LIMIT :limit"
)


async def last_lived(connection: AsyncConnection) -> Run | None:
    """Return the last run that changed breaks."""
    lived = select(_RUNS).where(_RUNS.c.lived == 1)
    found = await _runs(connection, lived.order_by(_RUNS.c.number.desc()).limit(1))
    return next(iter(found), None)


async def gone_breaks(
    connection: AsyncConnection, *, number: int, last: Run
) -> AsyncIterator[list[tuple[str, int, Break]]]:
    """Yield (id, version, content) for breaks that the last run saw and this one did not."""
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
    """Store closed breaks: (id, version last seen, the evidence that closed it)."""
    rows = [
        (name, number, "closed", version, json.dumps(cites, ensure_ascii=False))
        for name, version, cites in closed
    ]
    await run(connection, insert_rows, table="break_turns", columns=_TURN, rows=rows)


async def finish_run(connection: AsyncConnection, done: Run, *, last: Run | None) -> None:
    """Publish a run. last: the last run that changed breaks, to compare with."""
    if done.lived:
        both = {"run": done.number, "last": 0 if last is None else last.number}
        since = {"as_of": done.as_of, "last_as_of": EARLIEST if last is None else last.as_of}
        for turned, values in (
            (_CHANGED, both),
            (_REOPENED, both),
            (_OPENED, {"run": done.number}),
            (_UNUSED, both | since),
        ):
            await connection.execute(text(turned), values)
    values_of = {name: getattr(done, name) for name in _COLUMNS}
    values_of |= {"lived": int(done.lived), "ties": int(done.ties)}
    await connection.execute(insert(_RUNS).values(values_of))


# --- reading --------------------------------------------------------------------------------------


async def run_of(connection: AsyncConnection, number: int) -> Run | None:
    found = await _runs(connection, select(_RUNS).where(_RUNS.c.number == number))
    return next(iter(found), None)


async def runs(connection: AsyncConnection, *, limit: int, before: int | None = None) -> list[Run]:
    """Return the finished runs, newest first. before: only lower numbers."""
    listing = select(_RUNS).order_by(_RUNS.c.number.desc()).limit(limit)
    if before is not None:
        listing = listing.where(_RUNS.c.number < before)
    return await _runs(connection, listing)


async def _runs(connection: AsyncConnection, which: Select[Any]) -> list[Run]:
    rows = await connection.execute(which)
    found = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
    return [
        Run(**each | {"lived": each["lived"] == 1, "ties": each["ties"] == 1}) for each in found
    ]


async def seen_by(
    connection: AsyncConnection, number: int, *, after: str = "", limit: int = AT_ONCE
) -> list[tuple[str, Break]]:
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


MOST_CITED: Final = 20
"""Ids cited for one closing, among them the first of each kind."""


_EVENTS_SINCE: Final = (
    "SELECT order_key, event_id FROM events "
    "WHERE received_at > ? AND received_at <= ? AND order_key IN ({})"
)
_RECORDS_SINCE: Final = (
    "SELECT order_key, id FROM records "
    "WHERE recorded_at > ? AND recorded_at <= ? AND order_key IN ({})"
)
_BOOK_SINCE: Final = (
    "SELECT match_key, line || '.' || since FROM book_lines "
    "WHERE since > ? AND since <= ? AND match_key IN ({})"
)
_STATEMENTS_SINCE: Final = (
    "SELECT match_key, line || '.' || since FROM statement_lines "
    "WHERE since > ? AND since <= ? AND match_key IN ({})"
)
_PAYMENTS_SINCE: Final = (
    "SELECT subject, line || '.' || since FROM statement_lines "
    "WHERE since > ? AND since <= ? AND subject IN ({})"
)
_MATCHED_SINCE: Final = statement(
    "SELECT break_id, value, who FROM break_deeds WHERE {stands} AND at > ? AND break_id IN ({})",
    stands=statement(MATCH_STANDS, as_of="?"),
)


async def closing_evidence(
    connection: AsyncConnection,
    gone: Mapping[str, Break],
    *,
    last: Run,
    as_of: Instant,
    rules: int | None,
) -> dict[str, list[str]]:
    """Return, by break, the ids of evidence since a run that may have closed it.

    These are events, records, lines, matches by hand and rules. A few queries serve all breaks.
    """
    found: dict[str, list[str]] = {name: [] for name in gone}
    by_key: dict[str, set[str]] = defaultdict(set)
    by_payment: dict[str, set[str]] = defaultdict(set)
    for name, each in gone.items():
        if each.order is not None:
            by_key[match_key(each.order)].add(name)
        if each.payment is not None:
            by_payment[each.payment].add(name)

    async def cite(sql: str, since: Sequence[int], names: Mapping[str, set[str]]) -> None:
        rows = await select_in(connection, sql=sql, values=sorted(names), first=since)
        for key, cited in sorted(rows):
            for name in names[key]:
                found[name].append(cited)

    orders: dict[str, set[str]] = defaultdict(set)
    sql = "SELECT order_key, key FROM takings WHERE key IN ({})"
    for order, key in await select_in(connection, sql=sql, values=sorted(by_key)):
        orders[order] |= by_key[key]
    sql = "SELECT order_key, reference FROM links WHERE kind = 'payment' AND reference IN ({})"
    for order, payment in await select_in(connection, sql=sql, values=sorted(by_payment)):
        orders[order] |= by_payment[payment]
    for sql in (_EVENTS_SINCE, _RECORDS_SINCE):
        await cite(sql, (last.as_of, as_of), orders)
    before = await newest_published(connection, as_of=last.as_of)
    imports = (before, await newest_published(connection, as_of=as_of))
    for sql in (_BOOK_SINCE, _STATEMENTS_SINCE):
        await cite(sql, imports, by_key)
    await cite(_PAYMENTS_SINCE, imports, {f"p:{each}": names for each, names in by_payment.items()})
    stands = (as_of, as_of, last.as_of)
    for name, line, who in await select_in(
        connection, sql=_MATCHED_SINCE, values=sorted(gone), first=stands
    ):
        found[name] += [line, f"match by {who}"]
    of_bank = [
        name for name, each in gone.items() if CAUSES[each.cause].about in ("bank", "wallet")
    ]
    if of_bank:  # an import may have brought the payout or its bank line
        numbers = await connection.scalars(
            text(
                "SELECT number FROM imports WHERE kind IN ('bank', 'statement') "
                "AND number > :first AND number <= :last ORDER BY number LIMIT :most"
            ),
            {"first": imports[0], "last": imports[1], "most": MOST_CITED},
        )
        imported = [f"import {number}" for number in numbers]
        for name in of_bank:
            found[name] += imported
    by_rules = [] if rules == last.rules else [f"rules {rules}"]
    return {name: list(dict.fromkeys(ids + by_rules))[:MOST_CITED] for name, ids in found.items()}
