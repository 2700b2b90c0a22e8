"""Decide which worker does scheduled work, and store the results.

1 due      find entries with undone work
2 claim    a row with a lease, so that only one worker gets the work
3 do       reconcile or report
4 deliver  by each channel, with an audit entry
5 end      as done, failed or waiting
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Annotated, Final, TypedDict

from app.context.context import AppContext
from app.core import schedule
from app.core.clock import CLOCKS_DIFFER
from app.core.document_of import document_of
from app.core.errors import TallyhookError
from app.core.logs import log
from app.finance import scheduled_store
from reconcile.documents import Count, InstantText, Keywords, NextText
from reconcile.instants import HOUR, MINUTE, TICK, Duration, Instant, format_known

LEASE: Final[Duration] = 30 * MINUTE
"""Time limit of one try, after which another worker begins."""

FIRST_PAUSE: Final[Duration] = 5 * MINUTE
"""Pause before the second try. Later pauses grow fourfold."""

LONGEST_PAUSE: Final[Duration] = 6 * HOUR

WAITING_PAUSE: Final[Duration] = MINUTE
"""Pause while accepted deliveries are unread."""


async def due_now(
    context: AppContext, entries: Sequence[schedule.ScheduleEntry]
) -> list[tuple[schedule.ScheduleEntry, Instant]]:
    """Return (entry, due time) for all work to do now. New and changed entries are due from now
    on."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        newest = await scheduled_store.newest_runs(connection, until=now)
        ahead = await scheduled_store.any_run_after(connection, Instant(now + CLOCKS_DIFFER))
    if ahead:  # a clock was ahead: these run again when due
        async with context.database.writing() as connection:
            await scheduled_store.forget_runs_after(connection, Instant(now + CLOCKS_DIFFER))
    found = []
    for entry in entries:
        last = newest.get(entry.name)
        if last is None or last.cron != entry.cron:
            watched = scheduled_store.ScheduledRun(
                name=entry.name,
                due_at=now,
                cron=entry.cron,
                state="seen",
                asked=False,
                late=False,
                tries=0,
                as_of=now,
            )
            async with context.database.writing() as connection:
                await scheduled_store.add_run(connection, watched)
        elif (at := _due_of(entry, last, now=now, zone=context.calendar_zone)) is not None:
            found.append((entry, at))
    return found


def _due_of(
    entry: schedule.ScheduleEntry, last: scheduled_store.ScheduledRun, *, now: Instant, zone: tzinfo
) -> Instant | None:
    # A newer due time replaces a failed run, but a running one only after its lease ended.
    due = schedule.due_time(entry, since=last.due_at, now=now, zone=zone)
    running = last.state == "running" and not _has_passed(last.until, now)
    if due is not None:
        return None if running else due
    waits = last.state in _OPEN and last.until is not None
    return last.due_at if waits and _has_passed(last.until, now) else None


def _has_passed(until: Instant | None, now: Instant) -> bool:
    return until is None or not now < until <= now + LONGEST_PAUSE + CLOCKS_DIFFER


_OPEN: Final = ("running", "waiting", "failed")


async def claim(
    context: AppContext, entry: schedule.ScheduleEntry, *, due_at: Instant, asked: bool
) -> scheduled_store.ScheduledRun | None:
    """Claim one due time of an entry. None means that another process has the work."""
    async with context.database.writing() as connection:
        now = context.clock.now()
        before = await scheduled_store.run_at(connection, entry.name, due_at)
        if before is None:
            fresh = scheduled_store.ScheduledRun(
                name=entry.name,
                due_at=due_at,
                cron=entry.cron,
                state="running",
                asked=asked,
                late=schedule.is_late(due_at, began=now),
                tries=1,
                as_of=now,
                until=Instant(now + LEASE),
            )
            is_ours = await scheduled_store.add_run(connection, fresh)
            await scheduled_store.forget_runs(
                connection, before=Instant(now - scheduled_store.KEPT)
            )
            return fresh if is_ours else None
        open_again = before.state in _OPEN and _has_passed(before.until, now)
        if not open_again:
            return None
        again = replace(
            before,
            state="running",
            late=before.late or schedule.is_late(due_at, began=now),
            tries=before.tries + 1,
            until=Instant(now + LEASE),
        )
        return again if await scheduled_store.change_run(connection, again, before=before) else None


async def claimed_run(
    context: AppContext, name: str, *, due_at: Instant, tries: int
) -> scheduled_store.ScheduledRun | None:
    """Return the run claimed for this try, or None."""
    async with context.database.reading() as connection:
        run = await scheduled_store.run_at(connection, name, due_at)
    return run if run is not None and _is_under_way(run, tries) else None


