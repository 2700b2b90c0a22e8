"""Reconciles ledgers, books and statements: now, or as of an instant that has passed.

A run of everything, as of now and under the rules in force, moves the lives of breaks: it opens,
changes, closes and reopens them. Any other run (a period, the past, rules from a file) is a look:
it is kept with what it saw, and no break's life is touched by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from app.access.operators import note_in_trail, permitted, who_may
from app.core.errors import UsageError
from app.finance.break_store import decided_breaks, deciding_alone, steps_of
from app.finance.ledger_lines import refresh_ledger_lines
from app.finance.match_rules import Rules, read_rules, rules_of
from app.finance.matching_store import ImportedDates, SavedRules, in_step, rules_in_force, wait_for
from app.finance.reconcile_ranges import Ranges, ranges_of
from app.finance.reconcile_rows import Known, Snapshot, known_in, snapshot_of
from app.finance.run_store import (
    AT_ONCE,
    Run,
    closing_evidence,
    finish_run,
    gone_breaks,
    last_lived,
    save_closed,
    save_seen,
    stretch_between,
    take_run_number,
)
from app.orders.rebuild import Helpers
from app.receiving.context import AppContext
from reconcile.instants import Instant, format_instant, format_known
from reconcile.matching.bank import BankLeg
from reconcile.matching.breaks import Break, life
from reconcile.matching.control import FAMILIES, Control, ControlLine, Tie, control_in, control_text
from reconcile.matching.match import Decision
from reconcile.matching.period import Period
from reconcile.money import MAX_MINOR, Money, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What is to be reconciled.

    since, until  what belongs to this time, `until` not included; None: without that end. An order
                  belongs to when the book says it was placed, else to the first date of its money;
                  a line of no order to its own date
    as_of         what was known then; None: now
    rules         the text of a file of rules; None: the saved rules in force
    """

    since: Instant | None = None
    until: Instant | None = None
    as_of: Instant | None = None
    rules: str | None = None

    @property
    def period(self) -> Period | None:
        """None: of all time."""
        if self.since is None and self.until is None:
            return None
        return Period(since=self.since, until=self.until)


BUILT_IN: Final = 0
"""Stands for the number of saved rules where none were saved: nothing is tolerated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to. Its breaks are read with `breaks_of_run`.

    at      when it was finished
    rules   the number of the saved rules; BUILT_IN where none were saved; None: those of a file
    lived   whether it moved the lives of breaks
    breaks  how many it saw; `open`: those that nobody has accepted
    """

    number: int
    at: Instant
    as_of: Instant
    since: Instant | None
    until: Instant | None
    rules: int | None
    lived: bool
    control: Control
    breaks: int
    open: int


async def reconcile_period(
    context: AppContext,
    asked: RunRequest,
    *,
    progress: Callable[[int], None],
    helpers: Helpers | None = None,
) -> Ran:
    """Match everything that was asked for, and keep the run.

    `progress` is told of rows that were folded or read. helpers: other processes that match ranges
    of keys where there are many orders; None: this one does all of it. Raises ConfigurationError
    with every mistake of a file of rules, UsageError for an instant that is still to come or a time
    that ends before it begins, and UnreachableError where another process died.
    """
    at = context.clock.now()
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise UsageError("--from must be before --to")
    if asked.as_of is not None and asked.as_of > at:
        raise UsageError("--as-of lies in the future: nothing of it is known")
    number, rules, saved = await _begin(context, asked)
    async with ranges_of(context, helpers, as_of=asked.as_of) as ranges:
        ahead = await _made_ready(context, asked, ranges, progress)
        async with snapshot_of(context, asked.as_of, progress) as snapshot:
            if ranges is not None:
                await ranges.share(context, snapshot)
            known = await known_in(
                context, snapshot, as_of=asked.as_of, rules=rules.match, period=asked.period,
                ahead=ahead,
            )  # fmt: skip
            work = _Work(context, number, known)
            bank = await work.first_look(snapshot, ranges, progress)
    control = await work.second_look(bank)
    done = Run(
        number=number,
        at=at,
        as_of=known.as_of,
        since=asked.since,
        until=asked.until,
        rules=_number_of(asked, saved),
        lived=asked == RunRequest(),
        breaks=work.breaks,
        ties=control.holds,
        result=control_text(control),
    )
    if done.lived:
        await refresh_ledger_lines(
            context, progress=progress
        )  # so that what came meanwhile can be cited
    return await ran(context, await finish(context, done))


async def reconcile_for(
    context: AppContext,
    asked: RunRequest,
    *,
    by: str,
    reason: str,
    progress: Callable[[int], None],
) -> Ran:
    """The same for an operator, who must be one that may; it is in the trail. Raises UsageError for
    who may not."""
    await who_may(context, by=by, action="reconciled")
    done = await reconcile_period(context, asked, progress=progress)
    async with context.store.writing() as connection:
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


async def _begin(context: AppContext, asked: RunRequest) -> tuple[int, Rules, SavedRules | None]:
    """A number and the rules: those asked for, else those in force, now or at the instant."""
    given = None if asked.rules is None else read_rules(asked.rules)
    async with context.store.writing() as connection:
        saved = await rules_in_force(connection, as_of=asked.as_of) if given is None else None
        return await take_run_number(connection), given or rules_of(saved), saved


async def _made_ready(
    context: AppContext,
    asked: RunRequest,
    ranges: Ranges | None,
    progress: Callable[[int], None],
) -> ImportedDates | None:
    """Fold what is stale; while other processes start, read what needs no snapshot."""
    if asked.as_of is None:
        await refresh_ledger_lines(context, progress=progress)
    return None if ranges is None else await ranges.prepare(context)


def _number_of(asked: RunRequest, saved: SavedRules | None) -> int | None:
    if asked.rules is not None:
        return None
    return BUILT_IN if saved is None else saved.number


