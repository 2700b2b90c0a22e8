"""Closes a month: makes its report from the evidence, and stores it with everything it rests on.

    1 ask       check who asks, and that this month is the next
    2 look      make the month's report as of one instant
    3 refuse    return all reasons against closing at once
    4 digest    make digests of what became known since the closing before, by kind and day
    5 print     make the report in every format
    6 write     store the closing, its prints and the audit entry, in one transaction

If the rules let nobody close alone, step 6 makes a proposal; when it is approved, all steps are
taken anew. A process that is killed before the end has closed nothing.

Later it verifies that closed months still follow from the evidence that they were closed on:

    1 chain     the closing is what was written, and names the closing before it and a checkpoint of
                the sealed log
    2 prints    the stored bytes are those of the closing
    3 history   everything that was known then is there, unchanged
    4 figures   the report made again, as of then and by the policy of then, has the same figures.
                A month closed by an earlier version's rules may differ: how many is told

Each format is also printed again from the stored report. A format that would look different now is
named and is no fault: the stored bytes are shown.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, Final, Literal

from app.access import operator_store, operators, proposals
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.jobs import silent
from app.core.text import counted
from app.database.engine import Connection
from app.finance import match_rules, period_store, report_period
from app.finance.closed_periods import CLOSING_BASIS, calendar_of, month_in_books, rules_form
from app.finance.reports.render import REPORT_FORMATS, render
from app.orders import history_store
from app.receiving.caught_up import behind_s
from app.receiving.reverify import count_genuine
from app.sealing import log_store
from reconcile.instants import EARLIEST, TICK, Instant, format_instant, parse_instant
from reconcile.ledger.policy import Policy
from reconcile.periods import Month, month_named
from reconcile.reporting import closing as closings
from reconcile.reporting.report import PeriodReport, Scope
from reconcile.reporting.tables import report_document, report_of


def printed(report: PeriodReport) -> dict[str, bytes]:
    """Return the report's bytes by format. PDF is missing if its extra is not installed."""
    found: dict[str, bytes] = {}
    for form in REPORT_FORMATS:
        try:
            found[form] = render(report, form)
        except UsageError:
            continue
    return found


