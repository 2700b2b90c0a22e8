"""Does an entry's work of one time: reconciles, reports, delivers; and has checkpoints leave.

Leaves out: when (`app.core.schedule`), and who does it (`scheduled`). What people read of a report
as of the claim's instant is the same at every try.

A report goes to who reads it as files into a folder, as one mail, or as signed posts. Each way can
be gone again without harm: a file replaces the one of its name, a post bears the same id, a mail
the same Message-ID. What goes wrong is a DeliveryFailed whose sentence holds no secret and nothing
that the other side wrote.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, Protocol

import httpx2
import structlog

from app.access.operators import SERVICE, note_in_trail, permitted
from app.context.context import AppContext
from app.core.clock import Clock
from app.core.errors import DeliveryFailed, NotFoundError, TallyhookError
from app.core.mail import MailServer
from app.core.private_files import replacing
from app.core.schedule import Entry, Span, Way
from app.core.text import LEAF, counted
from app.finance.close_period import scope_of
from app.finance.closed_periods import on_the_books
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import report_period
from app.finance.reports.render import render
from app.finance.scheduled import LeaseLost, claim, note, note_failed
from app.finance.scheduled_store import Delivered, ScheduledRun, change_run
from app.providers.signed_post import post_signed
from app.providers.source import Source
from app.sealing.departure_store import Departure, add_departure
from app.sealing.log_store import SignedHead, newest_head
from reconcile.instants import TICK, Instant, format_instant, moment_of
from reconcile.periods import Calendar
from reconcile.reporting.report import PeriodReport, Scope

# --- ways of a report to who reads it -------------------------------------------------------------

LIMIT_S: Final = 60.0
"""Seconds that one request, or one answer of a mail server, may take."""

BYTES_MAX: Final = 20 * 1024 * 1024
"""Of a mail as it is sent, and of a file that is posted: what servers commonly take."""

FILE_MODE: Final = 0o640
"""Whoever may enter the folder as its group reads them: they are put there to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What is delivered together.

    entry, span   the schedule's entry, and the name of what is reported: `2026-10`
    what          what the files are: a report, or a checkpoint of the log
    merchant      whose report it is; may be empty
    files         contents by file name
    summary       sentences of the report that a mail begins with
    """

    entry: str
    span: str
    merchant: str
    due_at: Instant
    late: bool
    files: Mapping[str, bytes]
    summary: Sequence[str]
    what: Literal["report", "checkpoint"] = "report"

    def id_of(self, file: str) -> str:
        """The same at every try, and of no other file of no other time."""
        name = f"{self.entry}|{self.due_at}|{file}"
        return "rpt_" + sha256(name.encode()).hexdigest()[:24]


class Delivers(Protocol):
    """One way."""

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """Deliver these files of the parcel. Raises DeliveryFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWay:
    """Files into a folder, each whole or not there."""

    folder: Path

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """See `Delivers`. The folder itself is not made: one that is missing is a disk that is."""
        try:
            for name in files:
                await asyncio.to_thread(self._put, name, parcel.files[name])
        except OSError as error:
            raise DeliveryFailed(
                f"the folder TALLYHOOK_REPORTS__FOLDER takes no file ({error.strerror}): see that "
                "it is there, may be written to, and has room"
            ) from None

    def _put(self, name: str, content: bytes) -> None:
        part = self.folder / f".{name}.part"
        with replacing(self.folder / name, part=part, mode=FILE_MODE) as file:
            file.write(content)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailWay:
    """One mail with the files."""

    server: MailServer
    sender: str
    to: Sequence[str]

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """See `Delivers`."""
        message = self.message(parcel, files)
        if len(message.as_bytes()) > BYTES_MAX:
            raise DeliveryFailed(
                "the files are too large for a mail, which may have 20 MiB as it is sent: name "
                "fewer forms, or have them put into a folder"
            )
        await self.server.send(message)

    def message(self, parcel: Parcel, files: Sequence[str]) -> EmailMessage:
        """The mail."""
        message = EmailMessage()
        whose = f"{parcel.merchant}: " if parcel.merchant else ""
        late = " (late)" if parcel.late else ""
        message["Subject"] = f"{whose}{parcel.what} {parcel.span}{late}"
        message["From"] = self.sender
        message["To"] = ", ".join(self.to)
        message["Date"] = format_datetime(moment_of(parcel.due_at))
        domain = self.sender.rpartition("@")[2]
        message["Message-ID"] = f"<{parcel.id_of(' '.join(files))}@{domain}>"
        lines = [*parcel.summary, _when(parcel)]
        message.set_content("\n\n".join(lines) + "\n")
        for name in files:
            message.add_attachment(
                parcel.files[name],
                maintype="application",
                subtype=_SUBTYPES.get(name.rpartition(".")[2], "octet-stream"),
                filename=name,
            )
        return message


