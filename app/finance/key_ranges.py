"""Match many orders in several processes: one range of keys each, all in one snapshot."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, Final

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.errors import TallyhookError, UnreachableError
from app.core.process import collect_garbage_rarely
from app.finance import ledger_line_store, matching_store
from app.finance.reconcile_rows import Known, Snapshot
from app.receiving.inbox import open_inbox
from reconcile.instants import Instant
from reconcile.matching.match import Decision, Matching, MatchingPart

FEW_ORDERS: Final = 50_000
"""Maximum number of orders that one process matches alone."""

DECISIONS_AT_ONCE: Final = 500

ROWS_AT_ONCE: Final = 40_000
"""Number of rows between two progress messages."""

Progress = Callable[[int], None]
Save = Callable[[Sequence[Decision]], Awaitable[None]]

SHARED_S: Final = 5.0
"""Time limit for opening one snapshot in all processes, in seconds. Meanwhile, nobody can write to
a SQLite database."""

TOO_SLOW: Final = (
    "a matching process did not answer in time, so this run was not stored: run it again when "
    "the machine has less to do, or with --jobs 1"
)

DIED: Final = (
    "a matching process ended unexpectedly, so this run was not stored: run it again, with "
    "--jobs 1 if memory was short"
)


class Ranges:
    """Child processes for matching orders."""

    def __init__(self, settings: Settings, jobs: int) -> None:
        self._made = [_started(settings) for _ in range(jobs)]
        self._ranges: list[ledger_line_store.KeyRange] = []

    @property
    def processes(self) -> list[BaseProcess]:
        return [process for process, _ in self._made]

    async def prepare(self, context: AppContext) -> None:
        """Divide all keys into one range for each process."""
        async with context.database.reading() as connection:
            count = await ledger_line_store.count_ledger_lines(connection)
            parts = len(self._made)
            places = [count * part // parts for part in range(1, parts)]
            cuts = await ledger_line_store.keys_at(connection, places)
            self._ranges = [
                ledger_line_store.KeyRange(first=first, beyond=beyond)
                for first, beyond in zip(["", *cuts], [*cuts, None], strict=True)
                if first != beyond
            ]

    async def share(self, context: AppContext, snapshot: Snapshot) -> None:
        """Open the caller's snapshot in all processes, before any read. Raise UnreachableError if a
        process does not answer in time."""
        for _, pipe in self._made:
            await _over_pipe(pipe.recv)  # the process has opened the database
        try:
            # On SQLite nobody writes until all processes have the snapshot.
            async with context.database.writing(), asyncio.timeout(SHARED_S):
                name = await matching_store.share_snapshot(snapshot.connection)
                for _, pipe in self._made:
                    await _over_pipe(pipe.send, name)
                for _, pipe in self._made:
                    await _over_pipe(pipe.recv)
        except TimeoutError:
            raise UnreachableError(TOO_SLOW) from None

    async def match(self, known: Known, *, save: Save, progress: Progress) -> list[MatchingPart]:
        """Match all ranges, save the decisions, and return the results in key order. Raise
        UnreachableError if a process died."""
        turn = asyncio.Lock()

        async def one(keys: ledger_line_store.KeyRange, pipe: Pipe) -> MatchingPart:
            await _over_pipe(pipe.send, (known, keys))
            while not isinstance(message := await _over_pipe(pipe.recv), MatchingPart):
                if isinstance(message, int):
                    progress(message)
                else:
                    async with turn:
                        await save(message)
            return message

        pipes = [pipe for _, pipe in self._made]
        tasks = [
            asyncio.create_task(one(keys, pipe))
            for keys, pipe in zip(self._ranges, pipes, strict=False)  # some processes may be idle
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def end(self) -> None:
        def join() -> None:
            for process, pipe in self._made:
                process.join()
                pipe.close()

        for process in self.processes:
            process.kill()  # it only reads; a thread that waits for its message wakes up
        await asyncio.to_thread(join)


async def _over_pipe(use: Callable[..., Any], *words: object) -> Any:
    try:
        result = await asyncio.to_thread(use, *words)
    except (EOFError, OSError) as error:
        raise UnreachableError(DIED) from error
    if isinstance(result, Exception):
        raise result
    return result


@asynccontextmanager
async def ranges_of(
    context: AppContext, jobs: int, *, as_of: Instant | None
) -> AsyncIterator[Ranges | None]:
    """Yield processes that share the matching, or None."""
    if jobs < 2 or as_of is not None:
        yield None
        return
    async with context.database.reading() as connection:
        orders, _ = await matching_store.rows_to_read(connection)
    if orders <= FEW_ORDERS:
        yield None
        return
    ranges = Ranges(context.settings, jobs)
    try:
        yield ranges
    finally:
        await asyncio.shield(ranges.end())


def _started(settings: Settings) -> tuple[BaseProcess, Pipe]:
    spawning = get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, settings), daemon=True)
    # The writing process handles a signal that interrupts the run, and ends this process. Ignore
    # the signal from the first moment.
    resource_tracker.ensure_running()  # otherwise its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()  # so that its end is noticed
    return process, ours


def _serve(pipe: Pipe, settings: Settings) -> None:
    collect_garbage_rarely()
    answer(pipe, settings)


def answer(pipe: Pipe, settings: Settings) -> None:
    """Match one range of keys, and send all results."""
    try:
        try:
            asyncio.run(_opened_and_matched(pipe, settings))
        except TallyhookError as error:
            pipe.send(error)
    except (EOFError, OSError):
        pass  # the writing process has ended


async def _opened_and_matched(pipe: Pipe, settings: Settings) -> None:
    async with open_inbox(settings, purpose="reading") as inbox:
        pipe.send(None)
        name = pipe.recv()
        async with inbox.database.reading() as connection:
            await matching_store.hold_snapshot(connection, name)
            pipe.send(None)
            known, keys = pipe.recv()
            snapshot = Snapshot(connection=connection, takings=connection)
            matching: Matching = known.matching()
            unreported = 0

            def read(count: int) -> None:
                nonlocal unreported
                unreported += count
                if unreported >= ROWS_AT_ONCE:
                    pipe.send(unreported)
                    unreported = 0

            def work() -> None:
                waiting: list[Decision] = []
                for decision in snapshot.merged(matching, known, progress=read, keys=keys):
                    waiting.append(decision)
                    if len(waiting) == DECISIONS_AT_ONCE:
                        pipe.send(waiting)
                        waiting = []
                pipe.send(waiting)

            await matching_store.in_step(connection, work)
            pipe.send(unreported)
            pipe.send(matching.part())