class _Work:
    """One run's matching, which writes down breaks as they are found."""

    def __init__(self, context: AppContext, number: int, known: Known) -> None:
        self._context = context
        self._number = number
        self._known = known
        self._matching = known.matching()
        self._waiting: list[Break] = []
        self.breaks = 0

    async def first_look(
        self, snapshot: Snapshot, ranges: Ranges | None, progress: Callable[[int], None]
    ) -> BankLeg | None:
        """Read and match everything, by key: here, or by ranges in other processes, while this one
        matches the bank, which it gives back."""

        def work() -> None:
            for decision in snapshot.merged(self._matching, self._known, progress=progress):
                if self._take(decision):
                    wait_for(self._save())

        if ranges is None:
            await in_step(snapshot.connection, work)
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

    async def second_look(self, bank: BankLeg | None) -> Control:
        """Match what is left over, and payouts against the bank. It may think for long, so no
        snapshot is held meanwhile."""
        period = self._known.period
        of_bank = () if bank is None else bank.decisions(period)
        await self._save_all(chain(self._matching.rest(), of_bank))
        await self._save()
        control = self._matching.control()
        return control if bank is None else control + bank.control(period)

    def _take(self, decision: Decision) -> bool:
        """Put a break aside; True when it is time to save them. Raises UsageError for one whose
        money does not fit in 64 bits: the sum of lines that each do."""
        if isinstance(decision, Break):
            if decision.money.minor > MAX_MINOR:
                raise UsageError(
                    f"the lines of {decision.order or decision.payment} add up to more than can be "
                    "kept: correct them in their file, and import it again"
                )
            self._waiting.append(decision)
        return len(self._waiting) == AT_ONCE

    async def _save(self) -> None:
        if self._waiting:
            async with self._context.store.writing() as connection:
                await save_seen(
                    connection, self._waiting, number=self._number, as_of=self._known.as_of
                )
            self.breaks += len(self._waiting)
            self._waiting = []


async def finish(context: AppContext, done: Run) -> Run:
    """Say what the run changed in the lives of breaks, and let everyone see it, dated now, after
    what people did while it was at work. Raises UsageError where another run overtook it."""
    async with context.store.reading() as connection:
        last = await last_lived(connection)
        if done.lived and last is not None:
            stretch = await stretch_between(connection, last, as_of=done.as_of, rules=done.rules)
            async for gone in gone_breaks(connection, number=done.number, last=last):
                found = {name: seen for name, _, seen in gone}
                cites = await closing_evidence(connection, found, stretch)
                closed = [(name, version, cites[name]) for name, version, _ in gone]
                async with context.store.writing() as writer:
                    await save_closed(writer, closed, number=done.number)
    async with context.store.writing() as connection:
        await deciding_alone(connection)
        overtaken = last is not None and last.number > done.number
        if done.lived and (overtaken or await last_lived(connection) != last):
            raise UsageError("another run finished while this one was at work: run it again")
        done = replace(done, at=context.clock.now())
        await finish_run(connection, done, last=last)
    return done


async def ran(context: AppContext, done: Run) -> Ran:
    """A finished run, with how many of its breaks nobody has accepted by now."""
    async with context.store.reading() as connection:
        accepted = 0
        async for names in decided_breaks(connection, done.number):
            lives = {
                name: life(steps) for name, steps in (await steps_of(connection, names)).items()
            }
            accepted += sum(each.state == "accepted" for each in lives.values())
    return Ran(
        number=done.number,
        at=done.at,
        as_of=done.as_of,
        since=done.since,
        until=done.until,
        rules=done.rules,
        lived=done.lived,
        control=control_in(done.result),
        breaks=done.breaks,
        open=done.breaks - accepted,
    )


def _head(found: Run | Ran) -> dict[str, Any]:
    """What every document of a run begins with."""
    return {
        "run": found.number,
        "at": format_instant(found.at),
        "as_of": format_instant(found.as_of),
        "from": format_known(found.since),
        "to": format_known(found.until),
        "rules": found.rules,
    }


def listed_run(found: Run) -> dict[str, Any]:
    """A run in a list, for JSON."""
    return _head(found) | {
        "kind": "lived" if found.lived else "look",
        "breaks": found.breaks,
        "ties": found.ties,
    }


def run_document(found: Ran) -> dict[str, Any]:
    """For JSON."""
    control = found.control
    ties = control.ties()
    return _head(found) | {
        "lived": found.lived,
        "ties": control.holds,
        "ties_checked": len(ties),
        "broken_ties": [_tie(tie) for tie in ties if not tie.holds],
        "control": [_line(line) for line in control.lines],
        "matched": _matched(control),
        "unsearched": control.unsearched,
        "open": found.open,
    }


def _line(line: ControlLine) -> dict[str, Any]:
    shown: dict[str, Any] = {
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


def _money(minor: int, currency: str) -> dict[str, str] | None:
    """Orders without money may have no currency, and then no sum."""
    return to_json(Money(minor=minor, currency=currency)) if currency else None


def _tie(tie: Tie) -> dict[str, Any]:
    return {name: getattr(tie, name) for name in ("name", "side", "currency", "left", "right")}


def _matched(control: Control) -> dict[str, Any]:
    """Orders that agree with the book, and what was captured of them."""
    lines = [
        line
        for line in control.lines
        if line.side == "takings" and FAMILIES[line.bucket] == "matched"
    ]
    sums: dict[str, int] = {}
    for line in lines:
        if line.currency:
            sums[line.currency] = sums.get(line.currency, 0) + line.sum
    return {
        "count": sum(line.count for line in lines),
        "sums": [to_json(Money(minor=sums[each], currency=each)) for each in sorted(sums)],
    }
