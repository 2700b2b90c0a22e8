"""Close a month.

1 ask     check who asks, and that this month is the next
2 look    compute the month's report as of one instant
3 refuse  return all reasons against closing at once
4 digest  compute digests of the evidence since the previous closing
5 print   render the report and the journal in every format
6 write   store the closing, the files and the audit entry in one transaction

If two people are required, step 6 makes a proposal, and the approval repeats all steps.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version as installed
from typing import Any, Final

from app.access import operator_store, operators, proposals
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.jobs import silent
from app.database.engine import Connection
from app.database.gaps import gaps_until
from app.finance import match_rules, period_store, report_period
from app.finance.closed_periods import CLOSING_BASIS, calendar_of, month_in_books, rules_form
from app.finance.coverage_store import coverage_lines
from app.finance.evidence_digest_store import evidence_digests
from app.finance.reports.accounts import merchant_accounts
from app.finance.reports.journal import journal_prints
from app.finance.reports.render import REPORT_FORMATS, render
from app.orders.set_aside import poisoned
from app.receiving.caught_up import behind_s
from app.receiving.confirm import ask_before, unanswered_by
from app.receiving.reverify import count_genuine
from app.receiving.source_state_store import not_kept_in
from app.sealing import log_store
from reconcile.canonical import fingerprint
from reconcile.instants import EARLIEST, TICK, Instant, format_instant, parse_instant
from reconcile.periods import Month, month_named
from reconcile.reporting import closing as closings
from reconcile.reporting.report import PeriodReport, Scope
from reconcile.reporting.tables import report_document


def printed(report: PeriodReport) -> dict[str, period_store.PrintParts]:
    """Render the report in every installed format."""
    found: dict[str, period_store.PrintParts] = {}
    for form in REPORT_FORMATS:
        try:
            found[form] = period_store.PrintParts(render(report, form))
        except UsageError:
            continue
    return found


STILL_S: Final = 2.0
"""Seconds to wait before the present state is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRequest:
    """Request to close a month."""

    period: str
    by: str | None
    as_of: Instant | None = None
    """Instant of the month's figures. None for now."""
    margin_days: int | None = None
    """Days to wait after the month's end. None for the setting."""
    reason: str = ""
    exceptions: Mapping[str, str] = field(default_factory=dict)
    """Unmet conditions with the reason to close nevertheless. Two people are needed."""
    unasked: Sequence[str] | None = None
    """Payments without the provider's answer at the proposal. None without a proposal."""
    still_s: float = STILL_S


async def close_period(
    context: AppContext, request: CloseRequest, *, progress: report_period.Progress = silent
) -> closings.Closing | Proposal | tuple[closings.Blocker, ...]:
    """Close a month, make a proposal for two people, or return all reasons against closing. Raise
    UsageError if permission is missing, or for a wrong month."""
    alone = await may_close_alone(context) and not request.exceptions
    because = EXCEPTED if request.exceptions else NOT_ALONE
    if not alone and not request.reason.strip():
        raise UsageError(
            f"closing a month needs two people ({because}): state the reason for your "
            'proposal with --reason "WHY"'
        )
    proposals.check_reason(
        request.reason, of="a closing", needed=False, countries=context.countries
    )
    for why in request.exceptions.values():
        proposals.check_reason(why, of="an exception", countries=context.countries)
    looked = await _looked(context, request, progress=progress)
    month, report = looked.month, looked.report
    if looked.blockers or report is None:
        return looked.blockers
    unknown = request.exceptions.keys() - {each.line for each in report.exceptions}
    if unknown:
        red = ", ".join(each.line for each in report.exceptions) or "none"
        raise UsageError(
            f"no condition named {', '.join(sorted(unknown))[:200]} prevents closing "
            f"{month.name}; these conditions do: {red}"
        )
    async with context.database.writing() as connection:
        if request.exceptions or not await _alone(connection):
            as_of = format_instant(report.scope.as_of)
            return await proposals.propose(
                connection,
                closing_kind(context),
                who=await operators.permitted(connection, by=request.by, action="period_closed"),
                now=context.clock.now(),
                because=because,
                subject=month.name,
                sentence=(
                    f"Close {month.name} as it was known at {as_of}: this report and its "
                    "journal are kept. What becomes known later is posted in the next month."
                ),
                given={
                    "as_of": as_of,
                    "margin_days": str(_margin_days(context, request)),
                    "digest": figures_digest(report),
                    "exceptions": json.dumps(dict(request.exceptions), ensure_ascii=False),
                    "unasked": json.dumps(looked.unasked),
                    "report": render(without_lists(report), "table").decode(),
                },
                reason=request.reason,
            )
    return await _write(context, request, looked, report, progress=progress)


