"""The read-only API of finance: imports, matches, breaks and closed months."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Final, TypeVar

from starlette.responses import JSONResponse, Response

from app.api import report_routes, request_body
from app.api.operations import AS_SENT, AsOf, AsOfAsked, NewestAsked, Operation, PageAsked
from app.context.context import AppContext
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
from app.finance.bank_match import BankPageDocument, WholeBankLineDocument
from app.finance.break_acts import BreakPageDocument, WholeBreakDocument
from app.finance.closed_periods import PeriodListDocument
from app.finance.imports import ImportPageDocument
from app.finance.match_rules import RulesDocument
from app.finance.read_lines import BookLinePageDocument, StatementLinePageDocument
from app.finance.reconcile_period import RunPageDocument, WholeRunDocument
from app.finance.reports.journal import closed_journal
from app.finance.reports.journal_documents import JournalDocument
from app.finance.reports.journal_forms import JOURNAL_FORMS
from app.finance.scheduled import ScheduleDocument
from app.finance.worklist import LatePageDocument
from reconcile.documents import Keywords
from reconcile.matching.breaks import STATES, State
from reconcile.matching.causes import BreakCause
from reconcile.matching.control import BUCKETS


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesAsked(PageAsked):
    reference: Annotated[str | None, "Only lines with this order, group or payment."] = None
    as_of: AsOf = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BankLinesAsked(PageAsked):
    stands: Annotated[str | None, Keywords(enum=BUCKETS), "Only lines in this state."] = None
    as_of: AsOf = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreaksAsked(PageAsked):
    cause: Annotated[BreakCause | None, "Only breaks with this cause."] = None
    state: Annotated[
        State | None, "Only breaks in this state. Default: all except closed ones."
    ] = None
    assignee: Annotated[str | None, AS_SENT, "Only breaks assigned to this person."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateAsked(PageAsked):
    all: Annotated[bool, "Include late money that later evidence has settled."] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedAsked:
    version: Annotated[
        int | None,
        Keywords(minimum=1, maximum=9_999),
        "Version of the closing, if the month was reopened. Default: the one in force.",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedJournalAsked(ClosedAsked):
    format: report_routes.Form = "json"


T = TypeVar("T")


class FinanceRoutes:
    """Endpoints of finance. Each request needs a token with the scope `finance`."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._schedule = schedule_entries(context.settings.schedule)
        self._bank = bank_match.KeptMatch()

    # --- imports

    async def list_book_lines(self, asked: LinesAsked) -> BookLinePageDocument:
        """List the lines of the imported order book, sorted by the lines' keys."""
        page = await read_lines.book_page(self._context, **asdict(asked))
        lines = [read_lines.book_document(each) for each in page.lines]
        return {"lines": lines, "next": page.following}

    async def list_statement_lines(self, asked: LinesAsked) -> StatementLinePageDocument:
        """List the lines of the imported provider statements, sorted by the lines' keys."""
        page = await read_lines.statement_page(self._context, **asdict(asked))
        lines = [read_lines.statement_document(each) for each in page.lines]
        return {"lines": lines, "next": page.following}

    async def list_bank_lines(self, asked: BankLinesAsked) -> BankPageDocument:
        """List bank lines with their matched payouts, newest first. Texts that name people are left
        out."""
        try:
            page = await bank_match.booked_page(self._context, **asdict(asked), kept=self._bank)
        except NotFoundError:
            raise ApiProblem(
                422,
                "parameter_invalid",
                "The parameter `after` must be the id of a line of this list. Leave the parameter "
                "out to start from the first page.",
            ) from None
        following = page.lines[-1].line.line_id if page.more else None
        return {"lines": [each.document() for each in page.lines], "next": following}

    async def get_bank_line(self, line: str, asked: AsOfAsked) -> WholeBankLineDocument:
        """Return one bank line with its payouts and their exchange rate."""
        found = await bank_match.booked_line(
            self._context, line, as_of=asked.as_of, kept=self._bank
        )
        return found.whole_document()

    async def list_book_imports(self, asked: NewestAsked) -> ImportPageDocument:
        """List the imports of order books and the withdrawals of such imports, newest first."""
        return await self._imports(asked, "book")

    async def list_statement_imports(self, asked: NewestAsked) -> ImportPageDocument:
        """List the imports of provider statements and the withdrawals of such imports, newest
        first."""
        return await self._imports(asked, "statement")

    async def list_bank_imports(self, asked: NewestAsked) -> ImportPageDocument:
        """List the imports of bank files and the withdrawals of such imports, newest first."""
        return await self._imports(asked, "bank")

    async def _imports(self, asked: NewestAsked, kind: imports.ImportKind) -> ImportPageDocument:
        found = await imports.past_imports(self._context, kind=kind, **asdict(asked))
        following = found[-1].number if len(found) == asked.limit else None
        return {"imports": [each.document() for each in found], "next": following}

    # --- matches and breaks

    async def list_runs(self, asked: NewestAsked) -> RunPageDocument:
        """List the reconciliations that were run, newest first."""
        found = await break_acts.finished_runs(self._context, **asdict(asked))
        following = found[-1].number if len(found) == asked.limit else None
        return {"runs": [reconcile_period.listed_run(each) for each in found], "next": following}

    async def get_run(self, run: str, asked: PageAsked) -> WholeRunDocument:
        """Return one reconciliation with its control totals and breaks. The breaks are sorted by
        id."""
        number = request_body.path_number(run)
        found = await reconcile_period.ran(
            self._context, await break_acts.finished_run(self._context, number)
        )
        seen = break_acts.breaks_of_run(self._context, found.number, after=asked.after)
        breaks, following = await _first(seen, limit=asked.limit)
        listed = [each.document(as_of=found.as_of) for each in breaks]
        return {**reconcile_period.run_document(found), "breaks": listed, "next": following}

    async def get_rules(self) -> RulesDocument:
        """Return the matching rules in force, with author and time."""
        return match_rules.rules_document(await match_rules.current_rules(self._context))

    async def list_breaks(self, asked: BreaksAsked) -> BreakPageDocument:
        """List breaks, sorted by id."""
        now = self._context.clock.now()
        found, following = await _first(
            break_acts.living_breaks(
                self._context,
                causes=[] if asked.cause is None else [asked.cause],
                states=STATES[:-1] if asked.state is None else (asked.state,),
                assignee=asked.assignee,
                after=asked.after,
            ),
            limit=asked.limit,
        )
        return {"breaks": [each.document(as_of=now) for each in found], "next": following}

    async def get_break(self, break_: str) -> WholeBreakDocument:
        """Return one break: difference, next step, nearest lines, and people's actions so far."""
        found = await break_acts.one_break(self._context, break_)
        return found.whole_document(as_of=self._context.clock.now())

    async def list_late_money(self, asked: LateAsked) -> LatePageDocument:
        """List money that arrived late. Each item has its state and a proposed action."""
        found, following = await _first(
            worklist.late_items(self._context, closed=asked.all, after=asked.after),
            limit=asked.limit,
        )
        return {"late": [worklist.late_document(each) for each in found], "next": following}

    async def list_schedule(self, asked: PageAsked) -> ScheduleDocument:
        """List the scheduled tasks, each with its last run and its next run."""
        entries = {each.name: each for each in self._schedule}
        shown, following = _after(entries, asked, what="an entry of the schedule")
        listed = await scheduled.schedule_document(self._context, shown)
        return {"entries": listed, "next": following}

    # --- closed months

    async def list_periods(self, asked: PageAsked) -> PeriodListDocument:
        """List the closings of months, earliest first. The list includes months that were
        reopened."""
        made = await closed_periods.list_closed(self._context)
        closings = {f"{each.period}.{each.version}": each for each in made}
        shown, following = _after(closings, asked, what="a closing of this list")
        return {"periods": [each.document() for each in shown], "next": following}

    async def get_period(
        self, period: str, asked: ClosedAsked
    ) -> report_routes.ReportDocument | Response:
        """Return the report of a closed month, byte for byte as it was at the closing."""
        content = await closed_periods.closed_report(
            self._context, period, "json", version=asked.version
        )
        return Response(content, media_type=JSONResponse.media_type)

    async def get_period_journal(
        self, period: str, asked: ClosedJournalAsked
    ) -> JournalDocument | Response:
        """Return the journal of a closed month, byte for byte as it was at the closing."""
        form, parts = asked.format, list[bytes]()
        written = closed_journal(self._context, period, form, version=asked.version)
        async with aclosing(written):
            async for part in written:
                parts.append(part)
                if sum(map(len, parts)) > report_routes.MAX_JOURNAL_BYTES:
                    raise UsageError(report_routes.TOO_MUCH)
        return Response(b"".join(parts), media_type=JOURNAL_FORMS[form].media)


