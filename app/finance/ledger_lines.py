"""Ledger lines of all orders, in key order, as of now or as of an instant that has passed.

As of now they come from a cache that is brought up to date first: only orders of which something
was said since, or whose time has come, are folded again. As of the past every order is folded, and
the ledger lines wait in a scratch database until they are all there and can be read in key order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

from app.database.engine import Connection, scratch_database
from app.finance.ledger_line_store import (
    EVERYTHING,
    Fresh,
    KeyRange,
    flat_ledger_lines,
    stale_orders,
    store_ledger_lines,
    stored_ledger_lines,
)
from app.orders.history_store import contested_with, gather, scan
from app.orders.refold import fold_or_log
from app.receiving.context import AppContext
from app.receiving.due_store import marks_of
from reconcile.instants import Instant
from reconcile.ledger.history import History
from reconcile.matching.ledger_lines import ledger_line_of
from reconcile.matching.rows import LedgerLineRow, ledger_line_row

FEW: Final = 2_000
"""Orders that a run folds by itself, in its own snapshot: what arrived while it prepared."""

ROUNDS: Final = 5
"""Rounds of preparation at most; under a flood of deliveries a run folds more by itself."""


async def refresh_ledger_lines(context: AppContext, *, progress: Callable[[int], None]) -> int:
    """Fold orders whose ledger lines are missing or behind, and store them. Returns how many."""
    total = 0
    for _ in range(ROUNDS):
        folded = await _refresh_once(context, progress)
        total += folded
        if folded <= FEW:
            break
    return total


async def _refresh_once(context: AppContext, progress: Callable[[int], None]) -> int:
    now, total = context.clock.now(), 0
    async with context.store.reading() as connection:
        async for stale in stale_orders(connection, now=now):
            fresh = await _made_anew(context, connection, stale, now=now)
            async with context.store.writing() as writer:
                await store_ledger_lines(writer, fresh)
            total += len(stale)
            progress(len(stale))
    return total


async def is_behind(connection: Connection, order: str) -> bool:
    """Whether evidence has come of the order, or of one that shares evidence with it, since its
    ledger line was stored: the next run folds them together."""
    sharing = await contested_with(connection, [order]) | {order}
    stored = {
        row[1]: row[11] for row in (await stored_ledger_lines(connection, list(sharing))).values()
    }
    marks = await marks_of(connection, sharing)
    return any(stored.get(mark.order) != mark.generation for mark in marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What of the cache is stale in a snapshot, made anew.

    orders  whose cached ledger lines do not count
    rows    their ledger lines as the matcher reads them, in key order; none where no evidence is
            left
    """

    orders: frozenset[str] = frozenset()
    rows: tuple[LedgerLineRow, ...] = ()


async def overlay_of(context: AppContext, connection: Connection, *, now: Instant) -> Overlay:
    """What arrived since the cache was brought up to date, and whose time has come since."""
    fresh: dict[str, Fresh] = {}
    async for stale in stale_orders(connection, now=now):
        for each in await _made_anew(context, connection, stale, now=now):
            fresh[each.order] = each
    made = [ledger_line_row(replace(f.taking, as_of=now)) for f in fresh.values() if f.taking]
    return Overlay(orders=frozenset(fresh), rows=tuple(sorted(made, key=lambda row: row[:2])))


async def _made_anew(
    context: AppContext, connection: Connection, stale: Sequence[tuple[str, int]], *, now: Instant
) -> list[Fresh]:
    """Ledger lines of these orders, and of those that share evidence with them."""
    generations = dict(stale)
    sharing = await contested_with(connection, generations) - generations.keys()
    generations |= {m.order: m.generation for m in await marks_of(connection, sharing)}
    histories = await gather(connection, generations)
    return [
        _fresh(context, history, generation=generations[order], now=now)
        for order, history in histories.items()
    ]


def _fresh(context: AppContext, history: History, *, generation: int, now: Instant) -> Fresh:
    ledger = fold_or_log(history, policy=context.policy, as_of=history.instant_at(now))
    if ledger is None:
        return Fresh(order=history.order, generation=generation, until=now, taking=None)
    return Fresh(
        order=history.order,
        generation=generation,
        until=ledger.next_decision_at,
        taking=ledger_line_of(ledger),
    )


async def ledger_lines_now(
    connection: Connection, overlay: Overlay, *, as_of: Instant, within: KeyRange = EVERYTHING
) -> AsyncIterator[list[LedgerLineRow]]:
    """The cached ledger lines in key order, in the form of `flat_ledger_lines`, with what is stale
    among them replaced."""
    stale, waiting = overlay.orders, deque(row for row in overlay.rows if row.key in within)
    async for batch in flat_ledger_lines(connection, as_of=as_of, within=within):
        if stale:
            batch = [row for row in batch if row[1] not in stale]
        last = batch[-1][0] if batch else ""
        if waiting and waiting[0].key <= last:
            while waiting and waiting[0].key <= last:
                batch.append(waiting.popleft())
            batch.sort(key=itemgetter(0))
        yield batch
    yield list(waiting)


@asynccontextmanager
async def ledger_lines_then(
    context: AppContext, *, as_of: Instant, progress: Callable[[int], None]
) -> AsyncIterator[Connection]:
    """A scratch database with the ledger lines of all orders as they could have been known then."""
    async with scratch_database() as scratch:
        async with context.store.reading() as connection:
            async for histories in scan(connection):
                fresh = [_then(context, history, as_of) for history in histories]
                await store_ledger_lines(scratch, fresh)
                progress(len(fresh))
        yield scratch


def _then(context: AppContext, history: History, as_of: Instant) -> Fresh:
    ledger = fold_or_log(history, policy=context.policy, as_of=as_of)
    found = None if ledger is None else ledger_line_of(ledger)
    return Fresh(order=history.order, generation=0, until=None, taking=found)
