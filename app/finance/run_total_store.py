"""Which evidence came between two runs about breaks that are gone: what closed them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import Rows, select_in
from app.finance.break_store import match_stands
from app.finance.import_store import newest_published
from app.finance.run_store import Run
from reconcile.instants import Instant
from reconcile.matching.books import match_key
from reconcile.matching.breaks import Break

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


async def closing_evidence(
    connection: AsyncConnection, gone: Mapping[str, Break], stretch: Stretch
) -> dict[str, list[str]]:
    """Of each break, the ids of events, records, lines, hand matches and rules that came."""
    search = _Search(connection, gone, stretch)
    await search.events_and_records()
    await search.lines()
    await search.hand_matches()
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

    async def _select(self, sql: str, values: Iterable[str]) -> Rows:
        return await select_in(self._connection, sql=sql, values=sorted(values))

    async def events_and_records(self) -> None:
        """Of the orders that have the break's key, or know its payment."""
        orders: dict[str, set[str]] = defaultdict(set)
        sql = "SELECT order_key, key FROM takings WHERE key IN ({})"
        for order, key in await self._select(sql, self._by_key):
            orders[order] |= self._by_key[key]
        sql = "SELECT order_key, reference FROM links WHERE kind = 'payment' AND reference IN ({})"
        for order, payment in await self._select(sql, self._by_payment):
            orders[order] |= self._by_payment[payment]
        since, until = self._stretch.since, self._stretch.until
        for table, name, at in (
            ("events", "event_id", "received_at"),
            ("records", "id", "recorded_at"),
        ):
            sql = (
                f"SELECT order_key, {name} FROM {table} WHERE order_key IN ({{}}) "  # noqa: S608
                f"AND {at} > {since} AND {at} <= {until}"
            )
            self._cite(await self._select(sql, orders), orders)

    async def lines(self) -> None:
        """Of the break's key, or of its payment."""
        first, last = self._stretch.imports
        known = f"since > {first} AND since <= {last}"
        for table in ("book_lines", "statement_lines"):
            sql = (
                f"SELECT match_key, line || '.' || since FROM {table} "  # noqa: S608
                f"WHERE match_key IN ({{}}) AND {known}"
            )
            self._cite(await self._select(sql, self._by_key), self._by_key)
        subjects = {f"p:{payment}": names for payment, names in self._by_payment.items()}
        sql = (
            "SELECT subject, line || '.' || since FROM statement_lines "  # noqa: S608
            f"WHERE subject IN ({{}}) AND {known}"
        )
        self._cite(await self._select(sql, subjects), subjects)

    async def hand_matches(self) -> None:
        """Of the break itself."""
        since, until = self._stretch.since, self._stretch.until
        sql = (
            f"SELECT break_id, value, who FROM break_deeds WHERE {match_stands(until)} "  # noqa: S608
            f"AND break_id IN ({{}}) AND at > {since}"
        )
        for name, line, who in await self._select(sql, self._gone):
            self.found[name] += [line, f"match by {who}"]

    def _cite(self, rows: Iterable[tuple[Any, ...]], names: Mapping[str, set[str]]) -> None:
        for key, cite in sorted(rows):
            for name in names[key]:
                self.found[name].append(cite)