STILL_S: Final = 2.0
"""Seconds to wait before reading what was known a moment ago. An arrival is stored within
milliseconds, and its sender gives up on one that takes longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRequest:
    """Who wants to close what.

    as_of        the instant whose knowledge is closed; None: now
    margin_days  days after the month's end before which it is not closed; None: as set
    reason       why, for the trail, and for the second person
    still_s      seconds to wait if `as_of` is now
    """

    period: str
    by: str | None
    as_of: Instant | None = None
    margin_days: int | None = None
    reason: str = ""
    still_s: float = STILL_S


async def close_period(
    context: AppContext, request: CloseRequest, *, progress: report_period.Progress = silent
) -> closings.Closing | Proposal | tuple[closings.Blocker, ...]:
    """Close a month, or return all reasons against it. If the rules let nobody close alone, propose
    it.

    Raises UsageError for a month that is invalid, closed, or not the next, and for a person who may
    not close it.
    """
    needed = not await may_close_alone(context)
    if needed and not request.reason.strip():
        raise UsageError(
            f"closing a month takes two people here ({NOT_ALONE}): tell the second one why, with "
            '--reason "WHY"'
        )
    proposals.check_reason(request.reason, of="a closing", needed=False)
    month, before, report, blockers = await _looked(context, request, progress=progress)
    if blockers or report is None:
        return blockers
    async with context.database.writing() as connection:
        if not await _alone(connection):
            return await proposals.propose(
                connection,
                closing_kind(context),
                who=await operators.permitted(connection, by=request.by, action="period_closed"),
                now=context.clock.now(),
                because=NOT_ALONE,
                subject=month.name,
                sentence=f"Close {month.name}: its report is kept as it is then, and nothing of "
                "it changes any more.",
                given={"margin_days": str(_margin_days(context, request))}
                | ({} if request.as_of is None else {"as_of": format_instant(request.as_of)}),
                reason=request.reason,
            )
    return await _write(context, request, month, report, before=before, progress=progress)


NOT_ALONE: Final = "the rules in force let nobody close a month alone"


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
        as_of = proposal.given.get("as_of")
        request = CloseRequest(
            period=proposal.subject,
            by=operators.Proven(proposal.who),
            as_of=None if as_of is None else parse_instant(as_of),
            margin_days=int(proposal.given["margin_days"]),
            reason=proposal.reason,
            still_s=still_s,
        )
        month, before, report, blockers = await _looked(context, request, progress=silent)
        if blockers or report is None:
            reasons = " ".join(each.sentence for each in blockers)
            raise UsageError(f"{month.name} cannot be closed now. {reasons}")
        await _write(context, request, month, report, before=before, progress=silent, agree=agree)

    return proposals.ProposalKind(
        name="close_period",
        title="Close a month",
        action="period_closed",
        subject_state=_months_state,
        perform=perform,
        takes_long=True,
        for_good=True,
        where=proposals.shown_in("periods"),
        particulars={
            "as_of": "Closed as it was known at",
            "margin_days": "Days after the month's end before which it is not closed",
        },
    )


async def _months_state(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
    # It changes with the closing before it.
    before = next_in_order(await period_store.closed_periods(connection), month_named(subject))
    return "the first" if before is None else before.digest


async def against_closing(
    context: AppContext, request: CloseRequest, *, progress: report_period.Progress = silent
) -> tuple[closings.Blocker, ...]:
    """Return all reasons against closing the month, without writing. Raises as `close_period`."""
    return (await _looked(context, request, progress=progress))[-1]


async def _looked(
    context: AppContext, request: CloseRequest, *, progress: report_period.Progress
) -> tuple[Month, period_store.Closed | None, PeriodReport | None, tuple[closings.Blocker, ...]]:
    """Return the month, the closing before it, its report, and reasons.

    The report is None before the month's end, and over unread deliveries: the reasons that would
    be found in it are not known then.
    """
    month = await month_in_books(context, request.period)
    now = context.clock.now()
    as_of = now if request.as_of is None else request.as_of
    if as_of > now:
        raise UsageError("--as-of lies in the future: nothing is known of then")
    async with context.database.reading() as connection:  # 1
        await operators.permitted(connection, by=request.by, action="period_closed")
        before = next_in_order(await period_store.closed_periods(connection), month)
    early = tuple(closings.too_early(month, now=as_of, margin_days=_margin_days(context, request)))
    if as_of < month.end:
        return month, before, None, early
    if as_of > now - int(request.still_s * 1_000_000):
        await asyncio.sleep(request.still_s)
    if behind := await behind_s(context, as_of=as_of):
        return month, before, None, (*early, closings.unread(behind))
    report = await report_period.report_period(
        context, scope_of(context, month, as_of), progress=progress
    )  # 2
    genuine = await count_genuine(context, since=month.start, until=month.end)
    found = (*early, *closings.in_report(report), *closings.rejected(genuine))
    return month, before, report, found  # 3


OPEN_SHOWN: Final = 24
"""Open months that are shown: two years."""


async def months(context: AppContext) -> tuple[list[period_store.Closed], list[Month]]:
    """Return the closed months, the earliest first, and the open ones up to now.

    Open months begin at the one to close next, or at the first with a publication.
    """
    async with context.database.reading() as connection:
        closed = await period_store.closed_periods(connection)
        first = await period_store.first_published(connection)
        calendar = await calendar_of(context, connection)
    now = context.clock.now()
    if closed:
        month = calendar.month(month_named(closed[-1].period).following_name)
    elif first is not None:
        month = calendar.month_at(first)
    else:
        return closed, []
    found: list[Month] = []
    while month.start <= now and len(found) < OPEN_SHOWN:
        found.append(month)
        month = calendar.following(month)
    return closed, found


def next_in_order(closed: list[period_store.Closed], month: Month) -> period_store.Closed | None:
    """Return the closing before this one; None for the first.

    Raises UsageError if another month must be closed first: they are closed in order, without gaps.
    """
    if not closed:
        return None
    last = closed[-1]
    following = month_named(last.period).following_name
    if month.name < following:
        raise UsageError(f"{month.name} is closed, or lies before what is; the next is {following}")
    if month.name != following:
        raise UsageError(f"close {following} first: months are closed in order, without gaps")
    return last


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
    month: Month,
    report: PeriodReport,
    *,
    before: period_store.Closed | None,
    progress: report_period.Progress,
    agree: proposals.Agree | None = None,
) -> closings.Closing:
    rests = await _rests_on(context, report.scope.as_of, before=before, progress=progress)  # 4
    # After its evidence even if the clock stands still: the audit entry is no part of it.
    closed_at = max(context.clock.now(), report.scope.as_of + TICK)
    async with context.database.reading() as connection:
        closer = await operators.permitted(connection, by=request.by, action="period_closed")
    signed = replace(report.scope, closed_by=closer.name, closed_at=closed_at)
    report = replace(report, scope=signed)
    prints = await asyncio.to_thread(printed, report)  # 5
    async with context.database.writing() as connection:  # 6
        await operator_store.acting_alone(connection)
        agreed = None if agree is None else await agree(connection)
        if agreed is None:
            who = await operators.permitted(connection, by=request.by, action="period_closed")
            if not await _alone(connection):
                raise UsageError(f"{NOT_ALONE}, as of a moment ago: close {month.name} again")
        else:
            who = agreed.who
        if next_in_order(await period_store.closed_periods(connection), month) != before:
            raise UsageError(f"another month was closed in the meantime; close {month.name} again")
        closing = closings.Closing(
            **rests,
            month=month,
            as_of=report.scope.as_of,
            closed_at=closed_at,
            by=who.name,
            role=who.role,
            margin_days=_margin_days(context, request),
            policy=asdict(context.policy),
            program={"tallyhook": version("tallyhook"), "rules": rules_form(context.policy)},
            figures=closings.figures(report),
            adjusted=closings.adjusted_in(report.adjustments),
            report=report_document(report),
            prints=tuple(
                closings.Print(
                    format=form, sha256=hashlib.sha256(content).hexdigest(), size=len(content)
                )
                for form, content in sorted(prints.items())
            ),
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
    context: AppContext,
    as_of: Instant,
    *,
    before: period_store.Closed | None,
    progress: report_period.Progress,
) -> dict[str, Any]:
    known_after = EARLIEST if before is None else before.as_of
    async with context.database.reading() as connection:
        evidence = await history_store.history_digests(
            connection, after=known_after, until=as_of, progress=progress
        )
        head = await log_store.newest_head(connection)
    return {
        "known_after": known_after,
        "before": None if before is None else before.digest,
        "evidence": evidence,
        "checkpoint": None if head is None else {"size": head.size, "head": head.head.hex()},
    }


# --- verifying closed months ----------------------------------------------------------------------

Step = Literal["chain", "prints", "history", "figures"]

UNREADABLE: Final = (KeyError, TypeError, ValueError)
"""Errors of reading an invalid document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPeriods:
    """The result of one step on one month: `sentence` has it, or the first difference."""

    period: str
    step: Step
    passed: bool
    sentence: str

    def document(self) -> dict[str, Any]:
        return {
            "period": self.period,
            "step": self.step,
            "passed": self.passed,
            "sentence": self.sentence,
        }


