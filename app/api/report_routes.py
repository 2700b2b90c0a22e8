"""The API of what finance has made when it is asked for, which takes seconds to minutes: reports
and journals of any period, the proof of closed months, and what other rules would change.

Each is made in a process of its own, one at a time, and its answer says so until it is there. It is
what the command writes: report and journal byte for byte.
"""

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Iterator
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final

from anyio import CancelScope, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from app.api import request_body
from app.api.document_schemas import MOST_RULES
from app.context.context import AppContext
from app.context.work import Elsewhere
from app.core.errors import ConfigurationError, UsageError
from app.core.jobs import Job, Jobs
from app.core.problems import ApiProblem
from app.finance.closed_periods import list_closed, on_the_books
from app.finance.match_rules import current_rules, preview_rules
from app.finance.report_period import check_scope, report_in
from app.finance.reports.journal import JOURNAL_FORMATS, JOURNAL_TYPES, JournalFormat, write_journal
from app.finance.verify_periods import verify_periods
from app.receiving.caught_up import must_have_read
from reconcile.instants import Instant, format_instant
from reconcile.periods import Calendar
from reconcile.reporting.report import BASES, Basis, Scope

AT_ONCE: Final = 1
"""How many are made at once: each reads everything, with a core and some 100 MiB of its own."""

KEPT: Final = 4
"""How many are remembered for who asks again: one can have some ten MiB, a journal a file of at
most MAX_JOURNAL_BYTES."""

MAX_JOURNAL_BYTES: Final = 64 * 1024 * 1024
"""Of a journal that is answered: some 100,000 transactions. Longer ones are written by command."""

MAX_RULES_BODY: Final = 2 * MOST_RULES
"""Bytes of a body with rules: JSON has two for a line's end, and for a quotation mark."""

RETRY_AFTER: Final = {"Retry-After": "5"}
"""Seconds until a program asks again."""

_MADE: Final = "made"
"""The kind of all these jobs: they share what is made at once."""

_DAY: Final = len("2026-10-01")


MOST_S: Final = 1_800
"""Seconds that one may take: a service that reports more has a replica to do it on."""

_LIMITS: Final[dict[str, Any]] = {
    "at_once": AT_ONCE,
    "died": "the process that made it has ended before its time: ask again, and look whether "
    "memory was short",
    "most_s": MOST_S,
    "too_long": f"it took more than {MOST_S // 60} minutes and was ended: ask for a shorter "
    "period, or let the command or the schedule make it",
}

TOO_MUCH: Final = (
    f"the journal is longer than the {MAX_JOURNAL_BYTES // 1024 // 1024} MiB that an answer has: "
    "ask for a shorter period, or let `tallyhook report journal`, or `tallyhook period show "
    "--journal`, write it"
)


class ReportRoutes:
    def __init__(self, context: AppContext, elsewhere: Elsewhere) -> None:
        self._context = context
        self._work = elsewhere(purpose="reading", **_LIMITS)
        # A preview stores what it folds anew of orders, as every run does.
        self._folding_work = elsewhere(purpose="writing", **_LIMITS)
        self._jobs = Jobs(context.clock, kept=KEPT)

    async def report(self, request: Request, program: str) -> Response:
        """GET /api/v1/reports?from=&to=&basis=&as_of="""
        basis = request_body.chosen(request, "basis", BASES) or "captured"
        scope, subject = await self._period(request, basis=basis)
        job = await self._made(
            "report", subject, lambda: self._work(report_in, scope, "json"), by=program
        )
        if job.ended is None:
            return _under_way(job, "report")
        return Response(job.result, media_type=JSONResponse.media_type)

    async def journal(self, request: Request, program: str) -> Response:
        """GET /api/v1/journals?from=&to=&as_of=&format="""
        form = request_body.chosen(request, "format", JOURNAL_FORMATS) or "json"
        scope, subject = await self._period(request, basis="captured")

        async def make() -> _Written:
            folder = await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix=_PREFIX))
            try:
                file = Path(folder, "journal")
                await self._work(_journal, scope, form, file)
                return _Written(file)
            finally:
                with CancelScope(shield=True):  # an end in its midst leaves nothing behind
                    await to_thread.run_sync(lambda: shutil.rmtree(folder))

        job = await self._made("journal", f"{form} {subject}", make, by=program)
        if job.ended is None:
            return _under_way(job, "journal")
        return StreamingResponse(job.result.parts(), media_type=JOURNAL_TYPES[form][0])

    async def verification(self, request: Request, program: str) -> Response:
        """GET /api/v1/periods/verification for all closed months, and
        /api/v1/periods/{period}/verification for one."""
        period: str | None = request.path_params.get("period")
        made = await list_closed(self._context)
        closed = [each for each in made if period in (None, each.period)]
        if period is not None and not closed:
            raise ApiProblem(404, "period_not_closed", "There is no closed month of this name.")
        links = [(each.digest, each.reopening) for each in closed]
        job = await self._made(
            "verification",
            f"{period} {links}",  # with one that was closed or reopened since, all are others
            lambda: self._work(_verification, period),
            by=program,
        )
        if job.ended is None:
            return _under_way(job, "verification")
        passed = all(each["passed"] for each in job.result)
        return JSONResponse({"passed": passed, "steps": job.result})

    async def rules_preview(self, request: Request, program: str) -> Response:
        """POST /api/v1/rules/preview: what other rules would change. Nothing is stored."""
        toml = await _asked_rules(request)
        await must_have_read(self._context)
        saved = await current_rules(self._context)
        subject = f"{0 if saved is None else saved.number} {_digest(toml)}"
        job = await self._made(
            "preview", subject, lambda: self._folding_work(_preview, toml), by=program
        )
        if job.ended is None:
            return _under_way(job, "preview")
        if isinstance(job.result, tuple):
            raise ApiProblem(422, "rules_invalid", f"{'; '.join(job.result)}.")
        return JSONResponse(job.result)

    async def _period(self, request: Request, *, basis: Basis) -> tuple[Scope, str]:
        """Return the requested period and its job's key. Without `as_of`, the moment of the request
        is no part of the key."""
        now, as_of = self._context.clock.now(), request_body.instant_parameter(request, "as_of")
        zone = self._context.calendar_zone
        asked = Scope(
            start=_end(request, "from", zone=zone, last=False),
            end=_end(request, "to", zone=zone, last=True),
            as_of=now if as_of is None else as_of,
            basis=basis,
            environment=self._context.database.environment or "not stamped",
        )
        scope = await on_the_books(self._context, asked)
        try:
            check_scope(scope, now=now)
        except UsageError as error:
            words = str(error).replace("--as-of", "as_of").replace("--", "")
            raise ApiProblem(422, "parameter_invalid", f"{words}.") from None
        await must_have_read(self._context, as_of=scope.as_of)  # a job's failure would be kept
        return scope, repr((scope.start, scope.end, scope.basis, as_of))

    async def _made(
        self, what: str, subject: str, make: Callable[[], Awaitable[Any]], *, by: str
    ) -> Job:
        """Return the job for the key, running or just ended; else start it. Wait briefly. Raise
        ApiProblem 503 where too many run, 409 where it failed."""
        subject = f"{what} {subject}"
        before = self._jobs.newest(_MADE, subject)
        free = self._jobs.under_way(_MADE) < AT_ONCE
        if not free and (before is None or before.ended is not None):
            raise ApiProblem(
                503,
                "reports_busy",
                "Another report, journal, verification or preview is being made: ask again.",
                headers=RETRY_AFTER,
            )
        job = self._jobs.shared(_MADE, subject, by=by, mark="", work=make)
        try:
            await self._jobs.wait(job)
        except UsageError as error:
            raise ApiProblem(409, "report_not_made", f"{error}.") from None
        return job


