"""The first look of a matching by ranges of keys, each in a process of its own, on one snapshot.

    1 cut      all keys into ranges of about as many orders, and look how far everything reaches,
               while the processes start: neither needs the snapshot
    2 share    one instant of the database, which every process holds from then on
    3 match    a range: what is told of it goes to the one that writes as it is found, at the end
               what was counted and left over
    4 absorb   the ranges in the order of their keys, in the process that writes

A process that matches only reads. One that dies ends the run, of which then nothing counts: its
number is that of no finished run. A pool of processes, as the rebuild has, would not do: what a
process begins with is a transaction that must stay open.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, Final

from app.core.errors import TallyhookError, UnreachableError
from app.core.process import look_seldom
from app.database.engine import Connection
from app.finance.ledger_line_store import KeyRange, count_ledger_lines, keys_at
from app.finance.matching_store import (
    ImportedDates,
    hold_snapshot,
    imported_dates,
    in_step,
    rows_to_read,
    share_snapshot,
)
from app.finance.reconcile_rows import Known, Snapshot
from app.orders.rebuild import Helpers
from app.receiving.context import AppContext
from app.receiving.store import StoreSettings, open_store
from reconcile.instants import Instant
from reconcile.matching.match import Decision, Matching, Part

FEW_ORDERS: Final = 50_000
"""Orders up to which one process matches: to start another takes as long."""

AT_ONCE: Final = 500
"""Decisions that go to the process that writes together, about two kilobytes each."""

ROWS_TOLD: Final = 40_000
"""Rows read between two words of progress: each costs both processes a tenth of a millisecond."""

Progress = Callable[[int], None]
Save = Callable[[Sequence[Decision]], Awaitable[None]]

SHARED_S: Final = 5.0
"""Seconds for all processes to hold the snapshot, which takes them milliseconds: others wait."""

TOO_SLOW: Final = (
    "a process that matches did not answer in time, and nothing of this run is kept: run it again "
    "when the machine has less to do, or with --jobs 1"
)

DIED: Final = (
    "a process that matches has ended before its time, and nothing of this run is kept: run it "
    "again, with --jobs 1 if memory was short"
)


class Ranges:
    """Processes that each match a range of keys."""

    def __init__(self, helpers: Helpers) -> None:
        self._made = [_started(helpers.store) for _ in range(helpers.jobs)]
        self._ranges: list[KeyRange] = []

    @property
    def processes(self) -> list[BaseProcess]:
        """All of them."""
        return [process for process, _ in self._made]

    async def prepare(self, context: AppContext) -> ImportedDates:
        """What can be done while the processes start: the ranges, and how far everything reaches
        by now."""
        async with context.store.reading() as connection:
            self._ranges = await _cut(connection, len(self._made))
            return await imported_dates(connection, as_of=context.clock.now())

    async def share(self, context: AppContext, snapshot: Snapshot) -> None:
        """Let all of them hold this snapshot, of which nothing was read yet. Raises
        UnreachableError where a process died."""
        for _, pipe in self._made:
            await _over_pipe(pipe.recv)  # it has opened the database
        try:
            # On SQLite nobody else writes until all hold it.
            async with context.store.writing(), asyncio.timeout(SHARED_S):
                name = await share_snapshot(snapshot.connection)
                for _, pipe in self._made:
                    await _over_pipe(pipe.send, name)
                for _, pipe in self._made:
                    await _over_pipe(pipe.recv)
        except TimeoutError:
            raise UnreachableError(TOO_SLOW) from None

    async def match(self, known: Known, *, save: Save, progress: Progress) -> list[Part]:
        """What each range counted and left over, in the order of their keys; decisions go to `save`
        as they are found. Raises UnreachableError where a process died."""
        turn = asyncio.Lock()

        async def one(keys: KeyRange, pipe: Pipe) -> Part:
            await _over_pipe(pipe.send, (known, keys))
            while not isinstance(said := await _over_pipe(pipe.recv), Part):
                if isinstance(said, int):
                    progress(said)
                else:
                    async with turn:
                        await save(said)
            return said

        pipes = [pipe for _, pipe in self._made]
        tasks = [
            asyncio.create_task(one(keys, pipe))
            for keys, pipe in zip(self._ranges, pipes, strict=False)  # some may have nothing to do
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def end(self) -> None:
        """End all of them, whatever they do."""
        for process in self.processes:
            process.kill()  # it only reads; whoever waits for what it says waits no longer
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for process, pipe in self._made:
            process.join()
            pipe.close()


async def _over_pipe(use: Callable[..., Any], *words: object) -> Any:
    """What a process says, or what is said to it. Raises UnreachableError where it died, and as it
    did where it failed."""
    try:
        said = await asyncio.to_thread(use, *words)
    except (EOFError, OSError) as error:
        raise UnreachableError(DIED) from error
    if isinstance(said, Exception):
        raise said
    return said


@asynccontextmanager
async def ranges_of(
    context: AppContext, helpers: Helpers | None, *, as_of: Instant | None
) -> AsyncIterator[Ranges | None]:
    """Processes for ranges, which start meanwhile; None where one is enough. Ledger lines of the
    past are in a database that only the process has which folded them."""
    if helpers is None or helpers.jobs < 2 or as_of is not None:
        yield None
        return
    async with context.store.reading() as connection:
        orders, _ = await rows_to_read(connection)
    if orders <= FEW_ORDERS:
        yield None
        return
    ranges = Ranges(helpers)
    try:
        yield ranges
    finally:
        await asyncio.shield(ranges.end())


async def _cut(connection: Connection, parts: int) -> list[KeyRange]:
    count = await count_ledger_lines(connection)
    places = [count * part // parts for part in range(1, parts)]
    cuts = await keys_at(connection, places)
    pairs = zip(["", *cuts], [*cuts, None], strict=True)
    return [KeyRange(first=first, beyond=beyond) for first, beyond in pairs if first != beyond]


def _started(store: StoreSettings) -> tuple[BaseProcess, Pipe]:
    spawning = get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, store), daemon=True)
    # Whoever interrupts the run tells the process that writes, which ends this one: it is deaf to
    # that from its first moment on.
    resource_tracker.ensure_running()  # at its first start it would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()  # so that its end is heard
    return process, ours


# --- in each process that matches ----------------------------------------------------------------


def _serve(pipe: Pipe, store: StoreSettings) -> None:
    look_seldom()
    answer(pipe, store)


def answer(pipe: Pipe, store: StoreSettings) -> None:
    """Open the database, hold the snapshot, match one range, and say all of it through the pipe."""
    try:
        try:
            asyncio.run(_opened_and_matched(pipe, store))
        except TallyhookError as error:
            pipe.send(error)
    except (EOFError, OSError):
        pass  # the process that writes has ended


async def _opened_and_matched(pipe: Pipe, settings: StoreSettings) -> None:
    async with open_store(settings, purpose="reading") as store:
        pipe.send(None)
        name = pipe.recv()
        async with store.reading() as connection:
            await hold_snapshot(connection, name)
            pipe.send(None)
            known, keys = pipe.recv()
            snapshot = Snapshot(connection=connection, takings=connection)
            matching: Matching = known.matching()
            rows = _RowsRead(pipe)

            def work() -> None:
                waiting: list[Decision] = []
                for decision in snapshot.merged(matching, known, progress=rows.more, keys=keys):
                    waiting.append(decision)
                    if len(waiting) == AT_ONCE:
                        pipe.send(waiting)
                        waiting = []
                pipe.send(waiting)

            await in_step(connection, work)
            rows.tell()
            pipe.send(matching.part())


class _RowsRead:
    """Tells the process that writes of rows that were read, many at a time."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._untold = 0

    def more(self, count: int) -> None:
        """So many were read."""
        self._untold += count
        if self._untold >= ROWS_TOLD:
            self.tell()

    def tell(self) -> None:
        """Say what was not said yet."""
        self._pipe.send(self._untold)
        self._untold = 0
