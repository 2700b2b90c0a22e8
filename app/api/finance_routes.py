"""The API of finance, read only: imports, matches, breaks, decisions and closed months, as the
commands print them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import report_routes, request_body
from app.api.report_routes import MAX_JOURNAL_BYTES, TOO_MUCH
from app.context.context import AppContext
from app.context.work import Elsewhere
from app.core.errors import NotFoundError, UsageError
from app.core.problems import ApiProblem
from app.core.schedule import schedule_entries
from app.finance import (
    bank_match,
    break_acts,
    closed_periods,
    imports,
    match_rules,
    read_lines,
    reconcile_period,
    scheduled,
    worklist,
)
from app.finance.reports.journal import JOURNAL_FORMATS, JOURNAL_TYPES, closed_journal
from reconcile.matching.breaks import BREAK_CAUSES, STATES
from reconcile.matching.control import BUCKETS


class FinanceRoutes:
    """The endpoints; each needs the scope `finance`."""

    def __init__(self, context: AppContext, elsewhere: Elsewhere) -> None:
        self._context = context
        self._schedule = schedule_entries(context.settings.schedule)
        self._bank = bank_match.KeptMatch()
        made = report_routes.ReportRoutes(context, elsewhere)
        self.report, self.journal = made.report, made.journal
        self.verification, self.rules_preview = made.verification, made.rules_preview

    def _limit(self, request: Request) -> int:
        return request_body.limit_parameter(request, most=self._context.settings.page_max)

    # --- what was imported

    async def book_lines(self, request: Request, program: str) -> Response:
        """GET /api/v1/records/lines?reference=&as_of=&after=&limit="""
        page = await read_lines.book_page(self._context, **self._lines_asked(request))
        return _page(
            "lines", [read_lines.book_document(each) for each in page.lines], page.following
        )

    async def statement_lines(self, request: Request, program: str) -> Response:
        """GET /api/v1/statement/lines?reference=&as_of=&after=&limit="""
        page = await read_lines.statement_page(self._context, **self._lines_asked(request))
        return _page(
            "lines", [read_lines.statement_document(each) for each in page.lines], page.following
        )

    def _lines_asked(self, request: Request) -> dict[str, Any]:
        return {
            "reference": request_body.word_parameter(request, "reference"),
            "as_of": request_body.instant_parameter(request, "as_of"),
            "after": request_body.after_parameter(request),
            "limit": self._limit(request),
        }

    async def bank_lines(self, request: Request, program: str) -> Response:
        """GET /api/v1/bank/lines?stands=&as_of=&after=&limit="""
        try:
            page = await bank_match.booked_page(
                self._context,
                as_of=request_body.instant_parameter(request, "as_of"),
                stands=request_body.chosen(request, "stands", BUCKETS),
                after=request_body.after_parameter(request),
                limit=self._limit(request),
                kept=self._bank,
            )
        except NotFoundError:
            raise ApiProblem(
                422, "parameter_invalid", "after is no line of this list: begin without it."
            ) from None
        except UsageError as error:
            raise ApiProblem(409, "bank_not_matched", f"{error}.") from None
        following = page.lines[-1].line.line_id if page.more else None
        return _page("lines", [each.document() for each in page.lines], following)

    async def bank_line(self, request: Request, program: str) -> Response:
        """GET /api/v1/bank/lines/{line}?as_of="""
        as_of = request_body.instant_parameter(request, "as_of")
        try:
            name = request.path_params["line"]
            found = await bank_match.booked_line(self._context, name, as_of=as_of, kept=self._bank)
        except NotFoundError:
            raise ApiProblem(
                404, "bank_line_unknown", "There is no bank line of this name."
            ) from None
        except UsageError as error:
            raise ApiProblem(409, "bank_not_matched", f"{error}.") from None
        return JSONResponse(found.document(whole=True))

    async def book_imports(self, request: Request, program: str) -> Response:
        """GET /api/v1/records/imports?before=&limit="""
        return await self._imports(request, "book")

    async def statement_imports(self, request: Request, program: str) -> Response:
        """GET /api/v1/statement/imports?before=&limit="""
        return await self._imports(request, "statement")

    async def bank_imports(self, request: Request, program: str) -> Response:
        """GET /api/v1/bank/imports?before=&limit="""
        return await self._imports(request, "bank")

    async def _imports(self, request: Request, kind: imports.ImportKind) -> Response:
        limit = self._limit(request)
        before = request_body.before_parameter(request)
        found = await imports.past_imports(self._context, kind=kind, limit=limit, before=before)
        following = found[-1].number if len(found) == limit else None
        return _page("imports", [each.document() for each in found], following)

    # --- what was matched, and what is found

    async def runs(self, request: Request, program: str) -> Response:
        """GET /api/v1/runs?before=&limit="""
        limit = self._limit(request)
        before = request_body.before_parameter(request)
        found = await break_acts.finished_runs(self._context, limit=limit, before=before)
        following = found[-1].number if len(found) == limit else None
        return _page("runs", [reconcile_period.listed_run(each) for each in found], following)

    async def run(self, request: Request, program: str) -> Response:
        """GET /api/v1/runs/{run}?after=&limit=: its totals and a page of its breaks."""
        limit = self._limit(request)
        try:
            number = request_body.path_number(request, "run")
            found = await reconcile_period.ran(
                self._context, await break_acts.finished_run(self._context, number)
            )
        except NotFoundError:
            raise ApiProblem(404, "run_unknown", "There is no run of this name.") from None
        seen = break_acts.breaks_of_run(
            self._context, found.number, after=request_body.after_parameter(request)
        )
        breaks, following = await _first(seen, limit=limit)
        listed = [each.document(as_of=found.as_of) for each in breaks]
        return JSONResponse(
            reconcile_period.run_document(found) | {"breaks": listed, "next": following}
        )

    async def rules(self, request: Request, program: str) -> Response:
        """GET /api/v1/rules"""
        return JSONResponse(
            match_rules.rules_document(await match_rules.current_rules(self._context))
        )

    async def breaks(self, request: Request, program: str) -> Response:
        """GET /api/v1/breaks?cause=&state=&assignee=&after=&limit=; closed ones by their state."""
        cause, state = (
            request_body.chosen(request, "cause", BREAK_CAUSES),
            request_body.chosen(request, "state", STATES),
        )
        assignee, limit = request.query_params.get("assignee") or None, self._limit(request)
        now = self._context.clock.now()
        found, following = await _first(
            break_acts.living_breaks(
                self._context,
                causes=[] if cause is None else [cause],
                states=STATES[:-1] if state is None else (state,),
                assignee=assignee,
                after=request_body.after_parameter(request),
            ),
            limit=limit,
        )
        return _page("breaks", [each.document(as_of=now) for each in found], following)

    async def one_break(self, request: Request, program: str) -> Response:
        """GET /api/v1/breaks/{break}"""
        try:
            found = await break_acts.one_break(self._context, request.path_params["break"])
        except NotFoundError:
            raise ApiProblem(404, "break_unknown", "There is no break of this name.") from None
        return JSONResponse(found.document(as_of=self._context.clock.now()) | found.history())

    async def late(self, request: Request, program: str) -> Response:
        closed = request_body.chosen(request, "all", ("true", "false")) == "true"
        found, following = await _first(
            worklist.late_items(
                self._context, closed=closed, after=request_body.after_parameter(request)
            ),
            limit=self._limit(request),
        )
        return _page("late", [worklist.late_document(each) for each in found], following)

    async def schedule(self, request: Request, program: str) -> Response:
        """GET /api/v1/schedule?after=&limit=: entries in the order of the setting."""
        after, limit = request_body.after_parameter(request), self._limit(request)
        names = [entry.name for entry in self._schedule]
        if after and after not in names:
            raise ApiProblem(
                422, "parameter_invalid", "after is no entry of the schedule: begin without it."
            )
        later = self._schedule[names.index(after) + 1 :] if after else self._schedule
        following = later[limit - 1].name if len(later) > limit else None
        return _page(
            "entries", await scheduled.schedule_document(self._context, later[:limit]), following
        )

    # --- what is closed

    async def periods(self, request: Request, program: str) -> Response:
        """GET /api/v1/periods?after=&limit="""
        after, limit = request_body.after_parameter(request), self._limit(request)
        made = await closed_periods.list_closed(self._context)
        names = [f"{each.period}.{each.version}" for each in made]
        if after and after not in names:
            raise ApiProblem(
                422, "parameter_invalid", "after is no closing of this list: begin without it."
            )
        begin = names.index(after) + 1 if after else 0
        found = [each.document() for each in made[begin : begin + limit]]
        following = names[begin + limit - 1] if len(made) > begin + limit else None
        return _page("periods", found, following)

    async def period(self, request: Request, program: str) -> Response:
        """GET /api/v1/periods/{period}?version=: the stored report, byte for byte."""
        try:
            content = await closed_periods.closed_report(
                self._context, request.path_params["period"], "json", version=_version(request)
            )
        except NotFoundError:
            raise _NOT_CLOSED from None
        return Response(content, media_type=JSONResponse.media_type)

    async def period_journal(self, request: Request, program: str) -> Response:
        """GET /api/v1/periods/{period}/journal?format=&version=: the stored journal, byte for
        byte."""
        form = request_body.chosen(request, "format", JOURNAL_FORMATS) or "json"
        parts = list[bytes]()
        written = closed_journal(
            self._context, request.path_params["period"], form, version=_version(request)
        )
        try:
            async with aclosing(written):
                async for part in written:
                    parts.append(part)
                    if sum(map(len, parts)) > MAX_JOURNAL_BYTES:
                        raise ApiProblem(409, "report_not_made", f"{TOO_MUCH}.")
        except NotFoundError:
            raise _NOT_CLOSED from None
        return Response(b"".join(parts), media_type=JOURNAL_TYPES[form][0])


_NOT_CLOSED: Final = ApiProblem(
    404, "period_not_closed", "There is no closed month of this name, or not this version of it."
)


def _version(request: Request) -> int | None:
    if request_body.word_parameter(request, "version") is None:
        return None
    return request_body.number_parameter(request, "version", default=1, low=1, high=9_999)


async def _first(
    parts: AsyncGenerator[list[break_acts.SeenBreak]], *, limit: int
) -> tuple[list[break_acts.SeenBreak], str | None]:
    """Return the first items, and the name of the last where more follow."""
    found: list[break_acts.SeenBreak] = []
    async with aclosing(parts):
        async for some in parts:
            found += some
            if len(found) > limit:
                return found[:limit], found[limit - 1].identity
    return found, None


def _page(name: str, items: list[dict[str, Any]], following: str | int | None) -> Response:
    return JSONResponse({name: items, "next": following})