async def _first(
    parts: AsyncGenerator[list[break_acts.SeenBreak]], *, limit: int
) -> tuple[list[break_acts.SeenBreak], str | None]:
    found: list[break_acts.SeenBreak] = []
    async with aclosing(parts):
        async for some in parts:
            found += some
            if len(found) > limit:
                return found[:limit], found[limit - 1].identity
    return found, None


def _after(known: Mapping[str, T], asked: PageAsked, *, what: str) -> tuple[list[T], str | None]:
    names = list(known)
    if asked.after and asked.after not in known:
        sentence = (
            f"The parameter `after` must name {what}. Leave the parameter out to start from the "
            "first page."
        )
        raise ApiProblem(422, "parameter_invalid", sentence)
    begin = names.index(asked.after) + 1 if asked.after else 0
    shown = names[begin : begin + asked.limit]
    more = len(names) > begin + asked.limit
    return [known[name] for name in shown], shown[-1] if more else None


_MANY = "There are too many lines to match, or their sums are too large"
_NOT_CLOSED: Final = (
    "period_not_closed",
    "This month is not closed, or its closing has no such version.",
)


_read = partial(Operation, "GET", scope="finance", tag="finance", alone=True)

OPERATIONS: Final = (
    _read("/api/v1/schedule", FinanceRoutes.list_schedule),
    _read("/api/v1/records/lines", FinanceRoutes.list_book_lines),
    _read("/api/v1/records/imports", FinanceRoutes.list_book_imports),
    _read("/api/v1/statement/lines", FinanceRoutes.list_statement_lines),
    _read("/api/v1/statement/imports", FinanceRoutes.list_statement_imports),
    _read(
        "/api/v1/bank/lines",
        FinanceRoutes.list_bank_lines,
        answers={409: _MANY},
        refused=(409, "bank_not_matched"),
    ),
    _read(
        "/api/v1/bank/lines/{line}",
        FinanceRoutes.get_bank_line,
        answers={409: _MANY},
        refused=(409, "bank_not_matched"),
        unknown=("bank_line_unknown", "There is no bank line with this id."),
    ),
    _read("/api/v1/bank/imports", FinanceRoutes.list_bank_imports),
    _read("/api/v1/runs", FinanceRoutes.list_runs),
    _read(
        "/api/v1/runs/{run}",
        FinanceRoutes.get_run,
        unknown=("run_unknown", "There is no run with this number."),
    ),
    _read("/api/v1/rules", FinanceRoutes.get_rules),
    _read("/api/v1/breaks", FinanceRoutes.list_breaks),
    _read(
        "/api/v1/breaks/{break}",
        FinanceRoutes.get_break,
        unknown=("break_unknown", "There is no break with this id."),
    ),
    _read("/api/v1/late", FinanceRoutes.list_late_money),
    _read("/api/v1/periods", FinanceRoutes.list_periods),
    _read("/api/v1/periods/{period}", FinanceRoutes.get_period, unknown=_NOT_CLOSED),
    _read(
        "/api/v1/periods/{period}/journal",
        FinanceRoutes.get_period_journal,
        answers={409: "The journal is too large to be sent; `detail` says how to get it"},
        unknown=_NOT_CLOSED,
        refused=(409, "report_not_made"),
        media=report_routes.JOURNAL_MEDIA,
    ),
)