_SUBTYPES: Final = {
    "pdf": "pdf",
    "xlsx": "vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "json": "json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostWay:
    """One signed request a file: a document with the file in base64."""

    url: str = field(repr=False)
    signer: Source = field(repr=False)
    client: httpx2.AsyncClient = field(repr=False)
    clock: Clock

    async def deliver(self, parcel: Parcel, files: Sequence[str]) -> None:
        """See `Delivers`."""
        for name in files:
            if len(parcel.files[name]) > BYTES_MAX:
                raise DeliveryFailed(f"{name} has more than 20 MiB, too many to be posted")
            event_id = parcel.id_of(name)
            answer = await post_signed(
                self.client,
                self.url,
                posted(parcel, name),
                signer=self.signer,
                event_id=event_id,
                now=self.clock.now(),
                limit_s=LIMIT_S,
                more={"idempotency-key": event_id},
            )
            if not answer.taken:
                problem = answer.why.replace("_", " ")
                raise DeliveryFailed(
                    f"what listens at TALLYHOOK_REPORTS__URL does not take the file ({problem})"
                )


def posted(parcel: Parcel, name: str) -> bytes:
    """The body that carries a file: the same at every try, but for whether that is late."""
    content = parcel.files[name]
    document = {
        "type": f"{parcel.what}.ready",
        "timestamp": format_instant(parcel.due_at),
        "data": {
            "entry": parcel.entry,
            "span": parcel.span,
            "merchant": parcel.merchant,
            "late": parcel.late,
            "file": name,
            "sha256": sha256(content).hexdigest(),
            "size": len(content),
            "content": base64.b64encode(content).decode("ascii"),
        },
    }
    return json.dumps(document, ensure_ascii=False).encode()


def _when(parcel: Parcel) -> str:
    sentence = f"Made by the schedule's entry {parcel.entry}, due {format_instant(parcel.due_at)}"
    return f"{sentence}, and made late." if parcel.late else f"{sentence}."


Ways = Mapping[Way, Delivers]


# --- the work -------------------------------------------------------------------------------------

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
                f"the schedule has no entry {name[:40]!r}: see `tallyhook schedule list`"
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
    async with context.database.writing() as connection:
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

    name, before = scope_before(context, run, span=span)
    scope = await on_the_books(context, before)
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
    async with context.database.reading() as connection:
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
            delivered = tuple(
                Delivered(way=way, file=file, sha256=sha256(parcel.files[file]).hexdigest())
                for file in left
            )
            run = await _note_delivered(context, run, delivered, way=way, head=head)
    return run


def _files(report: PeriodReport, entry: Entry, name: str) -> dict[str, bytes]:
    return {f"{entry.name}-{name}.{form}": render(report, form) for form in entry.forms}


async def _note_delivered(
    context: AppContext,
    run: ScheduledRun,
    delivered: tuple[Delivered, ...],
    *,
    way: Way,
    head: SignedHead | None,
) -> ScheduledRun:
    after = replace(run, delivered=(*run.delivered, *delivered))
    async with context.database.writing() as connection:
        if not await change_run(connection, after, before=run):
            raise LeaseLost(f"another process has taken {run.name} over")
        if head is not None:
            left = Departure(size=head.size, way=way, head=head.head, at=context.clock.now())
            await add_departure(connection, left)
        for each in delivered:
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
