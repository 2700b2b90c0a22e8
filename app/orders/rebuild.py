"""Rebuild every ledger from the stored history, by ranges of orders, in several processes.

    1 cut      all orders into ranges with about the same number of events, in key order
    2 fold     a range: its histories, the last publications of its orders, their current ledgers
    3 publish  what differs, in the order of the ranges, in one process

A folding process only reads. If it dies, the rebuild ends, and the next rebuild or start does the
rest.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, NamedTuple, TypeVar

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.core.errors import UnreachableError
from app.core.jobs import silent
from app.database.statements import PlainConnection, run
from app.orders.history_store import Range, ranges, scan, side_stream
from app.orders.ledger_store import (
    Publication,
    drop_ledger_lines,
    drop_ledgers_without_history,
    position_in,
    positions_of,
    publish,
)
from app.orders.policy_version_store import (
    forget_gaps_followed,
    forget_policy,
    note_policy,
    rules_of,
)
from app.orders.refold import PUT_ASIDE, decided_or_log, fold_or_log, publishable, with_holds
from app.receiving.due_store import marks_of, put_marks_right
from app.receiving.inbox import open_inbox
from reconcile.instants import Instant
from reconcile.ledger.policy import Policy, policy_text

EVENTS_AT_ONCE: Final = 16_000
"""Number of events in one range of orders: a third of a second, and 10 MiB a process."""

AHEAD: Final = 2
"""Maximum number of ranges that each process may have begun before the earliest range is
published."""


class Rebuilt(NamedTuple):
    """Result of folding a range of orders: their publications, and `aside`, the orders that could
    not be folded."""

    publications: list[Publication]
    aside: list[str]


async def refold_all(
    context: AppContext, *, progress: Callable[[int], None] = silent, jobs: int = 1
) -> int:
    """Rebuild every order's ledger, and return the number of rebuilt ledgers.

    progress  called with the number of orders folded since its last call
    jobs      number of processes that fold; with 1, this process does everything

    Raises UnreachableError if another process died.
    """
    now = await publishable(context)
    async with context.database.writing() as connection:
        # Ledgers stay until they are replaced: they say by which rules each order was folded.
        await drop_ledger_lines(connection)
        # If interrupted, it leaves orders of both policies. The next start sets all of them due.
        await forget_policy(connection)
    folded = 0
    async with (
        _folding(context, jobs, now=now) as fold_range,
        context.database.reading() as connection,
    ):
        ahead = AHEAD * jobs
        async for found in in_order(
            ranges(connection, events=EVENTS_AT_ONCE), fold_range, ahead=ahead
        ):
            if found.publications:
                await context.database.writer.commit(_publish, context, found.publications)
            if found.aside:  # try them again later
                async with context.database.writing() as writing:
                    marks = await marks_of(writing, found.aside, to_write=True)
                    await run(writing, publish, [], due=marks, put_aside_until=now + PUT_ASIDE)
            folded += len(found.publications)
            progress(len(found.publications))
    async with context.database.writing() as connection:
        await drop_ledgers_without_history(connection)
        await note_policy(connection, policy_text(context.policy))
        await forget_gaps_followed(connection)  # due marks were reset from the ledgers
    return folded


Piece = TypeVar("Piece")
Done = TypeVar("Done")
FoldRange = Callable[[Range], Awaitable[Rebuilt]]


async def in_order(
    pieces: AsyncIterator[Piece], work: Callable[[Piece], Awaitable[Done]], *, ahead: int
) -> AsyncIterator[Done]:
    """Call `work` for up to `ahead` pieces at a time. Yield the results in the order of the
    pieces."""
    under_way: deque[asyncio.Future[Done]] = deque()
    try:
        async for each in pieces:
            under_way.append(asyncio.ensure_future(work(each)))
            if len(under_way) > ahead:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)  # the first error is raised


Elsewhere = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def processes(context: AppContext, jobs: int, *, died: str) -> AsyncIterator[Elsewhere]:
    """Start `jobs` processes with a context's settings and policy. End the processes when the block
    ends.

    Yield a function that runs a given function in one of the processes. It raises UnreachableError
    with the message `died` if a process has died.
    """
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(context.settings, context.policy),
    )

    async def elsewhere(work: Callable[..., Done], *words: object) -> Done:
        # Do not cancel the pool's future with the caller: a breaking pool sets an exception on
        # each of its futures, and its thread dies if a future was just cancelled.
        future = asyncio.get_running_loop().run_in_executor(pool, work, *words)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
        try:
            return await asyncio.shield(future)
        except BrokenProcessPool as error:
            raise UnreachableError(died) from error

    try:
        yield elsewhere
    finally:
        await asyncio.to_thread(pool.shutdown, cancel_futures=True)


@asynccontextmanager
async def _folding(context: AppContext, jobs: int, *, now: Instant) -> AsyncIterator[FoldRange]:
    if jobs == 1:
        turn = asyncio.Lock()

        async def here(orders: Range) -> Rebuilt:
            async with turn:
                return await folded_range(context, orders, now=now)

        yield here
        return
    died = (
        "a folding process ended unexpectedly; published outcomes are complete: run `tallyhook "
        "refold --all` again, with --jobs 1 if memory ran out"
    )
    async with processes(context, jobs, died=died) as elsewhere:
        yield lambda orders: elsewhere(_folded_elsewhere, orders, now)


begun_with: Final[list[tuple[Settings, Policy]]] = []


def _begin(settings: Settings, policy: Policy) -> None:
    begun_with.append((settings, policy))


def in_context(use: Callable[[AppContext], Awaitable[Done]]) -> Done:
    """Run `use` with a read-only context, and return its result. Call this function only in a
    process that `processes` has started."""
    settings, policy = begun_with[0]

    async def work() -> Done:
        async with open_inbox(settings, purpose="reading") as inbox:
            return await use(inbox.context(clock=SystemClock(), policy=policy))

    return asyncio.run(work())


def _folded_elsewhere(orders: Range, now: Instant) -> Rebuilt:
    return in_context(partial(folded_range, orders=orders, now=now))


async def folded_range(context: AppContext, orders: Range, *, now: Instant) -> Rebuilt:
    """Compute the ledgers of all orders in a range, and return what must be published. Nothing is
    written."""
    rules = rules_of(policy_text(context.policy))
    found = Rebuilt([], [])
    async with context.database.reading() as connection:
        sql = positions_of(orders.condition("order_key"))
        published = await side_stream(connection, sql, orders.values)
        async for histories in scan(connection, orders):
            for history in histories:
                as_of = history.instant_at(now)
                ledger = fold_or_log(history, policy=context.policy, as_of=as_of)
                rows = await published.take(history.order)
                before = position_in(rows[-1]) if rows else None
                publication = (
                    None if ledger is None else decided_or_log(ledger, before, rules=rules)
                )
                if publication is None:
                    found.aside.append(history.order)
                else:
                    found.publications.append(publication)
    return found


def _publish(
    connection: PlainConnection, context: AppContext, publications: Sequence[Publication]
) -> None:
    notify = context.clock.now() if context.notifies_shop else None
    found = with_holds(connection, context, publications)
    publish(connection, found, notify=notify)
    if found:
        put_marks_right(connection, first=found[0].order, last=found[-1].order)
