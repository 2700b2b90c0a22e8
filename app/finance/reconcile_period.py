"""Reconcile ledgers, order books and statements. Only a run over everything, as of now and by the
rules in force, changes breaks."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from app.access.operators import note_in_trail, permitted, who_may
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import TallyhookError, UnreachableError, UsageError
from app.core.jobs import silent
from app.core.process import collect_garbage_rarely
from app.finance import break_acts, break_store, ledger_line_store, matching_store, reconcile_rows
from app.finance.match_rules import rules_of
from app.finance.reconcile_rows import Known, Snapshot
from app.finance.report_period import adjusted_money
from app.finance.rule_file import read_rules
from app.receiving.caught_up import must_have_read
from app.receiving.inbox import open_inbox
from reconcile.documents import Count, InstantText, Keywords, MoneyDocument, NextNumber, NextText
from reconcile.instants import Instant, format_instant, format_known
from reconcile.matching.bank import BankLeg
from reconcile.matching.breaks import Break, life
from reconcile.matching.control import (
    BUCKETS,
    FAMILIES,
    Control,
    ControlLine,
    Family,
    Side,
    control_in,
    control_text,
)
from reconcile.matching.match import Decision, Matching, MatchingPart
from reconcile.matching.period import Period
from reconcile.matching.wallets import Wallets
from reconcile.money import MAX_MINOR, Money, to_json

# --- match many orders in several processes: one range of keys each, all in one snapshot ----------

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


# --- one run --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Request for a reconciliation run. The period ends before `until`; None means no limit, now,
    or the saved rules."""

    since: Instant | None = None
    until: Instant | None = None
    as_of: Instant | None = None
    rules: str | None = None

    @property
    def period(self) -> Period | None:
        if self.since is None and self.until is None:
            return None
        return Period(since=self.since, until=self.until)