NOT_ALONE: Final = "the rules in force let nobody close a month alone"
EXCEPTED: Final = "an exception needs two people"


async def _alone(connection: Connection) -> bool:
    return (await match_rules.rules_known(connection)).close_alone


async def may_close_alone(context: AppContext) -> bool:
    async with context.database.reading() as connection:
        return await _alone(connection)


def _margin_days(context: AppContext, request: CloseRequest) -> int:
    asked = request.margin_days
    return context.settings.closing_margin_days if asked is None else asked


def closing_kind(context: AppContext, *, still_s: float = STILL_S) -> proposals.ProposalKind:
    async def perform(proposal: Proposal, agree: proposals.Agree) -> None:
        request = CloseRequest(
            period=proposal.subject,
            by=operators.Proven(proposal.who),
            as_of=parse_instant(proposal.given["as_of"]),
            margin_days=int(proposal.given["margin_days"]),
            reason=proposal.reason,
            exceptions=json.loads(proposal.given["exceptions"]),
            unasked=json.loads(proposal.given["unasked"]),
            still_s=still_s,
        )
        looked = await _looked(context, request, progress=silent)
        if looked.blockers or looked.report is None:
            reasons = " ".join(each.sentence for each in looked.blockers)
            raise UsageError(f"{proposal.subject} cannot be closed now. {reasons}")
        if figures_digest(looked.report) != proposal.given["digest"]:
            raise UsageError(
                f"the figures of the report have changed since {proposal.who} proposed this "
                "closing, because the settings, the program or the exceptions changed: reject "
                "this proposal, and have the closing proposed again"
            )
        async with context.database.reading() as connection:
            then, now = [
                {each.number for each in await coverage_lines(connection, as_of=at)}
                for at in (looked.report.scope.as_of, context.clock.now())
            ]
        if not then <= now:
            raise UsageError(
                f"a declared coverage was withdrawn after {proposal.who} proposed this closing: "
                "reject this proposal, and have the closing proposed again"
            )
        two = (proposal, agree)
        await _write(context, request, looked, looked.report, progress=silent, two=two)

    return proposals.ProposalKind(
        name="close_period",
        title="Close a month",
        action="period_closed",
        subject_state=_chains_state,
        perform=perform,
        takes_long=True,
        for_good=True,
        where=proposals.shown_in("periods"),
        particulars={
            "as_of": "Closed as it was known at",
            "margin_days": "Days that must pass after the month's end before it is closed",
            "report": "The closed report, without its lists",
        },
    )


def figures_digest(report: PeriodReport) -> str:
    """Return a digest `sha256:…` of all the report's figures."""
    rows = [each.document() for each in closings.figures(report)]
    others = (report.adjustments, report.exceptions)
    return fingerprint([rows, *([asdict(each) for each in some] for some in others)])


def without_lists(report: PeriodReport) -> PeriodReport:
    """Return a report without its lists of orders and payments."""
    return replace(report, break_lines=(), late_lines=(), change_lines=(), unlisted=())


