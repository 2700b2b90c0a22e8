"""Does an entry's work of one time: reconciles, reports, delivers; and has checkpoints leave.

Leaves out: when (`app.core.schedule`), and who does it (`scheduled`). What people read of a report
as of the claim's instant is the same at every try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal

import structlog

from app.access.operators import SERVICE, note_in_trail, permitted
from app.core.errors import NotFoundError, TallyhookError
from app.core.schedule import Entry, Span, Way
from app.core.text import LEAF, counted
from app.finance.close_period import scope_of
from app.finance.closed_periods import on_the_books
from app.finance.delivering import Parcel, Ways
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import report_period
from app.finance.reports.render import render
from app.finance.scheduled import LeaseLost, claim, note, note_failed
from app.finance.scheduled_store import Delivered, ScheduledRun, change_run
from app.receiving.context import AppContext
from app.sealing.departure_store import Departure, add_departure
from app.sealing.log_store import SignedHead, newest_head
from reconcile.instants import TICK, Instant, format_instant
from reconcile.periods import Calendar
from reconcile.reporting.report import PeriodReport, Scope

log = structlog.get_logger()

FAULT: Final = "a fault of Tallyhook's: its log names the place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Entries, and the ways that are set up."""

    entries: Sequence[Entry]
    ways: Ways

    def entry(self, name: str) -> Entry:
        """One of them. Raises NotFoundError."""
        found = next((entry for entry in self.entries if entry.name == name), None)
        if found is None:
            raise NotFoundError(
                f"the schedule has no entry {name[:40]!r}: see `tallyhook schedule`"
            )
        return found


async def run_claimed(
    context: AppContext, schedule: Schedule, claimed: ScheduledRun
) -> ScheduledRun:
    """Do the work of a time that was claimed. Raises NotFoundError for an entry that there is
    not."""
    return await _try(context, schedule, schedule.entry(claimed.name), claimed)


async def run_now(
    context: AppContext, schedule: Schedule, name: str, *, by: str | None
) -> ScheduledRun:
    """Do an entry's work now, because a person asks. Raises UsageError for who may not, and
    NotFoundError for an entry that there is not."""
    entry = schedule.entry(name)
    async with context.store.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="schedule_run")
        await note_in_trail(connection, who, action="schedule_run", subject=name, at=now)
    claimed = await claim(context, entry, due_at=now, asked=True)
    assert claimed is not None  # nobody else has asked at this very instant
    return await _try(context, schedule, entry, claimed)


async def _try(
    context: AppContext, schedule: Schedule, entry: Entry, claimed: ScheduledRun
) -> ScheduledRun:
    """One try, and what became of it."""
    run = claimed
    try:
        if entry.reconcile and run.reconciled is None:
            ran = await reconcile_period(context, RunRequest(), progress=_quiet)
            run = await note(context, run, replace(run, reconciled=ran.number))
        if entry.span is not None:
            run = await _report(context, schedule, entry, run, span=entry.span)
        if entry.checkpoint:
            run = await _checkpoint(context, schedule, entry, run)
    except TallyhookError as error:
        return await note_failed(context, claimed, str(error))
    except Exception as error:
        log.error("a scheduled run has failed", exc_info=error)
        return await note_failed(context, claimed, FAULT)
    ended = replace(run, state="done", ended_at=context.clock.now(), until=None, problem=None)
    try:
        return await note(context, run, ended)
    except LeaseLost as error:
        return await note_failed(context, claimed, str(error))


async def _report(
    context: AppContext, schedule: Schedule, entry: Entry, run: ScheduledRun, *, span: Span
) -> ScheduledRun:
    from app.finance.reports.layout import headlines  # it draws charts, too

    name, said = scope_before(context, run, span=span)
    scope = await on_the_books(context, said)
    report = await report_period(context, scope, progress=_quiet)
    files = await asyncio.to_thread(_files, report, entry, name)
    parcel = _parcel(context, run, span=name, files=files, summary=headlines(report))
    return await _deliver(context, schedule, entry, run, parcel)


