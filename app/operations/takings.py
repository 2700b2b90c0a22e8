"""Takings of all orders, in key order, as of now or as of an instant that has passed.

As of now they come from a cache that is brought up to date first: only orders of which something
was said since, or whose time has come, are folded again. As of the past every order is folded, and
the takings wait in a scratch database until they are all there and can be read in key order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from app.operations.desk import Desk
from app.operations.refold import fold_or_log
from app.store.engine import Connection
from app.store.histories import contested_with, gather, scan
from app.store.ledgers import marks_of
from app.store.scratch import scratch_database
from app.store.takings import (
    EVERYTHING,
    Fresh,
    KeyRange,
    count_stale,
    stale_orders,
    store_takings,
    takings_by_key,
)
from reconcile.history import History
from reconcile.instants import Instant
from reconcile.takings import Taking
from reconcile.takings_of import taking

FEW: Final = 2_000
"""Orders that a run folds by itself, in its own snapshot: what arrived while it prepared."""

ROUNDS: Final = 5
"""Rounds of preparation at most; under a flood of deliveries a run folds more by itself."""

Overlay = Mapping[str, Taking | None]
"""Takings of orders that are stale in the cache; None where there is no longer any evidence."""


async def refresh_takings(desk: Desk, *, progress: Callable[[int], None]) -> int:
    """Fold orders whose takings are missing or behind, and store them. Returns how many."""
    total = 0
    for _ in range(ROUNDS):
        folded = await _refresh_once(desk, progress)
        total += folded
        if folded <= FEW:
            break
    return total


async def _refresh_once(desk: Desk, progress: Callable[[int], None]) -> int:
    now, total = desk.clock.now(), 0
    async with desk.store.reading() as connection:
        async for stale in stale_orders(connection, now=now):
            fresh = await _made_anew(desk, connection, stale, now=now)
            async with desk.store.writing() as writer:
                await store_takings(writer, fresh)
            total += len(stale)
            progress(len(stale))
    return total


async def count_behind(desk: Desk) -> int:
    """How many orders have to be folded before a run: for a progress bar."""
    async with desk.store.reading() as connection:
        return await count_stale(connection, now=desk.clock.now())


async def overlay_of(desk: Desk, connection: Connection, *, now: Instant) -> Overlay:
    """What of the cache is stale in this snapshot, made anew."""
    found: dict[str, Taking | None] = {}
    async for stale in stale_orders(connection, now=now):
        for each in await _made_anew(desk, connection, stale, now=now):
            found[each.order] = each.taking
    return found


async def _made_anew(
    desk: Desk, connection: Connection, stale: Sequence[tuple[str, int]], *, now: Instant
) -> list[Fresh]:
    """Takings of these orders, and of those that share evidence with them."""
    generations = dict(stale)
    sharing = await contested_with(connection, generations) - generations.keys()
    generations |= {m.order: m.generation for m in await marks_of(connection, sharing)}
    histories = await gather(connection, generations)
    return [
        _fresh(desk, history, generation=generations[order], now=now)
        for order, history in histories.items()
    ]


def _fresh(desk: Desk, history: History, *, generation: int, now: Instant) -> Fresh:
    ledger = fold_or_log(history, policy=desk.policy, as_of=history.instant_at(now))
    if ledger is None:
        return Fresh(order=history.order, generation=generation, until=now, taking=None)
    return Fresh(
        order=history.order,
        generation=generation,
        until=ledger.next_decision_at,
        taking=taking(ledger),
    )


async def takings_now(
    connection: Connection, overlay: Overlay, *, as_of: Instant, within: KeyRange = EVERYTHING
) -> AsyncIterator[list[Taking]]:
    """The cached takings in key order, with what is stale among them replaced."""
    waiting = deque(sorted(_new(overlay, as_of, within), key=_place))
    async for batch in takings_by_key(connection, as_of=as_of, within=within):
        if overlay:
            batch = [each for each in batch if each.order not in overlay]
        if batch and waiting and _place(waiting[0]) < _place(batch[-1]):
            while waiting and _place(waiting[0]) < _place(batch[-1]):
                batch.append(waiting.popleft())
            batch.sort(key=_place)
        yield batch
    yield list(waiting)


def _place(found: Taking) -> tuple[str, str]:
    return found.key, found.order


def _new(overlay: Overlay, as_of: Instant, within: KeyRange) -> Iterator[Taking]:
    for each in overlay.values():
        if each is not None and each.key in within:
            yield replace(each, as_of=as_of)


@asynccontextmanager
async def takings_then(
    desk: Desk, *, as_of: Instant, progress: Callable[[int], None]
) -> AsyncIterator[AsyncIterator[list[Taking]]]:
    """The takings of all orders as they could have been known at `as_of`, in key order."""
    async with scratch_database() as scratch:
        async with desk.store.reading() as connection:
            async for histories in scan(connection):
                fresh = [_then(desk, history, as_of) for history in histories]
                await store_takings(scratch, fresh)
                progress(len(fresh))
        yield takings_by_key(scratch, as_of=as_of)


def _then(desk: Desk, history: History, as_of: Instant) -> Fresh:
    ledger = fold_or_log(history, policy=desk.policy, as_of=as_of)
    found = None if ledger is None else taking(ledger)
    return Fresh(order=history.order, generation=0, until=None, taking=found)