def _is_under_way(run: scheduled_store.ScheduledRun, tries: int) -> bool:
    return (run.state, run.tries) == ("running", tries)


async def note_failed(
    context: AppContext,
    claimed: scheduled_store.ScheduledRun,
    problem: str,
    *,
    at_once: bool = False,
) -> scheduled_store.ScheduledRun:
    """Record a failed try, for a retry after a pause."""
    async with context.database.writing() as connection:
        now = context.clock.now()
        run = await scheduled_store.run_at(connection, claimed.name, claimed.due_at) or claimed
        pause = min(FIRST_PAUSE * 4 ** min(run.tries - 1, 10), LONGEST_PAUSE)
        again = None if run.asked else Instant(now if at_once else now + pause)
        failed = replace(
            run, state="failed", ended_at=now, until=again, waits_since=None, problem=problem
        )
        under_way = _is_under_way(run, claimed.tries)
        if under_way and await scheduled_store.change_run(connection, failed, before=run):
            log.error("a scheduled run failed", component=run.name, reason=problem)
    return failed


async def put_off(
    context: AppContext, claimed: scheduled_store.ScheduledRun, problem: str
) -> scheduled_store.ScheduledRun:
    """Record that a try waits for unread deliveries, without counting the try. A run that a person
    requested fails instead."""
    if claimed.asked:
        return await note_failed(context, claimed, problem)
    async with context.database.writing() as connection:
        now = context.clock.now()
        before = await scheduled_store.newest_runs(connection, until=Instant(claimed.due_at - TICK))
        run = await scheduled_store.run_at(connection, claimed.name, claimed.due_at) or claimed
        # Waiting work is replaced at its next due time, which keeps the beginning of the wait.
        last = before.get(run.name)
        replaced = last.waits_since if last is not None and last.state == "waiting" else None
        waiting = replace(
            run,
            state="waiting",
            tries=run.tries - 1,
            until=Instant(now + WAITING_PAUSE),
            waits_since=run.waits_since or replaced or now,
            problem=problem,
        )
        under_way = _is_under_way(run, claimed.tries)
        begins = run.waits_since is None and replaced is None
        changed = under_way and await scheduled_store.change_run(connection, waiting, before=run)
        if changed and begins:
            log.warning("a scheduled run was postponed", component=run.name, reason=problem)
    return waiting


class LeaseLost(TallyhookError):
    """Error for work that another process has taken over."""


async def note(
    context: AppContext, before: scheduled_store.ScheduledRun, run: scheduled_store.ScheduledRun
) -> scheduled_store.ScheduledRun:
    """Store the progress of the work. Raise LeaseLost if another process has taken the work
    over."""
    async with context.database.writing() as connection:
        if not await scheduled_store.change_run(connection, run, before=before):
            raise LeaseLost(f"another process has taken over {run.name}")
    return run


class DeliveredDocument(TypedDict):
    way: Annotated[str, Keywords(enum=schedule.WAYS)]
    file: str


class LastTimeDocument(TypedDict):
    due_at: InstantText
    state: str
    asked: Annotated[bool, "Whether a person started the run outside the schedule."]
    late: bool
    tries: Count
    run: Count | None
    ended_at: InstantText | None
    waits_since: Annotated[
        InstantText | None, "Since when the run has waited for accepted deliveries to be read."
    ]
    again_at: InstantText | None
    problem: str | None
    delivered: list[DeliveredDocument]


class ScheduledDocument(TypedDict):
    name: str
    cron: Annotated[str, Keywords(examples=["30 2 * * *"])]
    reconcile: bool
    span: schedule.Span | None
    forms: list[schedule.Form]
    ways: list[schedule.Way]
    checkpoint: bool
    next: InstantText | None
    last: LastTimeDocument | None


class ScheduleDocument(TypedDict):
    entries: list[ScheduledDocument]
    next: NextText


async def schedule_document(
    context: AppContext, entries: Sequence[schedule.ScheduleEntry]
) -> list[ScheduledDocument]:
    """Return each entry with its last run and next time."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        last = await scheduled_store.last_runs(connection, [entry.name for entry in entries])
    return [
        document_of(
            ScheduledDocument,
            entry,
            next=format_known(schedule.next_time(entry, after=now, zone=context.calendar_zone)),
            last=time_document(last.get(entry.name)),
        )
        for entry in entries
    ]


def time_document(run: scheduled_store.ScheduledRun | None) -> LastTimeDocument | None:
    """Return a document on a scheduled run."""
    if run is None:
        return None
    again_at = format_known(run.until if run.state in ("failed", "waiting") else None)
    return document_of(LastTimeDocument, run, run=run.reconciled, again_at=again_at)
