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
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Select, column, insert, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import RECONCILING, take_lock
from app.database.statements import Rows, insert_rows, run, select_in, statement
from app.finance.break_store import MATCH_STANDS
from app.finance.import_store import newest_published
from reconcile.instants import EARLIEST, Instant
from reconcile.matching.books import match_key
from reconcile.matching.breaks import BANK_CAUSES, Break, break_in, break_text

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
_RUNS: Final = table("runs", *map(column, _COLUMNS))


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
    breaks = {each.identity: (each, break_text(each)) for each in found}
    versions = await _versions_of(connection, list(breaks))
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
    lived = select(_RUNS).where(_RUNS.c.lived == 1)
    found = await _runs(connection, lived.order_by(_RUNS.c.number.desc()).limit(1))
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
            await connection.execute(text(turned), values)
    values_of = {name: getattr(done, name) for name in _COLUMNS}
    values_of |= {"lived": int(done.lived), "ties": int(done.ties)}
    await connection.execute(insert(_RUNS).values(values_of))


# --- reading -------------------------------------------------------------------------------------


async def run_of(connection: AsyncConnection, number: int) -> Run | None:
    """A finished run."""
    found = await _runs(connection, select(_RUNS).where(_RUNS.c.number == number))
    return next(iter(found), None)


async def runs(connection: AsyncConnection, *, limit: int, before: int | None = None) -> list[Run]:
    """The finished ones, newest first. before: only those of lower numbers."""
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


MOST_CITED: Final = 20
"""Ids that are cited for one closing; the first of each kind are among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """From one run to the next: instants, imports and rules after the first, up to the second."""

    since: Instant
    until: Instant
    imports: tuple[int, int]
    rules: tuple[int | None, int | None]


async def stretch_between(
    connection: AsyncConnection, last: Run, *, as_of: Instant, rules: int | None
) -> Stretch:
    """The time since the last run that lived."""
    return Stretch(
        since=last.as_of,
        until=as_of,
        imports=(
            await newest_published(connection, as_of=last.as_of),
            await newest_published(connection, as_of=as_of),
        ),
        rules=(last.rules, rules),
    )


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
    connection: AsyncConnection, gone: Mapping[str, Break], stretch: Stretch
) -> dict[str, list[str]]:
    """Of each break, the ids of events, records, lines, hand matches and rules that came."""
    search = _Search(connection, gone, stretch)
    await search.events_and_records()
    await search.lines()
    await search.hand_matches()
    await search.bank()
    before, now = stretch.rules
    if before != now:
        search.add({name: [f"rules {now}"] for name in gone})
    return {name: list(dict.fromkeys(found))[:MOST_CITED] for name, found in search.found.items()}


class _Search:
    """One search for all breaks of a page, a few queries whatever their number."""

    def __init__(
        self, connection: AsyncConnection, gone: Mapping[str, Break], stretch: Stretch
    ) -> None:
        self._connection = connection
        self._gone = gone
        self._stretch = stretch
        self.found: dict[str, list[str]] = {name: [] for name in gone}
        self._by_key = self._grouped(
            (match_key(each.order), name) for name, each in gone.items() if each.order is not None
        )
        self._by_payment = self._grouped(
            (each.payment, name) for name, each in gone.items() if each.payment is not None
        )

    @staticmethod
    def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for key, name in pairs:
            found[key].add(name)
        return found

    def add(self, cites: Mapping[str, Collection[str]]) -> None:
        """Take these ids over, by break."""
        for name, ids in cites.items():
            self.found[name] += sorted(ids)

    async def _select(self, sql: str, values: Iterable[str], *, first: Sequence[int] = ()) -> Rows:
        return await select_in(self._connection, sql=sql, values=sorted(values), first=first)

    async def events_and_records(self) -> None:
        """Of the orders that have the break's key, or know its payment."""
        orders: dict[str, set[str]] = defaultdict(set)
        sql = "SELECT order_key, key FROM takings WHERE key IN ({})"
        for order, key in await self._select(sql, self._by_key):
            orders[order] |= self._by_key[key]
        sql = "SELECT order_key, reference FROM links WHERE kind = 'payment' AND reference IN ({})"
        for order, payment in await self._select(sql, self._by_payment):
            orders[order] |= self._by_payment[payment]
        stretch = (self._stretch.since, self._stretch.until)
        for sql in (_EVENTS_SINCE, _RECORDS_SINCE):
            self._cite(await self._select(sql, orders, first=stretch), orders)

    async def lines(self) -> None:
        """Of the break's key, or of its payment."""
        imports = self._stretch.imports
        for sql in (_BOOK_SINCE, _STATEMENTS_SINCE):
            self._cite(await self._select(sql, self._by_key, first=imports), self._by_key)
        subjects = {f"p:{payment}": names for payment, names in self._by_payment.items()}
        self._cite(await self._select(_PAYMENTS_SINCE, subjects, first=imports), subjects)

    async def hand_matches(self) -> None:
        """Of the break itself."""
        since, until = self._stretch.since, self._stretch.until
        known = (until, until, since)
        for name, line, who in await self._select(_MATCHED_SINCE, self._gone, first=known):
            self.found[name] += [line, f"match by {who}"]

    async def bank(self) -> None:
        """The imports that may have brought a payout, or its line in the bank."""
        of_bank = [name for name, each in self._gone.items() if each.cause in BANK_CAUSES]
        if not of_bank:
            return
        first, last = self._stretch.imports
        found = await self._connection.execute(
            text(
                "SELECT number FROM imports WHERE kind IN ('bank', 'statement') "
                "AND number > :first AND number <= :last ORDER BY number LIMIT :most"
            ),
            {"first": first, "last": last, "most": MOST_CITED},
        )
        numbers = [f"import {row[0]}" for row in found]
        for name in of_bank:
            self.found[name] += numbers

    def _cite(self, rows: Iterable[tuple[Any, ...]], names: Mapping[str, set[str]]) -> None:
        for key, cite in sorted(rows):
            for name in names[key]:
                self.found[name].append(cite)
