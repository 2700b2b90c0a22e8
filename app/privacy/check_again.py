"""The parts of a deep check that can be done in several processes: reading bodies, folding orders.

    1 read    some deliveries again, as their sources' profiles say
    2 fold    the orders of a range again, and compare what is cached and what was published

A process that folds reads the database by itself, on a snapshot of its own for each range: of an
order, everything that is compared is read together. A process that reads is given the bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from multiprocessing import get_context
from operator import attrgetter
from typing import Any, Final, TypeVar

from app.core.clock import SystemClock
from app.core.errors import UnreachableError
from app.database.mapping import delivery_of, event_row
from app.finance.ledger_line_store import Fresh, row_of, stored_takings
from app.finance.ledger_lines import is_behind
from app.orders.history_store import Range, scan
from app.orders.index_store import Reread
from app.orders.ledger_store import latest_positions, ledger_row
from app.orders.policy_version_store import rules_of
from app.orders.rebuild import Helpers
from app.orders.refold import CLAIM, decided
from app.orders.reindex import read_again
from app.privacy.consistency_store import cached_rows
from app.providers.source import Source
from app.receiving.context import AppContext
from app.receiving.delivery_log_store import RawDelivery
from app.receiving.due_store import Due, marks_of
from app.receiving.store import open_store
from reconcile.instants import Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy, policy_text
from reconcile.ledger.revise import Position
from reconcile.matching.ledger_lines import taking

Sources = Mapping[str, Source]
Result = TypeVar("Result")


def waits_after(context: AppContext, now: Instant) -> Instant:
    """The instant after which a mark waits. An order that a worker has claimed is due, though its
    mark stands at the claim's end."""
    return now + (CLAIM if context.store.shared else 0)


async def check_orders(context: AppContext, orders: Range) -> tuple[int, list[str]]:
    """Fold every order of a range, on one snapshot. Returns how many there are, and what does not
    fit, a sentence each."""
    count, checking = 0, Orders(context)
    async with context.store.reading() as connection:
        async for histories in scan(connection, orders):
            await checking.compare(connection, histories)
            count += len(histories)
    return count, checking.problems


@dataclass(slots=True)
class Orders:
    """Compares orders with their histories; what does not fit is added to `problems`."""

    context: AppContext
    problems: list[str] = field(default_factory=list)

    async def compare(self, connection: Any, histories: Sequence[History]) -> None:
        """Orders that are not due: one that is, is behind, and known to be."""
        orders = [history.order for history in histories]
        marks = {mark.order: mark for mark in await marks_of(connection, orders)}
        cached = await cached_rows(connection, orders)
        published = await latest_positions(connection, orders)
        takings = await stored_takings(connection, orders)
        now = self.context.clock.now()  # after the snapshot began: what came before it is due
        beyond = waits_after(self.context, now)
        for history in histories:
            order = history.order
            mark = marks.get(order)
            if mark is not None and (mark.due_at is None or mark.due_at > beyond):
                ledger = self._folded(history, now)
                if ledger is None:
                    continue
                self._compare_order(ledger, mark, cached.get(order), published.get(order))
                if order in takings:
                    await self._compare_taking(connection, ledger, mark, takings[order])

    def _compare_order(
        self, ledger: Ledger, mark: Due, cached: tuple[Any, ...] | None, published: Position | None
    ) -> None:
        order = ledger.order
        wanted = decided(ledger, published, rules=rules_of(policy_text(self.context.policy)))
        if cached is not None and _without_instant(cached) != _without_instant(ledger_row(wanted)):
            self.problems.append(f"the ledger of {order} is not what its history gives")
        if wanted.revision is not None:
            self.problems.append(
                f"what was last published of {order} is not what its history gives"
            )
        if mark.due_at != ledger.next_decision_at:
            self.problems.append(f"the due mark of {order} is not at its history's next decision")

    async def _compare_taking(
        self, connection: Any, ledger: Ledger, mark: Due, row: tuple[Any, ...]
    ) -> None:
        given = Fresh(
            order=ledger.order,
            generation=mark.generation,
            until=ledger.next_decision_at,
            taking=taking(ledger),
        )
        right = given.taking is not None and row == row_of(given)
        if not right and not await is_behind(connection, ledger.order):
            self.problems.append(f"the taking of {ledger.order} is not what its history gives")

    def _folded(self, history: History, now: Instant) -> Ledger | None:
        try:
            return fold(history, policy=self.context.policy, as_of=history.instant_at(now))
        except Exception as error:
            name = type(error).__name__
            self.problems.append(f"order {history.order} cannot be folded ({name})")
            return None


