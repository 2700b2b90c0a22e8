"""Lets the bodies and headers of settled orders go, in small transactions.

    1 page     deliveries that still have them, oldest first
    2 fold     the orders they belong to; those that are settled are kept in mind
    3 prune    their deliveries, if nothing was said of the orders in between

What the ledger rests on stays: digests, ids, dates, amounts, references and verdicts. An order of
which something is not sealed in the log yet has to wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import structlog

from app.access.operators import who_may
from app.evidence.seal import Signer, seal_all
from app.orders.history_store import gather
from app.orders.retention_store import (
    prune,
    sizes_of,
    unpruned,
)
from app.privacy.prune_others import note_pruning, prune_others
from app.privacy.retention import Retention
from app.privacy.settled import ended_orders
from app.receiving.context import Desk
from app.receiving.due_store import Due, marks_of, unchanged
from app.sealing.log_queue_store import without_leaf
from reconcile.instants import Instant, format_instant
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Outcome
from reconcile.ledger.settle import last_heard

PAGE: Final = 100
"""Deliveries looked at in one go: some milliseconds of folding."""

PRUNED_AT_ONCE: Final = 100
"""Rows emptied in one transaction, so that no acknowledgement waits long for it."""

PRUNED_BYTES: Final = 1024 * 1024
"""Bytes emptied in one transaction: each is overwritten, and passes through the log."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An order that is over: its unpruned deliveries with their sizes, and its mark when read."""

    order: str
    outcome: Outcome
    last_heard: Instant
    sizes: Mapping[str, int]
    mark: Due

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "order": self.order,
            "outcome": self.outcome,
            "last_heard": format_instant(self.last_heard),
            "deliveries": len(self.sizes),
            "bytes": sum(self.sizes.values()),
        }


@dataclass(slots=True, kw_only=True)
class Pruning:
    """What a pass found, or did. `settled` holds the first orders; the figures count all.

    before  who was heard of last by then is old enough for their bodies to go; None: none are
    classes  each class of data, and the days for which it is kept
    """

    before: Instant | None
    classes: Mapping[str, int | None] = field(default_factory=dict)
    orders: int = 0
    deliveries: int = 0
    size: int = 0
    others: Counter[str] = field(default_factory=Counter)
    settled: list[Settled] = field(default_factory=list)

    def add(self, settled: Sequence[Settled], *, keep: int) -> None:
        """Count orders, and keep the first of them."""
        self.orders += len(settled)
        self.deliveries += sum(len(each.sizes) for each in settled)
        self.size += sum(sum(each.sizes.values()) for each in settled)
        self.settled += settled[: max(keep - len(self.settled), 0)]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "before": None if self.before is None else format_instant(self.before),
            "orders": self.orders,
            "deliveries": self.deliveries,
            "bytes": self.size,
            "rejections": self.others["rejections"],
            "classes": [
                {"class": name, "days": days, "items": self.items()[name]}
                for name, days in self.classes.items()
            ],
            "settled": [each.document() for each in self.settled],
        }

    def items(self) -> dict[str, int]:
        """How many of each class were found, or let go."""
        names = ("rejections", "phones", "book_phones")
        return {"bodies": self.deliveries} | {name: self.others[name] for name in names}


async def prune_settled(
    desk: Desk,
    retention: Retention,
    *,
    dry_run: bool = False,
    keep: int = 0,
    progress: Callable[[int], None],
) -> Pruning:
    """One pass over everything; `dry_run` only looks. `keep`: how many orders to tell by name."""
    pruning = _begun(desk, retention)
    await _pass(desk, retention, pruning, dry_run=dry_run, keep=keep, progress=progress)
    return pruning


async def prune_by_hand(
    desk: Desk,
    retention: Retention,
    *,
    by: str | None,
    signer: Signer,
    keep: int,
    progress: Callable[[int], None],
) -> Pruning:
    """A pass that a person asks for, sealing first what has to be. The trail tells what was let go,
    however it ends. Raises UsageError for who may not."""
    who = await who_may(desk, by=by, action="pruned")
    await seal_all(desk, signer)
    pruning = _begun(desk, retention)
    try:
        await _pass(desk, retention, pruning, dry_run=False, keep=keep, progress=progress)
    finally:
        await note_pruning(desk, who, pruning.items())
    return pruning


