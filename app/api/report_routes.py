"""API routes for results that take seconds to minutes to compute."""

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

from anyio import CancelScope, to_thread
from starlette.responses import JSONResponse, Response, StreamingResponse

from app.api import request_body
from app.api.operations import Accepted, AsOfAsked, Operation
from app.context.context import AppContext, Elsewhere
from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.jobs import Job, Jobs
from app.core.problems import ApiProblem
from app.finance.closed_periods import list_closed, on_the_books
from app.finance.match_rules import RulesPreviewDocument, current_rules, preview_rules
from app.finance.report_period import check_scope, report_in
from app.finance.reports.journal import write_journal
from app.finance.reports.journal_documents import JournalDocument
from app.finance.reports.journal_forms import JOURNAL_FORMS, JournalFormat, api_words
from app.finance.rule_file import MAX_BYTES
from app.finance.verify_periods import VerificationDocument, VerifiedStepDocument, verify_periods
from app.receiving.caught_up import must_have_read
from reconcile.documents import InstantText, Keywords
from reconcile.instants import Instant, format_instant
from reconcile.periods import Calendar
from reconcile.reporting.report import Basis, Scope

AT_ONCE: Final = 1
"""Maximum number of results that are computed at a time."""

KEPT: Final = 4
"""Maximum number of finished results that are kept."""