async def verify_periods(
    context: AppContext, *, only: str | None, progress: report_period.Progress = silent
) -> AsyncIterator[VerifiedPeriods]:
    """Take every step on every closed month, or on one, the earliest first.

    If a month's closing is not what was written, its other steps are skipped. Raises NotFoundError
    for a month that is not closed.
    """
    async with context.database.reading() as connection:
        closed = await period_store.closed_periods(connection)
    if only is not None and only not in {each.period for each in closed}:
        raise NotFoundError(
            f"{only[:40]} is not closed; `tallyhook period list` shows which months are"
        )
    for place, each in enumerate(closed):
        if only not in (None, each.period):
            continue
        closing, found = await _chain(context, each, closed[place - 1] if place else None)
        yield found
        if closing is not None:
            yield await _prints(context, closing)
            yield await _history(context, closing, progress)
            yield await _figures(context, closing, progress)


async def _chain(
    context: AppContext, closed: period_store.Closed, before: period_store.Closed | None
) -> tuple[closings.Closing | None, VerifiedPeriods]:
    async with context.database.reading() as connection:
        text = await period_store.closing_text(connection, closed.period) or ""
    written = f"sha256:{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"
    expected = None if before is None else before.digest
    try:
        closing = closings.closing_of(json.loads(text))
    except UNREADABLE:
        closing = None
    sealed = True
    if closing is not None and closing.checkpoint is not None:
        async with context.database.reading() as connection:
            head = await log_store.head_of(connection, closing.checkpoint["size"])
        sealed = head is not None and head.head.hex() == closing.checkpoint["head"]
    if closing is None or written != closed.digest:
        sentence = "the closing is not what was written; its digest is another"
    elif closing.before != expected:
        sentence = f"it names the closing {closing.before} before it, and that is {expected}"
    elif not sealed:
        sentence = "it names a checkpoint that is not one of the sealed log"
    else:
        sentence = f"the closing is {written}"
        return closing, _verified(closed.period, "chain", None, sentence)
    return None, _verified(closed.period, "chain", sentence, "")