async def _preview(context: AppContext, rules: str) -> dict[str, Any] | tuple[str, ...]:
    """Return how these rules would change matches, or every mistake in them. Reading them takes
    seconds where someone means it to."""
    try:
        return (await preview_rules(context, rules)).document()
    except ConfigurationError as error:
        return error.problems


async def _journal(context: AppContext, scope: Scope, form: JournalFormat, path: Path) -> None:
    """Write a journal into a new file. Raises UsageError where it is too long."""
    with path.open("xb") as file:  # nothing else is done in this process

        def write(part: bytes) -> None:
            if file.tell() + len(part) > MAX_JOURNAL_BYTES:
                raise UsageError(TOO_MUCH)
            file.write(part)

        await write_journal(context, scope, form, write=write)


async def _verification(context: AppContext, period: str | None) -> list[dict[str, Any]]:
    """Every step on the closed months, or on one, as the command reports them."""
    return [each.document() async for each in verify_periods(context, only=period)]


class _Written:
    """A file that a job has written. It was unlinked and disappears with its last reader."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def parts(self) -> Iterator[bytes]:
        """Yield its bytes; several readers may do so at once."""
        at = 0
        while part := os.pread(self._file, _PART_BYTES, at):
            yield part
            at += len(part)


_PREFIX: Final = "tallyhook-journal-"
_PART_BYTES: Final = 64 * 1024


async def _asked_rules(request: Request) -> str:
    """Return the rules in a body. Raise ApiProblem for any other body."""
    document = request_body.json_object(
        await request_body.capped_body(request, most=MAX_RULES_BODY)
    )
    toml = document.get("toml")
    if set(document) != {"toml"} or not isinstance(toml, str):
        raise ApiProblem(
            422, "request_invalid", 'Send {"toml": RULES}, as `tallyhook reconcile rules save` has.'
        )
    return toml


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _end(request: Request, name: str, *, zone: tzinfo, last: bool) -> Instant:
    """Return the period's end: a moment, or a day of the merchant's that is included whole."""
    text = request_body.word_parameter(request, name)
    if text is None:
        raise ApiProblem(422, "parameter_invalid", f"{name} is missing: a day, or a moment.")
    if len(text) != _DAY:
        moment = request_body.instant_parameter(request, name)
        assert moment is not None
        return moment
    try:
        return Calendar(zone).day(text)[1 if last else 0]
    except ValueError:
        raise ApiProblem(
            422, "parameter_invalid", f"{name} is a day such as 2026-10-01, or a moment."
        ) from None


def _under_way(job: Job, what: str) -> Response:
    state = {
        "state": "under_way",
        "began": format_instant(job.began),
        "detail": f"The {what} is being made: ask for the same again.",
    }
    return JSONResponse(state, status_code=202, headers=RETRY_AFTER)