MAX_JOURNAL_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of a journal in an answer: about 100,000 transactions."""

MAX_RULES_BODY: Final = 2 * MAX_BYTES
"""Maximum bytes of a request body with matching rules."""

RETRY_AFTER: Final = {"Retry-After": "5"}

_JOB_KIND: Final = "made"

_DAY: Final = len("2026-10-01")


MOST_S: Final = 1_800
"""Time limit for computing one result, in seconds."""

_LIMITS: Final[dict[str, Any]] = {
    "at_once": AT_ONCE,
    "died": (
        "the process that made it ended unexpectedly: request it again, and check whether the "
        "machine ran out of memory"
    ),
    "most_s": MOST_S,
    "too_long": (
        f"it took more than {MOST_S // 60} minutes and was ended: request a shorter "
        "period, or use the command or the schedule for it"
    ),
}

TOO_MUCH: Final = (
    f"the journal is longer than {MAX_JOURNAL_BYTES // 1024 // 1024} MiB, the limit of the API: "
    "request a shorter period, or write the journal with `tallyhook report journal` or "
    "`tallyhook period show --journal`"
)


Form = Annotated[JournalFormat, api_words("json")]

Day = Annotated[
    str,
    Keywords(
        anyOf=[
            {"type": "string", "format": "date", "pattern": "^(19[7-9]|[2-9][0-9]{2})"},
            {"type": "string", "format": "date-time", "pattern": "^(19[7-9]|[2-9][0-9]{2})"},
        ],
        examples=["2026-10-01"],
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAsked(AsOfAsked):
    from_: Annotated[
        Day, "The first day in the merchant's time zone, or the time at which the period begins."
    ]
    to: Annotated[Day, "The last day, inclusive, or the time at which the period ends."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAsked(PeriodAsked):
    basis: Annotated[
        Basis,
        "The date by which money belongs to the period: captured is the provider's date and the "
        "default, received is the date of receipt here, settled is the payout's date.",
    ] = "captured"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalAsked(PeriodAsked):
    format: Form = "json"


class ReportDocument(TypedDict):
    """A period's report, as `report period --format json` prints it.

    The report of a closed month is the stored report, byte for byte.
    """


class ReportUnderWayDocument(TypedDict):
    state: Literal["under_way"]
    began: InstantText
    detail: str


UnderWay = Accepted[ReportUnderWayDocument]


class RulesTriedDocument(TypedDict):
    toml: Annotated[
        str,
        "The rules in TOML, as `tallyhook reconcile rules save` reads them.",
        Keywords(examples=["settle_margin = '9 days'\n"], maxLength=MAX_BYTES),
    ]


class ReportRoutes:
    def __init__(self, context: AppContext, elsewhere: Elsewhere) -> None:
        self._context = context
        self._work = elsewhere(purpose="reading", **_LIMITS)
        # A preview stores the orders that it folds anew, as every run does.
        self._folding_work = elsewhere(purpose="writing", **_LIMITS)
        self._jobs = Jobs(context.clock, kept=KEPT)

    async def get_report(
        self, who: str, asked: ReportAsked
    ) -> ReportDocument | UnderWay | Response:
        """Report on a period's orders and money, as known now or at an earlier time.

        Equal requests within a minute get the same report.
        """
        scope, subject = await self._period(asked, basis=asked.basis)
        job = await self._made(
            "report", subject, lambda: self._work(report_in, scope, "json"), by=who
        )
        if job.ended is None:
            return _under_way(job, "report")
        return Response(job.result, media_type=JSONResponse.media_type)

    async def get_journal(
        self, who: str, asked: JournalAsked
    ) -> JournalDocument | UnderWay | Response:
        """Return a period's money as a journal of balanced double entries.

        Payments, refunds and lost disputes have the provider's dates, settlements the statement's.
        Write-offs are dated on the day of their acceptance.
        """
        form = asked.format
        scope, subject = await self._period(asked, basis="captured")

        async def make() -> _Written:
            folder = await to_thread.run_sync(lambda: tempfile.mkdtemp(prefix=_PREFIX))
            try:
                file = Path(folder, "journal")
                await self._work(_journal, scope, form, file)
                return _Written(file)
            finally:
                with CancelScope(shield=True):  # delete it even if the task ends
                    await to_thread.run_sync(lambda: shutil.rmtree(folder))

        job = await self._made("journal", f"{form} {subject}", make, by=who)
        if job.ended is None:
            return _under_way(job, "journal")
        return StreamingResponse(job.result.parts(), media_type=JOURNAL_FORMS[form].media)

    async def verify_periods(self, who: str) -> VerificationDocument | UnderWay:
        """Verify that every closed month still follows from its evidence. The earliest month comes
        first."""
        return await self._verified(None, by=who)

    async def verify_period(self, who: str, period: str) -> VerificationDocument | UnderWay:
        """Verify that one closed month still follows from its evidence."""
        return await self._verified(period, by=who)

    async def _verified(self, period: str | None, *, by: str) -> VerificationDocument | UnderWay:
        made = await list_closed(self._context)
        closed = [each for each in made if period in (None, each.period)]
        if period is not None and not closed:
            raise NotFoundError(period)
        links = [(each.digest, each.reopening) for each in closed]
        job = await self._made(
            "verification",
            f"{period} {links}",  # with one that was closed or reopened since, all are others
            lambda: self._work(_verification, period),
            by=by,
        )
        if job.ended is None:
            return _under_way(job, "verification")
        passed = all(each["passed"] for each in job.result)
        return {"passed": passed, "steps": job.result}

    async def preview_rules(
        self, who: str, body: RulesTriedDocument
    ) -> RulesPreviewDocument | UnderWay:
        """Return the matches that these rules would add, lose and change.

        The rules are not stored.
        """
        toml = body["toml"]
        await must_have_read(self._context)
        saved = await current_rules(self._context)
        digest = hashlib.sha256(toml.encode("utf-8", "surrogatepass")).hexdigest()
        subject = f"{0 if saved is None else saved.number} {digest}"
        job = await self._made(
            "preview", subject, lambda: self._folding_work(_preview, toml), by=who
        )
        if job.ended is None:
            return _under_way(job, "preview")
        if isinstance(job.result, tuple):
            raise ApiProblem(422, "rules_invalid", f"{'; '.join(job.result)}.")
        preview: RulesPreviewDocument = job.result
        return preview

    async def _period(self, asked: PeriodAsked, *, basis: Basis) -> tuple[Scope, str]:
        now, as_of = self._context.clock.now(), asked.as_of
        zone = self._context.calendar_zone
        given = Scope(
            start=_end("from", asked.from_, zone=zone, last=False),
            end=_end("to", asked.to, zone=zone, last=True),
            as_of=now if as_of is None else as_of,
            basis=basis,
            environment=self._context.database.environment or "not stamped",
        )
        scope = await on_the_books(self._context, given)
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
        subject = f"{what} {subject}"
        before = self._jobs.newest(_JOB_KIND, subject)
        free = self._jobs.under_way(_JOB_KIND) < AT_ONCE
        if not free and (before is None or before.ended is not None):
            raise ApiProblem(
                503,
                "reports_busy",
                "Another report, journal, verification or preview is being made. Send the request "
                "again later.",
                headers=RETRY_AFTER,
            )
        job = self._jobs.shared(_JOB_KIND, subject, by=by, mark="", work=make)
        try:
            await self._jobs.wait(job)
        except UsageError as error:
            raise ApiProblem(409, "report_not_made", f"{error}.") from None
        return job


async def _preview(context: AppContext, rules: str) -> RulesPreviewDocument | tuple[str, ...]:
    """Return the changes that these rules would cause, or all mistakes in the rules. Call this
    function in a child process: malicious rules can take seconds."""
    try:
        return (await preview_rules(context, rules)).document()
    except ConfigurationError as error:
        return error.problems


async def _journal(context: AppContext, scope: Scope, form: JournalFormat, path: Path) -> None:
    with path.open("xb") as file:  # nothing else is done in this process

        def write(part: bytes) -> None:
            if file.tell() + len(part) > MAX_JOURNAL_BYTES:
                raise UsageError(TOO_MUCH)
            file.write(part)

        await write_journal(context, scope, form, write=write)


async def _verification(context: AppContext, period: str | None) -> list[VerifiedStepDocument]:
    return [each.document() async for each in verify_periods(context, only=period)]


class _Written:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def parts(self) -> Iterator[bytes]:
        """Yield the file's bytes in parts."""
        at = 0
        while part := os.pread(self._file, _PART_BYTES, at):
            yield part
            at += len(part)


