"""Delete settled orders' bodies and headers after the retention period."""

import asyncio
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from itertools import chain
from time import perf_counter
from typing import Any, Final, TypeVar

from app.access import operator_store
from app.access.operators import SERVICE, note_in_trail, who_may
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import CLOCKS_DIFFER, LeapGuard, SetClock
from app.core.errors import ConfigurationError, StoreUnavailable, UsageError
from app.core.logs import log
from app.core.periodic import PeriodicTask
from app.core.text import counted
from app.database.statements import run
from app.evidence.seal import CheckpointSigner, seal_all
from app.finance import book_line_store
from app.orders import history_store, retention_store
from app.orders.clock_correction_store import newest_ahead
from app.privacy import erase_store
from app.privacy.erase_rules import NO_TIME, disputable_until, periods_of
from app.providers.source import Source
from app.receiving import due_store, phone_store
from app.sealing import log_queue_store
from reconcile.instants import DAY, Duration, Instant, format_instant
from reconcile.ledger.fold import fold, is_settled, last_heard
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Outcome

# --- how long each class of data is kept ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention period of each class of stored deliveries; None for ever."""

    quiet: Duration | None
    """Time that bodies and headers are kept, since the order's last evidence."""
    sources: frozenset[str]
    """Sources with a known redelivery time. Other deliveries are kept."""
    phones: Duration | None = None
    """Time that digests of phone numbers are kept, counted like `quiet`."""
    rejections: Duration | None = None
    """Time that refused deliveries are kept, since the arrival."""
    book_phones: Duration | None = None
    """Time that phone numbers of order books are kept, since the import."""
    disputes: Duration = NO_TIME
    """Minimum for bodies and headers, since the order's last capture."""

    def classes(self) -> dict[str, int | None]:
        """Return each class's retention in days; None means for ever."""
        spans = {
            "bodies": self.quiet,
            "phones": self.phones,
            "rejections": self.rejections,
            "book_phones": self.book_phones,
        }
        return {name: None if span is None else span // DAY for name, span in spans.items()}


def retention_of(settings: Settings, sources: Mapping[str, Source]) -> Retention | None:
    """Return the retention periods, or None if everything is kept.

    0 days means for ever. Raise ConfigurationError if a source can redeliver after the deletion.
    """
    days = settings.retention_days
    given = {
        "phones": settings.retention_phones_days,
        "rejections": settings.retention_rejections_days,
        "book_phones": settings.retention_book_phones_days,
    }
    if not (days or any(given.values())):
        return None
    again = {
        name: source.profile.acknowledgement.redelivery_days for name, source in sources.items()
    }
    problems = [
        f"TALLYHOOK_RETENTION_DAYS: {days} is less than the {counted(span, 'day')} in which "
        f"source {name} may repeat a delivery; write {max(again.values())} or more, or 0 to keep "
        "everything"
        for name, span in again.items()
        if days and span > days
    ]
    if problems:
        raise ConfigurationError(problems)
    spans = {name: (own or days) * DAY or None for name, own in given.items()}
    return Retention(
        quiet=days * DAY or None,
        sources=frozenset(sources),
        disputes=periods_of(settings).disputes,
        **spans,
    )


# --- finding and pruning what is old enough -------------------------------------------------------


def ended_orders(
    context: AppContext,
    histories: Mapping[str, History],
    retention: Retention,
    *,
    now: Instant,
    quiet: Duration,
) -> dict[str, Outcome]:
    """Return the outcome of each settled order with known sources."""
    found: dict[str, Outcome] = {}
    for order, history in histories.items():
        if any(each.event.source not in retention.sources for each in history.deliveries):
            continue
        try:
            ledger = fold(history, policy=context.policy, as_of=history.instant_at(now))
        except Exception as error:
            log.error("an order cannot be folded", order=order, exc_info=error)
            continue
        disputable = disputable_until(ledger, retention.disputes)
        if is_settled(history, ledger, quiet=quiet) and disputable is None:
            found[order] = ledger.outcome
    return found


OTHERS_AT_ONCE: Final = 100
"""Number of rows that are deleted in one short transaction."""


async def prune_others(
    context: AppContext, retention: Retention, *, dry_run: bool
) -> AsyncIterator[tuple[str, int]]:
    """Delete old refused deliveries and phone numbers. Yield class and number of rows."""
    classes: tuple[tuple[str, AsyncIterator[list[Any]], Callable[..., Awaitable[None]]], ...] = (
        (
            "rejections",
            _older(context, retention.rejections, retention_store.old_rejections, ""),
            retention_store.drop_rejections,
        ),
        ("phones", _old_notes(context, retention), phone_store.drop_notes),
        (
            "book_phones",
            _older(context, retention.book_phones, book_line_store.old_lines, None),
            book_line_store.empty_lines,
        ),
    )
    for name, pages, drop in classes:
        async for page in pages:
            if not dry_run:
                async with context.database.writing() as connection:
                    await drop(connection, page)
            yield name, len(page)


async def note_pruning(
    context: AppContext, who: operator_store.Operator, gone: Mapping[str, int]
) -> None:
    """Record the deletions of each class in the audit trail."""
    facts = {name: count for name, count in gone.items() if count}
    if facts:
        async with context.database.writing() as connection:
            await note_in_trail(
                connection,
                who,
                action="pruned",
                subject="all data past its retention period",
                at=context.clock.now(),
                facts=facts,
            )


async def _older(
    context: AppContext,
    span: Duration | None,
    rows: Callable[..., Awaitable[list[Any]]],
    after: Any,
) -> AsyncIterator[list[Any]]:
    while span is not None:
        before = context.clock.now() - span
        async with context.database.reading() as connection:
            found = await rows(connection, before=before, after=after, limit=OTHERS_AT_ONCE)
        if not found:
            return
        yield found
        after = found[-1]


async def _old_notes(
    context: AppContext, retention: Retention
) -> AsyncIterator[list[phone_store.PhoneNote]]:
    quiet, after = retention.phones, None
    while quiet is not None:
        now = context.clock.now()
        async with context.database.reading() as connection:
            page = await phone_store.old_notes(
                connection, before=now - quiet, after=after, limit=OTHERS_AT_ONCE
            )
            if not page:
                return
            noted = [note[2] for note in page if note[1] == "delivery"]
            owned = await erase_store.owners(connection, noted)
            known = [o.delivery_id for o in owned if o.source in retention.sources]
            unrelated = await retention_store.unrelated_among(connection, known)
            orders = {each.delivery_id: each.order for each in owned}
            orders |= {note[2]: note[2] for note in page if note[1] == "order"}
            histories = await history_store.gather(
                connection, {each for each in orders.values() if each}
            )
            ended = ended_orders(context, histories, retention, now=now, quiet=quiet)
        yield [
            note
            for note in page
            if orders.get(note[2]) in ended
            or note[2] in unrelated
            or note[1] == phone_store.RECIPIENT
        ]
        after = page[-1]


PAGE: Final = 100
"""Number of deliveries that are examined at a time."""

PRUNED_AT_ONCE: Final = 100
"""Number of rows that are emptied in one short transaction."""

PRUNED_BYTES: Final = 1024 * 1024
"""Maximum bytes emptied in one transaction, which writes them twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledOrder:
    """Settled order whose bodies and headers can be deleted."""

    order: str
    outcome: Outcome
    last_heard: Instant
    sizes: Mapping[str, int]
    mark: due_store.Due

    def document(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "outcome": self.outcome,
            "last_heard": format_instant(self.last_heard),
            "deliveries": len(self.sizes),
            "bytes": sum(self.sizes.values()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunablePage:
    """One page of deliveries that can be deleted."""

    looked: int
    settled: list[SettledOrder]
    unrelated: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class Pruning:
    """Result or preview of deleting old data."""

    before: Instant | None
    """Latest instant of an order's last evidence. None if all bodies are kept."""
    classes: Mapping[str, int | None] = field(default_factory=dict)
    orders: int = 0
    """Number of settled orders; `settled` lists the first."""
    deliveries: int = 0
    unrelated: int = 0
    """Number of deliveries to delete that concern no order."""
    size: int = 0
    others: Counter[str] = field(default_factory=Counter)
    settled: list[SettledOrder] = field(default_factory=list)

    def add(self, page: PrunablePage, *, keep: int) -> None:
        """Count one page's content. At most `keep` orders are listed."""
        sizes = [each.sizes for each in page.settled] + [page.unrelated]
        self.orders += len(page.settled)
        self.unrelated += len(page.unrelated)
        self.deliveries += sum(map(len, sizes))
        self.size += sum(sum(each.values()) for each in sizes)
        self.settled += page.settled[: max(keep - len(self.settled), 0)]

    def document(self) -> dict[str, Any]:
        return {
            "before": None if self.before is None else format_instant(self.before),
            "orders": self.orders,
            "deliveries": self.deliveries,
            "of_no_order": self.unrelated,
            "bytes": self.size,
            "rejections": self.others["rejections"],
            "classes": [
                {"class": name, "days": days, "items": self.items()[name]}
                for name, days in self.classes.items()
            ],
            "settled": [each.document() for each in self.settled],
        }

    def items(self) -> dict[str, int]:
        """Return how many rows of each class of data were found or deleted."""
        names = ("rejections", "phones", "book_phones")
        return {"bodies": self.deliveries} | {name: self.others[name] for name in names}


async def prune_settled(
    context: AppContext,
    retention: Retention,
    *,
    dry_run: bool = False,
    keep: int = 0,
    progress: Callable[[int], None],
) -> Pruning:
    """Delete all settled orders' old data in one pass."""
    pruning = _begun(context, retention)
    async for looked in _pass(context, retention, pruning, dry_run=dry_run, keep=keep):
        progress(looked)
    return pruning


async def prune_by_hand(
    context: AppContext,
    retention: Retention,
    *,
    by: str | None,
    signer: CheckpointSigner,
    keep: int,
    progress: Callable[[int], None],
) -> Pruning:
    """Seal and delete old data for a person. Raise UsageError if permission is missing."""
    who = await who_may(context, by=by, action="pruned")
    await seal_all(context, signer)
    pruning = _begun(context, retention)
    try:
        async for looked in _pass(context, retention, pruning, dry_run=False, keep=keep):
            progress(looked)
        # A receiver that ended within a second of its last delivery left what was read in its file.
        # A running one deletes it itself; when it does so does not matter here.
        await context.inbox.tidy()
    finally:
        await note_pruning(context, who, pruning.items())
    return pruning


def _begun(context: AppContext, retention: Retention) -> Pruning:
    quiet = retention.quiet
    before = None if quiet is None else context.clock.now() - quiet
    return Pruning(before=before, classes=retention.classes())


async def _pass(
    context: AppContext, retention: Retention, pruning: Pruning, *, dry_run: bool, keep: int = 0
) -> AsyncIterator[int]:
    now = context.clock.now()
    newest = await context.database.on_snapshot(newest_ahead, now)
    if newest - now > CLOCKS_DIFFER and not dry_run:
        raise UsageError(
            f"nothing is pruned while the newest stored date, {format_instant(newest)}, is later "
            "than this machine's clock: set the clock by NTP. If the clock is already right, "
            "start the service, which corrects the dates"
        )
    async for page in settled_orders(context, retention, unsealed_too=dry_run):
        pruning.add(page if dry_run else await _prune_page(context, page), keep=keep)
        yield page.looked
    async for name, count in prune_others(context, retention, dry_run=dry_run):
        pruning.others[name] += count
        yield 0


async def settled_orders(
    context: AppContext, retention: Retention, *, unsealed_too: bool = False
) -> AsyncIterator[PrunablePage]:
    """Yield pages of orders and deliveries with deletable data."""
    after, quiet = "", retention.quiet
    while quiet is not None:
        now = context.clock.now()
        async with context.database.reading() as connection:
            page = await retention_store.unpruned(connection, after=after, limit=PAGE)
            if not page or page[0].received_at > now - quiet:
                return
            orders = {each.order for each in page if each.order is not None}
            marks = [m for m in await due_store.marks_of(connection, orders) if m.due_at is None]
            histories = await history_store.gather(connection, [mark.order for mark in marks])
            ended = ended_orders(context, histories, retention, now=now, quiet=quiet)
            ids = {
                order: sorted(delivery.delivery_id for delivery in histories[order].deliveries)
                for order in ended
            }
            old = [
                each.delivery_id
                for each in page
                if each.order is None
                and each.source in retention.sources
                and each.received_at <= now - quiet
            ]
            unrelated = await retention_store.unrelated_among(connection, old)
            if not unsealed_too:
                waiting = await log_queue_store.without_leaf(
                    connection, chain(*ids.values(), unrelated)
                )
                ids = {order: some for order, some in ids.items() if waiting.isdisjoint(some)}
                unrelated -= waiting
            sizes = await retention_store.sizes_of(connection, chain(*ids.values(), unrelated))
        yield PrunablePage(
            looked=len(page),
            settled=[
                SettledOrder(
                    order=mark.order,
                    outcome=ended[mark.order],
                    last_heard=last_heard(histories[mark.order]),
                    sizes={each: sizes[each] for each in ids[mark.order] if each in sizes},
                    mark=mark,
                )
                for mark in marks
                # An order is counted only on the page of its first delivery.
                if mark.order in ids and min(sizes.keys() & ids[mark.order], default="") > after
            ],
            unrelated={each: sizes[each] for each in sorted(sizes.keys() & unrelated)},
        )
        after = page[-1].delivery_id


async def _prune_page(context: AppContext, page: PrunablePage) -> PrunablePage:
    settled = await prune_orders(context, page.settled)
    gone: dict[str, int] = {}
    several = ((each, each, size) for each, size in page.unrelated.items())
    for part in _portions(several):
        async with context.database.writing() as connection:
            # A delivery that was read again meanwhile, by a newer profile, may belong to an order.
            ids = await retention_store.unrelated_among(connection, [each for each, _, _ in part])
            await retention_store.prune(connection, sorted(ids), now=context.clock.now())
        gone |= {each: page.unrelated[each] for each in ids}
    return PrunablePage(looked=page.looked, settled=settled, unrelated=gone)


async def prune_orders(context: AppContext, settled: Sequence[SettledOrder]) -> list[SettledOrder]:
    """Delete these orders' bodies and headers, except after new evidence. Return the pruned
    orders."""
    left: dict[str, SettledOrder] = {each.order: each for each in settled}
    several = ((each, delivery, size) for each in settled for delivery, size in each.sizes.items())
    for part in _portions(several):
        async with context.database.writing() as connection:
            marks = {each.order: each.mark for each, _, _ in part if each.order in left}
            found = await run(connection, due_store.unchanged, list(marks.values()))
            standing = {mark.order for mark in found}
            left = {o: each for o, each in left.items() if o in standing or o not in marks}
            ids = [delivery for each, delivery, _ in part if each.order in standing]
            await retention_store.prune(connection, ids, now=context.clock.now())
    return list(left.values())


_T = TypeVar("_T")


def _portions(items: Iterable[tuple[_T, str, int]]) -> Iterator[list[tuple[_T, str, int]]]:
    portion: list[tuple[_T, str, int]] = []
    weight = 0
    for each in items:
        if portion and (len(portion) == PRUNED_AT_ONCE or weight + each[2] > PRUNED_BYTES):
            yield portion
            portion, weight = [], 0
        portion.append(each)
        weight += each[2]
    if portion:
        yield portion


REST_SHARE: Final = 20.0
"""Pause after a page, as a multiple of its time."""

PASS_S: Final = 3_600.0
"""Seconds between two passes."""


class Pruner(PeriodicTask):
    """Periodic task that deletes old data of settled orders."""

    def __init__(self, context: AppContext, retention: Retention) -> None:
        super().__init__(self._look, component="the pruner", rest=lambda done: PASS_S)
        self._context = context
        self._retention = retention
        self._guard = LeapGuard(context.clock)

    async def _look(self) -> int:
        try:
            await self._pass()
        except (StoreUnavailable, UsageError) as error:
            log.warning("nothing could be pruned", error_class=type(error).__name__)
        except Exception as error:
            log.error("pruning failed", exc_info=error)
        return 0

    async def _pass(self) -> None:
        pruning = Pruning(before=None)
        try:
            await self._prune(pruning)
        finally:
            await note_pruning(self._context, SERVICE, pruning.items())
        if pruning.deliveries:
            log.info("bodies and headers pruned", count=pruning.deliveries)

    async def _prune(self, pruning: Pruning) -> None:
        now = self._context.clock.now()  # before the guard looks, so that no later jump dates it
        if self._guard.has_leapt():
            log.warning("nothing is pruned for a day because the clock jumped ahead")
            return
        context, began = replace(self._context, clock=SetClock(now)), perf_counter()
        async for _ in _pass(context, self._retention, pruning, dry_run=False):
            if (
                await self._stops_within((perf_counter() - began) * REST_SHARE)
                or self._guard.has_leapt()
            ):
                return
            began = perf_counter()

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
