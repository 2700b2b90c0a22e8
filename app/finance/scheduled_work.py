"""Do the work of a scheduled entry. A delivery can be repeated without harm, because file names and
message ids stay equal."""

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

from app.access.operators import SERVICE, note_in_trail, permitted
from app.context.configured import signer_of_section
from app.context.context import AppContext
from app.core.clock import Clock
from app.core.errors import DeliveryFailed, NotAllRead, NotFoundError, TallyhookError
from app.core.logs import log
from app.core.mail import MailServer, mail_server
from app.core.private_files import replacing
from app.core.schedule import ScheduleEntry, Span, Way, schedule_entries
from app.core.text import LEAF, counted
from app.finance.close_period import scope_of
from app.finance.closed_periods import on_the_books
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import report_period
from app.finance.reports.render import render
from app.finance.scheduled import LeaseLost, claim, note, note_failed, put_off
from app.finance.scheduled_store import Delivered, ScheduledRun, change_run
from app.providers.signed_post import post_signed
from app.providers.source import Source
from app.sealing.departure_store import Departure, add_departure
from app.sealing.log_store import SignedHead, newest_head
from reconcile.instants import TICK, Instant, format_instant, moment_of
from reconcile.periods import Calendar
from reconcile.reporting.report import Scope

# --- ways to deliver a report ---------------------------------------------------------------------

LIMIT_S: Final = 60.0
"""Time limit for one request or mail answer, in seconds."""

BYTES_MAX: Final = 20 * 1024 * 1024
"""Maximum bytes of a mail or a posted file."""

FILE_MODE: Final = 0o640
"""Mode of delivered files, which the folder's group may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportParcel:
    """Files that are delivered together."""

    entry: str
    span: str
    merchant: str
    due_at: Instant
    late: bool
    files: Mapping[str, bytes]
    summary: Sequence[str]
    what: Literal["report", "checkpoint"] = "report"

    def id_of(self, file: str) -> str:
        """Return the id of a file, equal at every try."""
        name = f"{self.entry}|{self.due_at}|{file}"
        return "rpt_" + sha256(name.encode()).hexdigest()[:24]


class Delivers(Protocol):
    """Interface of a way to deliver files."""

    async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
        """Deliver some files. Raise DeliveryFailed on failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWay:
    """Delivery into a folder. Incomplete files are never visible."""

    folder: Path

    async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
        """Write files into an existing folder. Raise DeliveryFailed on failure. A missing folder is
        never created: an unmounted disk looks missing."""
        try:
            for name in files:
                await asyncio.to_thread(self._put, name, parcel.files[name])
        except OSError as error:
            raise DeliveryFailed(
                f"the folder TALLYHOOK_REPORTS__FOLDER cannot be written ({error.strerror}): "
                "check that the folder exists, is writable and has room"
            ) from None

    def _put(self, name: str, content: bytes) -> None:
        part = self.folder / f".{name}.part"
        with replacing(self.folder / name, part=part, mode=FILE_MODE) as file:
            file.write(content)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailWay:
    """Delivery of all files by one mail."""

    server: MailServer
    sender: str
    to: Sequence[str]

    async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
        """Send files in one mail. Raise DeliveryFailed on failure."""
        message = self.message(parcel, files)
        if len(message.as_bytes()) > BYTES_MAX:
            raise DeliveryFailed(
                "the files are too large for one mail of at most 20 MiB: name fewer forms in the "
                "schedule, or deliver the files to a folder"
            )
        await self.server.send(message)

    def message(self, parcel: ReportParcel, files: Sequence[str]) -> EmailMessage:
        message = EmailMessage()
        whose = f"{parcel.merchant}: " if parcel.merchant else ""
        late = " (late)" if parcel.late else ""
        message["Subject"] = f"{whose}{parcel.what} {parcel.span}{late}"
        message["From"] = self.sender
        message["To"] = ", ".join(self.to)
        message["Date"] = format_datetime(moment_of(parcel.due_at))
        domain = self.sender.rpartition("@")[2]
        message["Message-ID"] = f"<{parcel.id_of(' '.join(files))}@{domain}>"
        made = f"Made by the schedule's entry {parcel.entry}, due {format_instant(parcel.due_at)}"
        lines = [*parcel.summary, f"{made}, and made late." if parcel.late else f"{made}."]
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
    """Delivery by one signed request for each file."""

    url: str = field(repr=False)
    signer: Source = field(repr=False)
    client: httpx2.AsyncClient = field(repr=False)
    clock: Clock

    async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
        for name in files:
            if len(parcel.files[name]) > BYTES_MAX:
                raise DeliveryFailed(f"{name} is larger than 20 MiB, so it cannot be posted")
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
                    f"the server at TALLYHOOK_REPORTS__URL did not accept the file ({problem})"
                )


def posted(parcel: ReportParcel, name: str) -> bytes:
    """Build the body of a request with a file. Every try has an equal body except for `late`."""
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


Ways = Mapping[Way, Delivers]


# --- the work -------------------------------------------------------------------------------------


NOT_READ: Final = "accepted deliveries have not been read yet"