def _without_instant(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A cached row without `as_of`: a ledger stays what it is until its next decision."""
    return (row[0], *row[2:])


# --- here, or in other processes -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What reading and folding again take.

    sources  makes those of the stored deliveries, in each process for itself
    helpers  other processes that read and fold; None: this one does all of it
    """

    sources: Callable[[], Sources]
    helpers: Helpers | None = None

    @property
    def jobs(self) -> int:
        """How many processes do it."""
        return 1 if self.helpers is None else self.helpers.jobs


@dataclass(frozen=True, slots=True)
class Doing:
    """How both are done while the processes are there."""

    read: Callable[[Sequence[RawDelivery]], Awaitable[list[Reread]]]
    fold: Callable[[Range], Awaitable[tuple[int, list[str]]]]


@asynccontextmanager
async def doing_again(context: AppContext, again: Again) -> AsyncIterator[Doing]:
    """Begin the processes, and end them. Raises UnreachableError where one died."""
    environment = context.store.environment
    if again.helpers is None:
        sources = again.sources()

        async def read_here(deliveries: Sequence[RawDelivery]) -> list[Reread]:
            return [read_again(each, sources, environment=environment) for each in deliveries]

        async def fold_here(orders: Range) -> tuple[int, list[str]]:
            return await check_orders(context, orders)

        yield Doing(read_here, fold_here)
        return
    pool = ProcessPoolExecutor(
        again.helpers.jobs,
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(again, context.policy),
    )

    async def elsewhere(work: Callable[..., Result], *words: Any) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *words)
        except BrokenProcessPool as error:
            raise UnreachableError(
                "a process that reads and folds has ended before its time: check again, with "
                "--jobs 1 if memory was short"
            ) from error

    async def read_there(deliveries: Sequence[RawDelivery]) -> list[Reread]:
        found = await elsewhere(_read_elsewhere, list(map(_sent, deliveries)), environment)
        return [_reread(each, said) for each, said in zip(deliveries, found, strict=True)]

    try:
        yield Doing(read_there, lambda orders: elsewhere(_fold_elsewhere, orders))
    finally:
        await asyncio.to_thread(pool.shutdown, cancel_futures=True)


@dataclass(slots=True)
class _Process:
    """What a process of the pool works with."""

    again: Again
    policy: Policy
    made: Sources | None = None

    def sources(self) -> Sources:
        """Made when first needed: then what is wrong with them is the call's error."""
        if self.made is None:
            self.made = self.again.sources()
        return self.made


_process: Final[list[_Process]] = []


def _begin(again: Again, policy: Policy) -> None:
    _process.append(_Process(again, policy))


# Deliveries and events go from process to process as tuples: as the values that they are, each
# takes longer on its way than to be read.
_FIELDS: Final = tuple(each.name for each in fields(RawDelivery))
_sent: Final = attrgetter(*_FIELDS)

Said = tuple[tuple[Any, ...] | None, str | None, bytes | None]
"""Of one delivery: the row of its event, the problem and the customer, as in `Reread`."""


def _read_elsewhere(sent: Sequence[tuple[Any, ...]], environment: str | None) -> list[Said]:
    sources, found = _process[0].sources(), []
    for each in sent:
        delivery = RawDelivery(**dict(zip(_FIELDS, each, strict=True)))
        reread = read_again(delivery, sources, environment=environment)
        found.append((_row(reread), reread.problem, reread.customer))
    return found


def _row(reread: Reread) -> tuple[Any, ...] | None:
    if reread.event is None:
        return None
    at = reread.delivery
    return event_row(
        reread.event, order_key=None, delivery_id=at.delivery_id, received_at=at.received_at
    )


def _reread(delivery: RawDelivery, said: Said) -> Reread:
    row, problem, customer = said
    event = None if row is None else delivery_of(row).event
    return Reread(delivery=delivery, event=event, problem=problem, customer=customer)


def _fold_elsewhere(orders: Range) -> tuple[int, list[str]]:
    return asyncio.run(_opened(_process[0], orders))


async def _opened(process: _Process, orders: Range) -> tuple[int, list[str]]:
    assert process.again.helpers is not None
    async with open_store(process.again.helpers.store, purpose="reading") as store:
        context = AppContext(store=store, policy=process.policy, clock=SystemClock())
        return await check_orders(context, orders)