def _begun(desk: Desk, retention: Retention) -> Pruning:
    quiet = retention.quiet
    before = None if quiet is None else desk.clock.now() - quiet
    return Pruning(before=before, classes=retention.classes())


async def _pass(
    desk: Desk,
    retention: Retention,
    pruning: Pruning,
    *,
    dry_run: bool,
    keep: int,
    progress: Callable[[int], None],
) -> None:
    async for looked, settled in settled_orders(desk, retention, unsealed_too=dry_run):
        pruning.add(settled if dry_run else await prune_orders(desk, settled), keep=keep)
        progress(looked)
    async for name, count in prune_others(desk, retention, dry_run=dry_run):
        pruning.others[name] += count


async def settled_orders(
    desk: Desk, retention: Retention, *, unsealed_too: bool = False
) -> AsyncIterator[tuple[int, list[Settled]]]:
    """Settled orders that hold something to prune, a page at a time, each with the number of
    deliveries that were looked at. `unsealed_too`: those that must be sealed before, as well."""
    after, quiet = "", retention.quiet
    while quiet is not None:
        now = desk.clock.now()
        async with desk.store.reading() as connection:
            page = await unpruned(connection, after=after, limit=PAGE)
            if not page or page[0].received_at > now - quiet:
                return
            orders = {each.order for each in page if each.order is not None}
            marks = [m for m in await marks_of(connection, orders) if m.due_at is None]
            histories = await gather(connection, [mark.order for mark in marks])
            ended = ended_orders(desk, histories, retention, now=now, quiet=quiet)
            ids = {order: _ids(histories[order]) for order in ended}
            if not unsealed_too:
                waiting = await without_leaf(connection, chain.from_iterable(ids.values()))
                ids = {order: some for order, some in ids.items() if waiting.isdisjoint(some)}
            sizes = await sizes_of(connection, [each for some in ids.values() for each in some])
        yield (
            len(page),
            [
                Settled(
                    order=mark.order,
                    outcome=ended[mark.order],
                    last_heard=last_heard(histories[mark.order]),
                    sizes={each: sizes[each] for each in ids[mark.order] if each in sizes},
                    mark=mark,
                )
                for mark in marks
                # An order counts on the page of its first delivery, and on no later one.
                if mark.order in ids and min(sizes.keys() & ids[mark.order], default="") > after
            ],
        )
        after = page[-1].delivery_id


def _ids(history: History) -> list[str]:
    return sorted(delivery.delivery_id for delivery in history.deliveries)


async def prune_orders(desk: Desk, settled: Sequence[Settled]) -> list[Settled]:
    """Prune, and return those of the orders of which nothing was said in between."""
    left: dict[str, Settled] = {each.order: each for each in settled}
    for part in _portions(settled):
        async with desk.store.writing() as connection:
            marks = {each.order: each.mark for each, _, _ in part if each.order in left}
            standing = {mark.order for mark in await unchanged(connection, list(marks.values()))}
            left = {o: each for o, each in left.items() if o in standing or o not in marks}
            ids = [delivery for each, delivery, _ in part if each.order in standing]
            await prune(connection, ids, now=desk.clock.now())
    return list(left.values())


def _portions(settled: Iterable[Settled]) -> Iterator[list[tuple[Settled, str, int]]]:
    """Deliveries to prune, so many and so large that one transaction stays short."""
    portion: list[tuple[Settled, str, int]] = []
    weight = 0
    for each in settled:
        for delivery, size in each.sizes.items():
            if portion and (len(portion) == PRUNED_AT_ONCE or weight + size > PRUNED_BYTES):
                yield portion
                portion, weight = [], 0
            portion.append((each, delivery, size))
            weight += size
    if portion:
        yield portion