def _parcel(
    context: AppContext,
    run: ScheduledRun,
    *,
    span: str,
    files: Mapping[str, bytes],
    summary: Sequence[str],
    what: Literal["report", "checkpoint"] = "report",
) -> Parcel:
    return Parcel(
        entry=run.name,
        span=span,
        merchant=context.merchant,
        due_at=run.due_at,
        late=run.late,
        files=files,
        summary=summary,
        what=what,
    )


async def _checkpoint(
    context: AppContext, schedule: Schedule, entry: Entry, run: ScheduledRun
) -> ScheduledRun:
    """The newest signed head as of the claim: what somebody else keeps cannot be unsaid.

    Its file is named by what is in it: no later one, of a log that was written anew, takes its
    place in a folder.
    """
    async with context.store.reading() as connection:
        head = await newest_head(connection, until=run.as_of)
    if head is None:
        raise NotFoundError(
            "nothing is sealed yet, and so no checkpoint: `tallyhook log seal` seals what waits"
        )
    day = Calendar(context.calendar_zone).day_of(run.due_at)
    name = f"{entry.name}-checkpoint-{day}-{head.size}-{head.head.hex()[:8]}.txt"
    parcel = _parcel(
        context,
        run,
        span=day,
        files={name: head.note.encode()},
        summary=(
            f"A checkpoint of the log in which everything that Tallyhook keeps is sealed, at "
            f"{counted(head.size, *LEAF)}.",
            "Keep it where the shop's administrators cannot write: it shows later whether the log "
            "was written anew (tallyhook evidence verify --checkpoint, log verify --against).",
        ),
        what="checkpoint",
    )
    return await _deliver(context, schedule, entry, run, parcel, head=head)


async def _deliver(
    context: AppContext,
    schedule: Schedule,
    entry: Entry,
    run: ScheduledRun,
    parcel: Parcel,
    *,
    head: SignedHead | None = None,
) -> ScheduledRun:
    """By each way what that has not taken yet. `head`: the checkpoint that leaves so."""
    for way in entry.ways:
        done = {each.file for each in run.delivered if each.way == way}
        left = [file for file in parcel.files if file not in done]
        if left:
            await schedule.ways[way].deliver(parcel, left)
            told = tuple(
                Delivered(way=way, file=file, sha256=sha256(parcel.files[file]).hexdigest())
                for file in left
            )
            run = await _note_delivered(context, run, told, way=way, head=head)
    return run


def _files(report: PeriodReport, entry: Entry, name: str) -> dict[str, bytes]:
    return {f"{entry.name}-{name}.{form}": render(report, form) for form in entry.forms}


async def _note_delivered(
    context: AppContext,
    run: ScheduledRun,
    told: tuple[Delivered, ...],
    *,
    way: Way,
    head: SignedHead | None,
) -> ScheduledRun:
    after = replace(run, delivered=(*run.delivered, *told))
    async with context.store.writing() as connection:
        if not await change_run(connection, after, before=run):
            raise LeaseLost(f"another process has taken {run.name} over")
        if head is not None:
            left = Departure(size=head.size, way=way, head=head.head, at=context.clock.now())
            await add_departure(connection, left)
        for each in told:
            await note_in_trail(
                connection,
                SERVICE,
                action="report_delivered",
                subject=each.file,
                at=context.clock.now(),
                facts={
                    "entry": run.name,
                    "way": each.way,
                    "sha256": each.sha256,
                    "due_at": format_instant(run.due_at),
                },
            )
    return after


def scope_before(context: AppContext, run: ScheduledRun, *, span: Span) -> tuple[str, Scope]:
    """The whole day before that of the due time, or the month before, as it is counted now."""
    calendar = Calendar(context.calendar_zone)
    today = calendar.day_of(run.due_at)
    first = today if span == "day" else f"{today[:7]}-01"
    name = calendar.day_of(Instant(calendar.day(first)[0] - TICK))
    month = calendar.month(name[:7])
    scope = scope_of(context, month, run.as_of)
    if span == "month":
        return month.name, scope
    start, end = calendar.day(name)
    return name, replace(scope, start=start, end=end)


def _quiet(_: int) -> None:
    """Nobody watches."""