async def _chains_state(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
    # The digest changes with every closing and reopening.
    return newest_link(await period_store.all_closings(connection))[1] or "the first"


def newest_link(made: Iterable[period_store.Closed]) -> tuple[Instant, str | None]:
    """Return (instant, digest) of the last closing or reopening; (EARLIEST, None) without one."""
    return max(chain_of(made), key=lambda link: link[0], default=(EARLIEST, None))


def chain_of(made: Iterable[period_store.Closed]) -> list[tuple[Instant, str]]:
    """Return (instant, digest) for every closing and reopening."""
    links = [(each.closed_at, each.digest) for each in made]
    links += [
        (each.reopened_at, each.reopening)
        for each in made
        if each.reopened_at is not None and each.reopening is not None
    ]
    return sorted(links)


async def against_closing(
    context: AppContext, request: CloseRequest, *, progress: report_period.Progress = silent
) -> tuple[closings.Blocker, ...]:
    """Return all reasons against closing a month."""
    return (await _looked(context, request, progress=progress)).blockers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    month: Month
    made: list[period_store.Closed]
    before: period_store.Closed | None
    report: PeriodReport | None
    blockers: tuple[closings.Blocker, ...]
    unasked: Sequence[str] = ()


async def _looked(
    context: AppContext, request: CloseRequest, *, progress: report_period.Progress
) -> _Looked:
    month = await month_in_books(context, request.period)
    if (request.as_of or 0) > context.clock.now():
        raise UsageError("--as-of is in the future: give a time that has passed")
    unasked = request.unasked or ()
    if request.unasked is None and month.end <= context.clock.now():
        left = (
            await ask_before(context, until=month.end)
            if request.as_of is None
            else await unanswered_by(context, until=month.end, as_of=request.as_of)
        )
        unasked = [f"{each.source}:{each.payment or each.event_id}" for each in left]
    now = context.clock.now()
    as_of = now if request.as_of is None else request.as_of
    async with context.database.reading() as connection:  # 1
        await operators.permitted(connection, by=request.by, action="period_closed")
        made = await period_store.all_closings(connection)
    before = next_in_order(made, month)
    if as_of < newest_link(made)[0]:
        raise UsageError(
            "--as-of lies before the last closing or reopening: choose a moment after "
            f"{format_instant(newest_link(made)[0])}"
        )
    found = tuple(closings.too_early(month, now=as_of, margin_days=_margin_days(context, request)))
    report: PeriodReport | None = None
    if as_of >= month.end:
        if as_of > now - int(request.still_s * 1_000_000):
            await asyncio.sleep(request.still_s)
        if behind := await behind_s(context, as_of=as_of):
            found = (*found, closings.unread(behind))
        else:
            scope = scope_of(context, month, as_of)
            report = await report_period.report_period(context, scope, progress=progress)  # 2
            evidence = await _evidence_blockers(context, month, as_of=as_of)
            in_report = closings.in_report(report)
            then = request.as_of is not None and request.unasked is None
            found = (*found, *closings.unasked(unasked, then=then), *evidence, *in_report)  # 3
    found, exceptions = closings.excepted(found, request.exceptions)
    if report is not None:
        report = replace(report, exceptions=exceptions)
    return _Looked(
        month=month, made=made, before=before, report=report, blockers=found, unasked=unasked
    )


async def _evidence_blockers(
    context: AppContext, month: Month, *, as_of: Instant
) -> tuple[closings.Blocker, ...]:
    genuine = await count_genuine(context, since=month.start, until=month.end)
    suspects = await poisoned(context)
    since, until = month.start, min(month.end, as_of)
    async with context.database.reading(settled=True) as connection:
        unreadable = await period_store.count_unreadable(connection, until=as_of)
        not_ours = await period_store.count_not_ours(connection, since=since, until=until)
    lost = await context.database.on_snapshot(
        not_kept_in, context.sources, since=month.start, until=month.end
    )
    gaps = await context.database.on_snapshot(gaps_until, Instant(month.end - TICK))
    return tuple(
        closings.evidence_blockers(
            unreadable=unreadable + len(suspects),
            lost=lost,
            not_ours=not_ours,
            genuine=genuine,
            gaps=[
                closings.lost_in_gap(
                    each.id, since=each.since, until=each.until, lost=each.deliveries
                )
                for each in gaps
                if month.start <= each.until
            ],
        )
    )


OPEN_SHOWN: Final = 24


async def months(context: AppContext) -> tuple[list[period_store.Closed], list[Month]]:
    """Return the closed and open months, the earliest first."""
    async with context.database.reading() as connection:
        made = await period_store.all_closings(connection)
        first = await period_store.first_known(connection)
        calendar = await calendar_of(context, connection)
    now = context.clock.now()
    closed = [each for each in made if each.stands_at(None)]
    if made:
        month = calendar.month(next_name(made))
    elif first is not None:
        month = calendar.month_at(first)
    else:
        return closed, []
    found: list[Month] = []
    while month.start <= now and len(found) < OPEN_SHOWN:
        found.append(month)
        month = calendar.following(month)
    return closed, found


def next_in_order(made: Sequence[period_store.Closed], month: Month) -> period_store.Closed | None:
    """Return the closing of the previous month; None for the first month. Raise UsageError if
    another month must be closed first."""
    if not made:
        return None
    following = next_name(made)
    if month.name < following:
        raise UsageError(
            f"{month.name} is closed, or lies before a closed month; the next one to close is "
            f"{following}"
        )
    if month.name != following:
        raise UsageError(f"close {following} first: months are closed in order, without gaps")
    return _last(made)


def _last(made: Iterable[period_store.Closed]) -> period_store.Closed | None:
    standing = [each for each in made if each.stands_at(None)]
    return standing[-1] if standing else None


def next_name(made: Sequence[period_store.Closed]) -> str:
    """Return the name of the next month to close."""
    last = _last(made)
    return made[0].period if last is None else month_named(last.period).following_name


def scope_of(context: AppContext, month: Month, as_of: Instant) -> Scope:
    return Scope(
        start=month.start,
        end=month.end,
        as_of=as_of,
        basis=CLOSING_BASIS,
        environment=context.database.environment or "",
        zone=month.zone,
        merchant=context.settings.merchant,
    )


async def _write(
    context: AppContext,
    request: CloseRequest,
    looked: _Looked,
    report: PeriodReport,
    *,
    progress: report_period.Progress,
    two: tuple[Proposal, proposals.Agree] | None = None,
) -> closings.Closing:
    month, made = looked.month, looked.made
    rests = await _rests_on(context, report.scope.as_of, looked, progress=progress)  # 4
    # Later than the evidence even if the clock stopped: the closing's audit entry is no evidence.
    closed_at = max(context.clock.now(), report.scope.as_of + TICK)
    async with context.database.reading() as connection:
        closer = await operators.permitted(connection, by=request.by, action="period_closed")
    version = 1 + sum(each.period == month.name for each in made)
    signed = replace(report.scope, closed_by=closer.name, closed_at=closed_at, version=version)
    if two is not None:
        signed = replace(signed, approved_by=two[1].second, proposed_at=two[0].at)
    report = replace(report, scope=signed)
    prints = await asyncio.to_thread(printed, report)  # 5
    accounts = merchant_accounts(context.settings.reports)
    prints |= await journal_prints(context, signed, accounts=accounts, progress=progress)
    async with context.database.writing() as connection:  # 6
        await operator_store.acting_alone(connection)
        agreed = None if two is None else await two[1](connection)
        if agreed is None:
            who = await operators.permitted(connection, by=request.by, action="period_closed")
            if not await _alone(connection):
                raise UsageError(
                    f"{NOT_ALONE}; the rules have just changed: close {month.name} again"
                )
        else:
            who = agreed.who
        if await period_store.all_closings(connection) != made:
            raise UsageError(f"another month was closed in the meantime; close {month.name} again")
        closing = closings.Closing(
            **rests,
            month=month,
            version=version,
            as_of=report.scope.as_of,
            closed_at=closed_at,
            by=who.name,
            role=who.role,
            proposed_at=signed.proposed_at,
            approved_by=signed.approved_by or None,
            margin_days=_margin_days(context, request),
            policy=asdict(context.policy),
            revenue=accounts.revenue,
            program={"tallyhook": installed("tallyhook"), "rules": rules_form(context.policy)},
            figures=closings.figures(report),
            adjusted=closings.adjusted_in(report.adjustments),
            report=report_document(report),
            prints=tuple(made.described(form) for form, made in sorted(prints.items())),
        )
        await period_store.add_closing(connection, closing, prints=prints)
        await operators.note_in_trail(
            connection,
            who,
            action="period_closed",
            subject=month.name,
            at=closed_at,
            reason=request.reason,
            facts={"as_of": format_instant(closing.as_of), "digest": closing.digest}
            | ({} if agreed is None else agreed.facts),
        )
    return closing


async def _rests_on(
    context: AppContext, as_of: Instant, looked: _Looked, *, progress: report_period.Progress
) -> dict[str, Any]:
    known_after = EARLIEST if looked.before is None else looked.before.as_of
    async with context.database.reading(settled=True) as connection:
        evidence = await evidence_digests(
            connection, after=known_after, until=as_of, progress=progress
        )
        head = await log_store.newest_head(connection)
    return {
        "known_after": known_after,
        "before": newest_link(looked.made)[1],
        "evidence": evidence,
        "checkpoint": None if head is None else {"size": head.size, "head": head.head.hex()},
    }


# --- reopening the last closed month --------------------------------------------------------------


async def reopen_period(
    context: AppContext, period: str, *, by: str | None, reason: str
) -> Proposal:
    """Propose to reopen the last closed month. Raise UsageError for any other month."""
    proposals.check_reason(reason, countries=context.countries)
    month = await month_in_books(context, period)
    async with context.database.writing() as connection:
        made = await period_store.all_closings(connection)
        closed = reopenable(made, month.name)
        return await proposals.propose(
            connection,
            reopening_kind(context),
            who=await operators.permitted(connection, by=by, action="period_reopened"),
            now=context.clock.now(),
            because="reopening a closed month needs two people",
            subject=month.name,
            sentence=f"Reopen {month.name}, which {closed.by} closed at "
            f"{format_instant(closed.closed_at)}. Version {closed.version} of its report "
            "and journal is kept. When the month is closed again, it gets version "
            f"{closed.version + 1}.",
            reason=reason,
        )


def reopenable(made: Iterable[period_store.Closed], period: str) -> period_store.Closed:
    """Return the closing to reopen. Raise UsageError unless `period` is the last closed month."""
    last = _last(made)
    if last is None:
        raise UsageError("no month is closed, so none can be reopened")
    if last.period != period:
        raise UsageError(
            f"only the last closed month, {last.period}, can be reopened: later months build on "
            "earlier ones"
        )
    return last


def reopening_kind(context: AppContext) -> proposals.ProposalKind:
    async def perform(proposal: Proposal, agree: proposals.Agree) -> None:
        async with context.database.writing() as connection:
            agreed = await agree(connection)
            made = await period_store.all_closings(connection)
            closed, newest = reopenable(made, proposal.subject), newest_link(made)
            reopening = closings.Reopening(
                period=closed.period,
                version=closed.version,
                at=max(context.clock.now(), newest[0] + TICK),
                by=agreed.who.name,
                second=agreed.second,
                reason=proposal.reason,
                before=newest[1] or "",
            )
            await period_store.add_reopening(connection, reopening)
            await operators.note_in_trail(
                connection,
                agreed.who,
                action="period_reopened",
                subject=closed.period,
                at=reopening.at,
                reason=proposal.reason,
                facts={"version": closed.version, "digest": reopening.digest, **agreed.facts},
            )

    return proposals.ProposalKind(
        name="reopen_period",
        title="Reopen a month",
        action="period_reopened",
        subject_state=_chains_state,
        perform=perform,
        for_good=True,
        where=proposals.shown_in("periods"),
    )