_PREFIX: Final = "tallyhook-journal-"
_PART_BYTES: Final = 64 * 1024


def _end(name: str, text: str, *, zone: tzinfo, last: bool) -> Instant:
    if len(text) != _DAY:
        return request_body.instant_of(name, text)
    try:
        return Calendar(zone).day(text)[1 if last else 0]
    except ValueError:
        raise ApiProblem(
            422,
            "parameter_invalid",
            f"{name} must be a day such as 2026-10-01, or an RFC 3339 time.",
        ) from None


def _under_way(job: Job, what: str) -> UnderWay:
    state: ReportUnderWayDocument = {
        "state": "under_way",
        "began": format_instant(job.began),
        "detail": f"The {what} is being made: send the same request again.",
    }
    return Accepted(state, RETRY_AFTER)


JOURNAL_MEDIA: Final = tuple(each.media for each in JOURNAL_FORMS.values())

_MADE_ANSWERS: Final = {
    202: "The result is being made. Send the same request again to get it",
    409: "The result cannot be made, or is too large; `detail` says why",
    503: "Another report, journal, verification or preview is being made",
}
_make = partial(
    Operation, scope="finance", tag="finance", answers=_MADE_ANSWERS, retry_after=(202,)
)

OPERATIONS: Final = (
    _make("GET", "/api/v1/reports", ReportRoutes.get_report),
    _make("GET", "/api/v1/journals", ReportRoutes.get_journal, media=JOURNAL_MEDIA),
    _make("GET", "/api/v1/periods/verification", ReportRoutes.verify_periods),
    _make(
        "GET",
        "/api/v1/periods/{period}/verification",
        ReportRoutes.verify_period,
        unknown=("period_not_closed", "This month is not closed."),
    ),
    _make("POST", "/api/v1/rules/preview", ReportRoutes.preview_rules, body_bytes=MAX_RULES_BODY),
)
