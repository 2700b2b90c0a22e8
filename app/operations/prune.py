"""Lets the bodies and headers of settled orders go, in small transactions.

    1 page     deliveries that still have them, oldest first
    2 fold     the orders they belong to; those that are settled are kept in mind
    3 prune    their deliveries, if nothing was said of the orders in between

What the ledger rests on stays: digests, ids, dates, amounts, references and verdicts. An order of
which something is not sealed in the log yet has to wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import structlog

from app.errors import ConfigurationError
from app.operations.desk import Desk
from app.operations.people import note_deed
from app.providers.source import Source
from app.store.erasing import owners
from app.store.histories import gather
from app.store.ledgers import Due, marks_of, unchanged
from app.store.operators import Operator
from app.store.phones import PhoneNote, drop_notes, old_notes
from app.store.retention import (
    drop_rejections,
    old_rejections,
    prune,
    sizes_of,
    unpruned,
)
from app.store.unsealed import without_leaf
from reconcile.fold import fold
from reconcile.history import History
from reconcile.instants import DAY, Duration, Instant, format_instant
from reconcile.ledger import Outcome
from reconcile.settle import is_settled, last_heard

PAGE: Final = 100
"""Deliveries looked at in one go: some milliseconds of folding."""

PRUNED_AT_ONCE: Final = 100
"""Rows emptied in one transaction, so that no acknowledgement waits long for it."""

PRUNED_BYTES: Final = 1024 * 1024
"""Bytes emptied in one transaction: each is overwritten, and passes through the log."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each class of what arrived is kept; None: for ever.

    quiet        bodies and headers, after nothing more was heard of their order: together, for
                 neither is evidence without the other, nor can be read. Never less than the longest
                 time in which a source may deliver again
    phones       digests of phone numbers, after nothing more was heard of their order
    rejections   refused deliveries, from their arrival
    book_phones  phone numbers in order books, from their import
    sources      those whose redelivery time is known; deliveries of others are kept
    """

    quiet: Duration | None
    sources: frozenset[str]
    phones: Duration | None = None
    rejections: Duration | None = None
    book_phones: Duration | None = None

    def classes(self) -> dict[str, int | None]:
        """Each class and the days for which it is kept."""
        spans = {
            "bodies": self.quiet,
            "phones": self.phones,
            "rejections": self.rejections,
            "book_phones": self.book_phones,
        }
        return {name: None if span is None else span // DAY for name, span in spans.items()}


def retention_for(
    days: int,
    sources: Mapping[str, Source],
    *,
    phones: int = 0,
    rejections: int = 0,
    book_phones: int = 0,
) -> Retention | None:
    """What settings of so many days mean; None where everything is kept. 0: for `days`, those of
    bodies and headers, for ever; for the others, as long as these.

    Raises ConfigurationError where a source may deliver again after its bodies would be gone.
    """
    given = {"phones": phones, "rejections": rejections, "book_phones": book_phones}
    if not (days or any(given.values())):
        return None
    if days:
        _check_redelivery(days, sources)
    spans = {name: (own or days) * DAY or None for name, own in given.items()}
    return Retention(quiet=days * DAY or None, sources=frozenset(sources), **spans)


def _check_redelivery(days: int, sources: Mapping[str, Source]) -> None:
    spans = {
        name: source.profile.acknowledgement.redelivery_days for name, source in sources.items()
    }
    problems = [
        f"TALLYHOOK_RETENTION_DAYS: {days} is less than the {span} days within which source {name} "
        f"may deliver again; write {max(spans.values())} or more, or 0 to keep everything"
        for name, span in spans.items()
        if span > days
    ]
    if problems:
        raise ConfigurationError(problems)


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
    rejections: int = 0
    phones: int = 0
    book_phones: int = 0
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
            "rejections": self.rejections,
            "phones": self.phones,
            "book_phones": self.book_phones,
            "classes": [
                {"class": name, "days": days, "items": self.items()[name]}
                for name, days in self.classes.items()
            ],
            "settled": [each.document() for each in self.settled],
        }

    def items(self) -> dict[str, int]:
        """How many of each class were found, or let go."""
        return {
            "bodies": self.deliveries,
            "phones": self.phones,
            "rejections": self.rejections,
            "book_phones": self.book_phones,
        }


async def prune_settled(
    desk: Desk,
    retention: Retention,
    *,
    dry_run: bool = False,
    keep: int = 0,
    progress: Callable[[int], None],
) -> Pruning:
    """One pass over everything; `dry_run` only looks. `keep`: how many orders to tell by name."""
    quiet = retention.quiet
    pruning = Pruning(
        before=None if quiet is None else desk.clock.now() - quiet, classes=retention.classes()
    )
    async for looked, settled in settled_orders(desk, retention, unsealed_too=dry_run):
        pruning.add(settled if dry_run else await prune_orders(desk, settled), keep=keep)
        progress(looked)
    async for rejections in old_rejections_by_page(desk, retention):
        if not dry_run:
            await prune_rejections(desk, rejections)
        pruning.rejections += len(rejections)
    async for notes in old_notes_by_page(desk, retention):
        if not dry_run:
            await prune_notes(desk, notes)
        pruning.phones += len(notes)
    return pruning


async def note_pruning(desk: Desk, who: Operator, pruning: Pruning) -> None:
    """Add to the trail what was let go, if anything was."""
    gone = {name: count for name, count in pruning.items().items() if count}
    if gone:
        async with desk.store.writing() as connection:
            await note_deed(
                connection,
                who,
                action="pruned",
                subject="what is older than is kept",
                at=desk.clock.now(),
                facts=gone,
            )


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
            ended = _settled(desk, histories, retention, now=now, quiet=quiet)
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


def _settled(
    desk: Desk,
    histories: Mapping[str, History],
    retention: Retention,
    *,
    now: Instant,
    quiet: Duration,
) -> dict[str, Outcome]:
    """The outcomes of those orders that are settled, and whose sources are all known."""
    found: dict[str, Outcome] = {}
    for order, history in histories.items():
        if any(each.event.source not in retention.sources for each in history.deliveries):
            continue
        try:
            ledger = fold(history, policy=desk.policy, as_of=history.instant_at(now))
        except Exception as error:
            log.error("an order cannot be folded", order=order, exc_info=error)
            continue
        if is_settled(history, ledger, quiet=quiet):
            found[order] = ledger.outcome
    return found


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


async def old_rejections_by_page(desk: Desk, retention: Retention) -> AsyncIterator[list[str]]:
    """Rejections that are older than what is kept, a page at a time."""
    if retention.rejections is None:
        return
    before, after = desk.clock.now() - retention.rejections, ""
    while True:
        async with desk.store.reading() as connection:
            found = await old_rejections(
                connection, before=before, after=after, limit=PRUNED_AT_ONCE
            )
        if not found:
            return
        yield found
        after = found[-1]


async def old_notes_by_page(desk: Desk, retention: Retention) -> AsyncIterator[list[PhoneNote]]:
    """Digests of phone numbers of orders that have been settled for longer than they are kept."""
    quiet, after = retention.phones, None
    while quiet is not None:
        now = desk.clock.now()
        async with desk.store.reading() as connection:
            page = await old_notes(connection, before=now - quiet, after=after, limit=PAGE)
            if not page:
                return
            owned = await owners(connection, [note[2] for note in page if note[1] == "delivery"])
            orders = {each.delivery_id: each.order for each in owned}
            orders |= {note[2]: note[2] for note in page if note[1] == "order"}
            histories = await gather(connection, {each for each in orders.values() if each})
            ended = _settled(desk, histories, retention, now=now, quiet=quiet)
        yield [note for note in page if orders.get(note[2]) in ended]
        after = page[-1]


async def prune_notes(desk: Desk, notes: Sequence[PhoneNote]) -> None:
    """Let these digests go."""
    async with desk.store.writing() as connection:
        await drop_notes(connection, notes)


async def prune_rejections(desk: Desk, rejections: Sequence[str]) -> None:
    """Let these rejections go."""
    async with desk.store.writing() as connection:
        await drop_rejections(connection, rejections)