BUILT_IN: Final = 0
"""Number of the built-in rules, which tolerate no differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran(break_store.Run):
    """Finished run with its control totals and open breaks."""

    control: Control
    open: int


async def reconcile_period(
    context: AppContext,
    asked: RunRequest,
    *,
    progress: Callable[[int], None] = silent,
    jobs: int = 1,
) -> Ran:
    """Match the rows of the request, and store the run. Raise NotAllRead for unread deliveries."""
    at = context.clock.now()
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise UsageError("--from must be before --to")
    if asked.as_of is not None and asked.as_of > at:
        raise UsageError("--as-of is in the future: give a time that has passed")
    await must_have_read(context, as_of=asked.as_of)
    given, saved = None if asked.rules is None else read_rules(asked.rules), None
    async with context.database.writing() as connection:
        if given is None:
            saved = await matching_store.rules_in_force(connection, as_of=asked.as_of)
        number = await break_store.take_run_number(connection)
    rules = given or rules_of(saved)
    rules_number = None
    if asked.rules is None:
        rules_number = BUILT_IN if saved is None else saved.number
    async with ranges_of(context, jobs, as_of=asked.as_of) as ranges:
        if asked.as_of is None:
            await reconcile_rows.refresh_ledger_lines(context, progress=progress)
        if ranges is not None:
            await ranges.prepare(context)
        async with reconcile_rows.snapshot_of(context, asked.as_of, progress) as snapshot:
            if ranges is not None:
                await ranges.share(context, snapshot)
            known = await reconcile_rows.known_in(
                context,
                snapshot,
                as_of=asked.as_of,
                rules=rules.match,
                period=asked.period,
            )
            work = _Work(context, number, known)
            bank = await work.first_look(snapshot, ranges, progress)
            wallets = await snapshot.wallets(
                as_of=known.as_of, period=known.period, coverage=known.coverage
            )
    control = await work.second_look(bank, wallets)
    if asked == RunRequest() and any(rules.adjustment_limit.values()):
        await work.look_at_closed_months(rules.adjustment_limit)
    done = break_store.Run(
        number=number,
        at=at,
        as_of=known.as_of,
        since=asked.since,
        until=asked.until,
        rules=rules_number,
        lived=asked == RunRequest(),
        breaks=work.breaks,
        ties=control.holds,
        result=control_text(control),
    )
    if done.lived:
        # Refresh again, so that the run can cite evidence that arrived while it ran.
        await reconcile_rows.refresh_ledger_lines(context, progress=progress)
    return await ran(context, await finish(context, done))


async def reconcile_for(
    context: AppContext,
    asked: RunRequest,
    *,
    by: str,
    reason: str,
    progress: Callable[[int], None] = silent,
) -> Ran:
    """Reconcile for an operator, with an audit entry. Raise UsageError if permission is missing,
    and the errors of `reconcile_period`."""
    await who_may(context, by=by, action="reconciled")
    done = await reconcile_period(context, asked, progress=progress)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="reconciled")
        await note_in_trail(
            connection,
            who,
            action="reconciled",
            subject=f"run {done.number}",
            at=context.clock.now(),
            reason=reason,
            facts={"breaks": done.breaks, "open": done.open},
        )
    return done


class _Work:
    def __init__(self, context: AppContext, number: int, known: reconcile_rows.Known) -> None:
        self._context = context
        self._number = number
        self._known = known
        self._matching = known.matching()
        self._waiting: list[Break] = []
        self.breaks = 0

    async def first_look(
        self,
        snapshot: reconcile_rows.Snapshot,
        ranges: Ranges | None,
        progress: Callable[[int], None],
    ) -> BankLeg | None:
        def work() -> None:
            for decision in snapshot.merged(self._matching, self._known, progress=progress):
                if self._take(decision):
                    matching_store.wait_for(self._save())

        if ranges is None:
            await matching_store.in_step(snapshot.connection, work)
            return await snapshot.bank(self._known)
        matching = ranges.match(self._known, save=self._save_all, progress=progress)
        parts = asyncio.create_task(matching)
        try:
            bank = await snapshot.bank(self._known)
            for part in await parts:
                self._matching.absorb(part)
        finally:
            parts.cancel()
        return bank

    async def _save_all(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if self._take(decision):
                await self._save()

    async def second_look(self, bank: BankLeg | None, wallets: Wallets) -> Control:
        """Match the remaining lines, and payouts with bank lines, and save the breaks. Call this
        without an open snapshot."""
        period = self._known.period
        await self._save_all(
            chain(reconcile_rows.last_decisions(self._matching, bank, period), wallets.decisions())
        )
        await self._save()
        control = self._matching.control() + wallets.control(self._known.as_of)
        return control if bank is None else control + bank.control(period)

    async def look_at_closed_months(self, limits: Mapping[str, int]) -> None:
        found = await adjusted_money(self._context, as_of=self._known.as_of)
        await self._save_all(found.breaks(limits))
        await self._save()

    def _take(self, decision: Decision) -> bool:
        if isinstance(decision, Break):
            if decision.money.minor > MAX_MINOR:
                raise UsageError(
                    f"the lines of {decision.order or decision.payment} add up to more than can "
                    "be stored: correct them in their file, and import the file again"
                )
            self._waiting.append(decision)
        return len(self._waiting) == break_store.AT_ONCE

    async def _save(self) -> None:
        if self._waiting:
            async with self._context.database.writing() as connection:
                await break_store.save_seen(
                    connection, self._waiting, number=self._number, as_of=self._known.as_of
                )
            self.breaks += len(self._waiting)
            self._waiting = []


async def finish(context: AppContext, done: break_store.Run) -> break_store.Run:
    """Publish the run and its changes of breaks. Raise UsageError if a later run is already
    published."""
    async with context.database.reading() as connection:
        last = await break_store.last_lived(connection)
        if done.lived and last is not None:
            async for gone in break_store.gone_breaks(connection, number=done.number, last=last):
                found = {name: seen for name, _, seen in gone}
                cites = await break_store.closing_evidence(
                    connection, found, last=last, as_of=done.as_of, rules=done.rules
                )
                closed = [(name, version, cites[name]) for name, version, _ in gone]
                async with context.database.writing() as writer:
                    await break_store.save_closed(writer, closed, number=done.number)
    async with context.database.writing() as connection:
        await break_store.deciding_alone(connection)
        overtaken = last is not None and last.number > done.number
        if done.lived and (overtaken or await break_store.last_lived(connection) != last):
            raise UsageError("another run finished during this run: start this run again")
        done = replace(done, at=context.clock.now())
        await break_store.finish_run(connection, done, last=last)
    return done


async def ran(context: AppContext, done: break_store.Run) -> Ran:
    """Return a finished run with its control totals."""
    async with context.database.reading() as connection:
        accepted = 0
        async for names in break_store.breaks_done_about(connection, done.number, decided=True):
            steps = await break_store.steps_of(connection, names)
            accepted += sum(life(each).state in ("accepted", "closed") for each in steps.values())
    control = control_in(done.result)
    return Ran(**asdict(done), control=control, open=done.breaks - accepted)


_Span = TypedDict("_Span", {"from": InstantText | None, "to": InstantText | None})


class _RunHeadDocument(_Span):
    run: Count
    at: InstantText
    as_of: InstantText
    rules: Annotated[
        Count | None, "Number of the version of the rules; null for the default rules."
    ]


class RunDocument(_RunHeadDocument):
    kind: Annotated[
        Literal["lived", "look"],
        "lived means that the run could open and close breaks; look means that it only compared.",
    ]
    breaks: Count
    ties: bool


class RunPageDocument(TypedDict):
    runs: list[RunDocument]
    next: NextNumber


class BrokenTieDocument(TypedDict):
    name: str
    side: str
    currency: str
    left: int
    right: int


class ControlLineDocument(TypedDict):
    side: Side
    currency: str
    family: Family
    bucket: Annotated[str, Keywords(enum=BUCKETS)]
    count: Count
    sum: MoneyDocument | None
    fee: NotRequired[MoneyDocument | None]
    net: NotRequired[MoneyDocument | None]


class MatchedDocument(TypedDict):
    count: Count
    sums: list[MoneyDocument]


class RunTotalsDocument(_RunHeadDocument):
    lived: bool
    ties: bool
    ties_checked: Count
    broken_ties: list[BrokenTieDocument]
    control: list[ControlLineDocument]
    matched: MatchedDocument
    unsearched: Count
    open: Count


class WholeRunDocument(RunTotalsDocument):
    breaks: list[break_acts.BreakDocument]
    next: NextText


def _head(found: break_store.Run) -> _RunHeadDocument:
    return {
        "run": found.number,
        "at": format_instant(found.at),
        "as_of": format_instant(found.as_of),
        "from": format_known(found.since),
        "to": format_known(found.until),
        "rules": found.rules,
    }


def listed_run(found: break_store.Run) -> RunDocument:
    return {
        **_head(found),
        "kind": "lived" if found.lived else "look",
        "breaks": found.breaks,
        "ties": found.ties,
    }


def run_document(found: Ran) -> RunTotalsDocument:
    """Return a run as a document."""
    control = found.control
    ties = control.ties()
    matched = [
        line
        for line in control.lines
        if line.side == "takings" and FAMILIES[line.bucket] == "matched"
    ]
    sums: dict[str, int] = {}
    for line in matched:
        if line.currency:
            sums[line.currency] = sums.get(line.currency, 0) + line.sum
    return {
        **_head(found),
        "lived": found.lived,
        "ties": control.holds,
        "ties_checked": len(ties),
        "broken_ties": [document_of(BrokenTieDocument, tie) for tie in ties if not tie.holds],
        "control": [_line(line) for line in control.lines],
        "matched": {
            "count": sum(line.count for line in matched),
            "sums": [to_json(Money(minor=sums[each], currency=each)) for each in sorted(sums)],
        },
        "unsearched": control.unsearched,
        "open": found.open,
    }


def _line(line: ControlLine) -> ControlLineDocument:
    shown: ControlLineDocument = {
        "side": line.side,
        "currency": line.currency,
        "family": FAMILIES[line.bucket],
        "bucket": line.bucket,
        "count": line.count,
        "sum": _money(line.sum, line.currency),
    }
    if line.side == "statement":
        shown["fee"] = _money(line.fee, line.currency)
        shown["net"] = _money(line.net, line.currency)
    return shown


def _money(minor: int, currency: str) -> MoneyDocument | None:
    # Orders without money may have no currency; then there is no sum.
    return to_json(Money(minor=minor, currency=currency)) if currency else None
