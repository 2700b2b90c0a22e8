"""The API of reports of any period, which take seconds to minutes: each is made in a process of its
own, and its answer says so until it is there.

The document is that of `report period --format json`, byte for byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import tzinfo
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api.request_body import chosen, instant_parameter, word_parameter
from app.core.errors import UsageError
from app.core.jobs import Job, Jobs
from app.core.problems import ApiProblem
from app.finance.calendar import on_the_books
from app.finance.report_period import check_scope
from app.receiving.context import AppContext
from reconcile.instants import Instant, format_instant
from reconcile.periods import Calendar
from reconcile.reporting.report import BASES, Scope

MakeReport = Callable[[Scope], Awaitable[bytes]]
"""Makes a report's JSON elsewhere. Raises UsageError where it cannot be made, UnreachableError
where its process has ended."""

AT_ONCE: Final = 1
"""Reports that are made at once: each reads everything, with a core and some 100 MiB of its own."""

KEPT: Final = 4
"""Reports that are remembered for who asks again: one can have some ten MiB."""

RETRY_AFTER: Final = {"Retry-After": "5"}
"""Seconds until a program asks again."""

_REPORT: Final = "report"
_DAY: Final = len("2026-10-01")


class ReportRoutes:
    """The endpoint. `make` makes a report in a process of its own."""

    def __init__(self, context: AppContext, make: MakeReport, *, jobs: Jobs) -> None:
        self._context = context
        self._make = make
        self._jobs = jobs

    async def report(self, request: Request, program: str) -> Response:
        """GET /api/v1/reports?from=&to=&basis=&as_of=: 200 with the report; 202 while it is made,
        and the same address tells later; 503 while another one is."""
        now, as_of = self._context.clock.now(), instant_parameter(request, "as_of")
        asked = self._asked(request, as_of=now if as_of is None else as_of)
        scope = await on_the_books(self._context, asked)
        try:
            check_scope(scope, now=now)
        except UsageError as error:
            words = str(error).replace("--as-of", "as_of").replace("--", "")
            raise ApiProblem(422, "parameter_invalid", f"{words}.") from None
        job = self._begun(repr((scope.start, scope.end, scope.basis, as_of)), scope, program)
        try:
            await self._jobs.wait(job)
        except UsageError as error:
            raise ApiProblem(409, "report_not_made", f"{error}.") from None
        if job.ended is None:
            return _under_way(job)
        return Response(job.result, media_type=JSONResponse.media_type)

    def _asked(self, request: Request, *, as_of: Instant) -> Scope:
        zone = self._context.calendar_zone
        return Scope(
            start=_end(request, "from", zone=zone, last=False),
            end=_end(request, "to", zone=zone, last=True),
            as_of=as_of,
            basis=chosen(request, "basis", BASES) or "captured",
            environment=self._context.store.environment or "not stamped",
        )

    def _begun(self, subject: str, scope: Scope, program: str) -> Job:
        """The report that is under way, or was made a moment ago; else it is begun. Raises
        ApiProblem 503 where as many as may be are under way."""
        before = self._jobs.newest(_REPORT, subject)
        free = self._jobs.under_way(_REPORT) < AT_ONCE
        if not free and (before is None or before.ended is not None):
            raise ApiProblem(
                503,
                "reports_busy",
                "Another report is being made: ask again.",
                headers=RETRY_AFTER,
            )

        async def make() -> bytes:
            return await self._make(scope)

        return self._jobs.shared(_REPORT, subject, by=program, mark="", work=make)


def _end(request: Request, name: str, *, zone: tzinfo, last: bool) -> Instant:
    """A day of the merchant's, of which the last is in the period whole, or a moment."""
    text = word_parameter(request, name)
    if text is None:
        raise ApiProblem(422, "parameter_invalid", f"{name} is missing: a day, or a moment.")
    if len(text) != _DAY:
        moment = instant_parameter(request, name)
        assert moment is not None
        return moment
    try:
        return Calendar(zone).day(text)[1 if last else 0]
    except ValueError:
        raise ApiProblem(
            422, "parameter_invalid", f"{name} is a day such as 2026-10-01, or a moment."
        ) from None


def _under_way(job: Job) -> Response:
    told = {
        "state": "under_way",
        "began": format_instant(job.began),
        "detail": "The report is being made: ask for the same address again.",
    }
    return JSONResponse(told, status_code=202, headers=RETRY_AFTER)