FAULT: Final = "an error in Tallyhook: its log shows where"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Entries of the schedule, and the configured ways of delivery."""

    entries: Sequence[ScheduleEntry]
    ways: Ways

    def entry(self, name: str) -> ScheduleEntry:
        """Return the entry. Raise NotFoundError for an unknown name."""
        found = next((entry for entry in self.entries if entry.name == name), None)
        if found is None:
            raise NotFoundError(
                f"the schedule has no entry {name[:40]!r}: see `tallyhook schedule list`"
            )
        return found


def schedule_of(context: AppContext, client: httpx2.AsyncClient) -> Schedule:
    """Return the schedule. Raise ConfigurationError for an unusable secret."""
    reports = context.settings.reports
    ways: dict[Way, Delivers] = {}
    if reports.folder is not None:
        ways["folder"] = FolderWay(folder=reports.folder)
    server = mail_server(
        reports.mail_server, user=reports.mail_user, password=reports.mail_password
    )
    if server is not None and reports.mail_from is not None and reports.mail_to:
        ways["mail"] = MailWay(server=server, sender=reports.mail_from, to=reports.mail_to)
    if reports.url is not None and reports.secret is not None:
        signer = signer_of_section("reports", reports.secret)
        ways["post"] = PostWay(url=reports.url, signer=signer, client=client, clock=context.clock)
    return Schedule(entries=schedule_entries(context.settings.schedule), ways=ways)


async def run_claimed(
    context: AppContext, schedule: Schedule, claimed: ScheduledRun
) -> ScheduledRun:
    """Carry out a claimed run."""
    return await _try(context, schedule, schedule.entry(claimed.name), claimed)


async def run_now(
    context: AppContext, schedule: Schedule, name: str, *, by: str | None
) -> ScheduledRun:
    """Run an entry now. Raise UsageError if permission is missing, and NotFoundError for an unknown
    entry."""
    entry = schedule.entry(name)
    async with context.database.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="schedule_run")
        await note_in_trail(connection, who, action="schedule_run", subject=name, at=now)
    claimed = await claim(context, entry, due_at=now, asked=True)
    assert claimed is not None  # no other request has this instant
    return await _try(context, schedule, entry, claimed)


async def _try(
    context: AppContext, schedule: Schedule, entry: ScheduleEntry, claimed: ScheduledRun
) -> ScheduledRun:
    run = claimed
    try:
        if entry.reconcile and run.reconciled is None:
            ran = await reconcile_period(context, RunRequest(), progress=_quiet)
            run = await note(context, run, replace(run, reconciled=ran.number))
        if entry.span is not None:
            run = await _report(context, schedule, entry, run, span=entry.span)
        if entry.checkpoint:
            run = await _checkpoint(context, schedule, entry, run)
    except NotAllRead:
        return await put_off(context, claimed, NOT_READ)
    except TallyhookError as error:
        return await note_failed(context, claimed, str(error))
    except Exception as error:
        log.error("a scheduled run raised an error", exc_info=error)
        return await note_failed(context, claimed, FAULT)
    ended = replace(
        run, state="done", ended_at=context.clock.now(), until=None, waits_since=None, problem=None
    )
    try:
        return await note(context, run, ended)
    except LeaseLost as error:
        return await note_failed(context, claimed, str(error))


async def _report(
    context: AppContext, schedule: Schedule, entry: ScheduleEntry, run: ScheduledRun, *, span: Span
) -> ScheduledRun:
    from app.finance.reports.layout import headlines  # it draws charts, too

    name, before = scope_before(context, run, span=span)
    scope = await on_the_books(context, before)
    report = await report_period(context, scope, progress=_quiet)
    files = await asyncio.to_thread(
        lambda: {f"{entry.name}-{name}.{form}": render(report, form) for form in entry.forms}
    )
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
) -> ReportParcel:
    return ReportParcel(
        entry=run.name,
        span=span,
        merchant=context.settings.merchant,
        due_at=run.due_at,
        late=run.late,
        files=files,
        summary=summary,
        what=what,
    )


async def _checkpoint(
    context: AppContext, schedule: Schedule, entry: ScheduleEntry, run: ScheduledRun
) -> ScheduledRun:
    async with context.database.reading() as connection:
        head = await newest_head(connection, until=run.as_of)
    if head is None:
        raise NotFoundError(
            "nothing is sealed yet, so there is no checkpoint: run `tallyhook log seal`"
        )
    day = Calendar(context.calendar_zone).day_of(run.due_at)
    name = f"{entry.name}-checkpoint-{day}-{head.size}-{head.head.hex()[:8]}.txt"
    parcel = _parcel(
        context,
        run,
        span=day,
        files={name: head.note.encode()},
        summary=(
            "A checkpoint of Tallyhook's tamper-evident log, which has "
            f"{counted(head.size, *LEAF)}.",
            "Keep the checkpoint where the shop's administrators have no write access. It proves "
            "later whether the log was rewritten: use tallyhook evidence verify --checkpoint, or "
            "tallyhook log verify --against.",
        ),
        what="checkpoint",
    )
    return await _deliver(context, schedule, entry, run, parcel, head=head)


async def _deliver(
    context: AppContext,
    schedule: Schedule,
    entry: ScheduleEntry,
    run: ScheduledRun,
    parcel: ReportParcel,
    *,
    head: SignedHead | None = None,
) -> ScheduledRun:
    for way in entry.ways:
        done = {each.file for each in run.delivered if each.way == way}
        left = [file for file in parcel.files if file not in done]
        if left:
            await schedule.ways[way].deliver(parcel, left)
            delivered = tuple(
                Delivered(way=way, file=file, sha256=sha256(parcel.files[file]).hexdigest())
                for file in left
            )
            after = replace(run, delivered=(*run.delivered, *delivered))
            async with context.database.writing() as connection:
                if not await change_run(connection, after, before=run):
                    raise LeaseLost(f"another process has taken over {run.name}")
                if head is not None:
                    at = context.clock.now()
                    departed = Departure(size=head.size, way=way, head=head.head, at=at)
                    await add_departure(connection, departed)
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
            run = after
    return run


def scope_before(context: AppContext, run: ScheduledRun, *, span: Span) -> tuple[str, Scope]:
    """Return (name, scope) for the last full day or month."""
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
    """Ignore progress reports."""