def _verified(period: str, step: Step, wrong: str | None, right: str) -> VerifiedPeriods:
    return VerifiedPeriods(period=period, step=step, passed=wrong is None, sentence=wrong or right)


async def _prints(context: AppContext, closing: closings.Closing) -> VerifiedPeriods:
    period = closing.month.name
    wrong = []
    async with context.database.reading() as connection:
        for each in closing.prints:
            kept = await period_store.print_of(connection, period, each.format)
            if kept is None or hashlib.sha256(kept).hexdigest() != each.sha256:
                wrong.append(each.format)
    if wrong:
        sentence = f"what was kept of {', '.join(wrong)} is not what was printed at closing"
        return _verified(period, "prints", sentence, "")
    kept_forms = ", ".join(each.format for each in closing.prints)
    try:
        now = printed(report_of(dict(closing.report)))
    except UNREADABLE:
        right = "this version would print none of them anew"
        return _verified(period, "prints", None, f"{kept_forms} are as at closing; {right}")
    other = [
        each.format
        for each in closing.prints
        if each.format in now and hashlib.sha256(now[each.format]).hexdigest() != each.sha256
    ]
    right = ", and this version prints the same"
    if other:
        right = f"; this version would print {', '.join(other)} differently"
    return _verified(period, "prints", None, f"{kept_forms} are as at closing{right}")


async def _history(
    context: AppContext, closing: closings.Closing, progress: report_period.Progress
) -> VerifiedPeriods:
    async with context.database.reading() as connection:
        now = await history_store.history_digests(
            connection, after=closing.known_after, until=closing.as_of, progress=progress
        )
    rows = sum(each.count for each in now)
    return _verified(
        closing.month.name,
        "history",
        closings.first_difference(closing.evidence, now),
        counted(rows, "row of evidence is as it was", "rows of evidence are as they were"),
    )


async def _figures(
    context: AppContext, closing: closings.Closing, progress: report_period.Progress
) -> VerifiedPeriods:
    then = replace(context, policy=Policy(**closing.policy))
    report = await report_period.report_period(
        then, scope_of(context, closing.month, closing.as_of), progress=progress
    )
    now = closings.figures(report)
    changes = closings.difference(closing.figures, now)
    wrong = None
    if changes:
        first = changes[0]
        line = " ".join(part for part in (first.currency, first.line, first.what) if part)
        wrong = (
            f"{first.table}, {line}: the evidence gives {first.count:+,} in number and "
            f"{first.sum:+,} in minor units beyond what was closed"
        )
    if wrong is None and closings.adjusted_in(report.adjustments) != closing.adjusted:
        wrong = "the adjustments to months before are not those that follow from the evidence"
    right = f"{len(now):,} figures follow from the evidence"
    by, of_now = closing.program["rules"], rules_form(then.policy)
    if wrong is not None and by != of_now:
        # A month stays as it was closed; later months get what an upgrade makes of its evidence.
        wrong = None
        right = (
            f"closed by the rules {by} of an earlier version; by those of now ({of_now}) "
            f"{counted(len(changes), 'figure is', 'figures are')} otherwise, which the report of "
            "the open month gives as adjustments"
        )
    return _verified(closing.month.name, "figures", wrong, right)
