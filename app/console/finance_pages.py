"""Pages for runs, months, reports and the bank. Actions start a run, close a month or open a month
again."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import tzinfo
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from app.access.proposal import Proposal
from app.console.pages import download
from app.console.proposals_pages import proposal_shown, proposed, waiting_about
from app.console.view import PROPOSE, Act, ActionResult, Document, Field, Form, View, stated
from app.console.words import BANK_PLACES, address
from app.context.context import AppContext
from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.jobs import job_document
from app.core.schedule import schedule_entries
from app.core.text import counted
from app.core.zones import local_text
from app.finance import (
    bank_match,
    close_period,
    closed_periods,
    placed_rows,
    reconcile_period,
    reconcile_rows,
    scheduled,
    trail,
    trends,
    worklist,
)
from app.finance.break_acts import finished_run, finished_runs
from app.finance.report_period import report_in
from app.finance.reports import journal
from app.finance.reports.journal_forms import JOURNAL_FORMATS, JOURNAL_FORMS, JournalFormat
from app.finance.reports.render import REPORT_FORMATS, ReportFormat
from reconcile.instants import DAY, Instant, format_instant, format_known
from reconcile.matching.control import BUCKETS, SIDES, Bucket, Side
from reconcile.periods import Calendar, Month
from reconcile.reporting import closing as closings
from reconcile.reporting.report import Scope

MEDIA: Final[dict[ReportFormat, tuple[str, str, str]]] = {
    "html": ("html", "text/html", "a page for people"),
    "pdf": ("pdf", "application/pdf", "for print"),
    "xlsx": (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "a workbook",
    ),
    "csv": ("csv", "text/csv", "for a spreadsheet"),
    "json": ("json", "application/json", "for programs"),
    "table": ("txt", "text/plain", "plain text"),
}

CHECKS: Final[Mapping[closings.BlockerCode, tuple[str | None, str]]] = {
    "too_early": (None, "Wait until then."),
    "unread": (None, "Check that the service runs; /readyz says when it is ready."),
    "coverage": (
        "/coverage",
        "Import the file of the other days, or declare which days the imported files cover.",
    ),
    "balances": (
        "/imports?kind=bank",
        "Ask the bank for the statement again, withdraw its import, and import the new one.",
    ),
    "unasked": ("/setup", "Check that the service runs and reaches the provider, then look again."),
    "unreadable": (
        "/deliveries?verdict=unreadable",
        "Correct the profile of the source, or judge each message.",
    ),
    "not_kept": ("/imports", "Import the statements of its sources, which show every payment."),
    "gap": (
        "/imports",
        "Import the statements of that time, which show every payment, and let providers send its "
        "events again.",
    ),
    "unallocated": ("/unallocated", "Assign each to its order, or dismiss it."),
    "not_ours": ("/deliveries?verdict=not_ours", "Check that none of them is yours."),
    "rejected": ("/do/reverify", "Ask support or an admin to judge them again."),
    "pending": (
        "/orders?outcome=pending",
        "Wait for their deadline, or for the provider's final answer.",
    ),
    "unsettled": (
        "/breaks?cause=not_settled",
        "Import the statement that settles them, or ask the provider, and accept the break of "
        "each with a reason.",
    ),
    "breaks": (
        "/breaks",
        "Correct each difference at its source, match it by hand, or accept it with a reason. If "
        "the list does not show it, start a run first.",
    ),
    "ties": (
        "/runs",
        "Start a run, and let an admin check the database (tallyhook db check); do not close the "
        "month before the cause is known.",
    ),
}


def day(text: str, name: str, *, zone: tzinfo, after: bool = False) -> Instant | None:
    """Return the start of the day that `text` names; None if empty.

    name   name of the form field, for the error
    after  whether to return the start of the next day instead

    Raises UsageError for any other text.
    """
    if not text.strip():
        return None
    try:
        return Calendar(zone).day(text.strip())[1 if after else 0]
    except ValueError:
        raise UsageError(f"{name}: write a day such as 2026-10-01") from None


async def runs_document(view: View) -> Document:
    """Return the content of `GET /runs?before=`: the finished reconciliation runs."""
    before = view.number("before")
    found = await finished_runs(view.context, limit=view.rows + 1, before=before)
    newest = await worklist.newest_run(view.context)
    return {
        "before": before,
        "next": found[view.rows - 1].number if len(found) > view.rows else None,
        "runs": [reconcile_period.listed_run(each) for each in found[: view.rows]],
        "newest": newest and newest.number,
        "job": job_document(view.console.jobs.newest("run")),
    }


async def run_page_document(view: View) -> Document:
    """Return a run's control totals for `GET /runs/{number}`."""
    if not (view.subject.isascii() and view.subject.isdigit() and len(view.subject) < 10):
        raise NotFoundError(
            "the address must end with the number of a run; the list of runs shows the numbers"
        )
    found = await reconcile_period.ran(
        view.context, await finished_run(view.context, int(view.subject))
    )
    newest = await worklist.newest_run(view.context)
    broken = [each for each in found.control.ties() if not each.holds]
    return reconcile_period.run_document(found) | {
        "broken_sides": [each.sides for each in broken],
        "broken_sums": any(not each.of_wallet for each in broken),
        "breaks": found.breaks,
        "newest": newest is not None and found.number == newest.number,
        "rules_named": "of a file"
        if found.rules is None
        else f"number {found.rules}"
        if found.rules
        else "those built in",
    }


async def periods_document(view: View) -> Document:
    """Return the content of `GET /periods`: the closed months and the months still open."""
    _, left = await close_period.months(view.context)
    margin = view.context.settings.closing_margin_days
    made = await closed_periods.list_closed(view.context)
    return {
        "closed": [each.document() for each in reversed(made)],
        "journals": _journals(),
        "open": [
            {"period": each.name, "closable_from": format_instant(Instant(each.end + margin * DAY))}
            for each in left
        ],
        "margin_days": margin,
    }


def _journals() -> list[dict[str, str]]:
    return [{"form": form, "as": journal.print_name(form)} for form in JOURNAL_FORMATS]


async def month_of(context: AppContext, name: str) -> Month:
    """Return a month, closed or open. Raise NotFoundError for an unknown name."""
    try:
        return await closed_periods.month_in_books(context, name)
    except UsageError as error:
        raise NotFoundError(str(error)) from None


async def period_document(view: View) -> Document:
    """Return a month for `GET /periods/{month}`. Raises UsageError after a failed job."""
    month = await month_of(view.context, view.subject)
    job = view.console.jobs.newest("close", month.name)
    under_way = job is not None and job.ended is None
    document = await _closing(view, month, under_way=under_way)
    proposal = await waiting_about(view, month.name)
    given = {} if proposal is None else (await proposal_shown(view, proposal["id"])).given
    made = await closed_periods.list_closed(view.context)
    return document | {
        "job": job_document(job),
        "proposal": proposal,
        "proposed_as_of": given.get("as_of"),
        "versions": [each.document() for each in made if each.period == month.name],
        "journals": _journals(),
        "reopenable": document["closed_at"] is not None
        and month.name == [each for each in made if each.stands_at(None)][-1].period,
    }


async def _closing(view: View, month: Month, *, under_way: bool) -> Document:
    closed, left = await close_period.months(view.context)
    done = next((each for each in closed if each.period == month.name), None)
    document: dict[str, Any] = {
        "period": month.name,
        "closed_by": None if done is None else done.by,
        "approved_by": None if done is None else done.second,
        "closed_at": None if done is None else format_instant(done.closed_at),
        "version": None if done is None else done.version,
        "digest": None if done is None else done.digest,
        "first": left[0].name if left else None,
        "waits_for": left[0].name if closed and left and left[0].name < month.name else None,
        "looked_since": None,
        "looked_at": None,
    }
    if done is not None or under_way or document["waits_for"]:
        return document | {"over": True, "checks": []}
    asked = close_period.CloseRequest(period=month.name, by=view.person.name, still_s=0)
    look = partial(view.console.work, close_period.against_closing, asked)
    seen = await view.shared_job("look", month.name, work=look)
    over = month.end <= view.context.clock.now()
    return document | {
        "looked_since": format_instant(seen.began),
        "looked_at": format_known(seen.ended),
        "over": over,
        "checks": []
        if seen.ended is None
        else _checks(seen.result, over=over, may_judge=view.person.may("deliveries_reverified")),
    }


def _checks(blockers: Any, *, over: bool, may_judge: bool) -> list[dict[str, Any]]:
    rows = []
    unread = any(each.code == "unread" for each in blockers)  # other conditions were not checked
    for code, (where, do) in CHECKS.items():
        found = [each for each in blockers if each.code == code]
        rows += [
            {
                "check": code,
                "line": each.line,
                "state": "failed",
                "sentence": each.sentence,
                "do": do,
                "where": f"/breaks?cause={each.cause}"
                if each.cause
                else "/deliveries"
                if code == "rejected" and not may_judge
                else where,
                "may_be_excepted": code not in closings.UNCONDITIONAL,
            }
            for each in found
        ]
        if not found and (code == "too_early" or (over and not unread)):
            holds = {"check": code, "line": code, "state": "passed", "may_be_excepted": False}
            rows.append(holds | {"sentence": closings.CONDITIONS[code], "do": "", "where": None})
    return rows


def _shown_blockers(view: View, month: str) -> tuple[closings.Blocker, ...]:
    job = view.console.jobs.newest("look", month)
    return () if job is None or job.result is None else tuple(job.result)


async def reports_document(view: View) -> Document:
    closed, left = await close_period.months(view.context)
    return {
        "reports": [{"period": each.name, "closed": False} for each in reversed(left)]
        + [{"period": each.period, "closed": True} for each in reversed(closed)],
        "forms": [
            {"form": form, "ending": ending, "for": what}
            for form, (ending, _, what) in MEDIA.items()
        ],
        "schedule": await scheduled.schedule_document(
            view.context, schedule_entries(view.context.settings.schedule)
        ),
    }


async def asked_scope(
    view: View, *, as_of: Instant | None = None
) -> tuple[str, Scope, Month | None]:
    """Return the requested period as name, scope and month.

    The month is None for any other period.
    """
    name, known = view.subject, as_of or view.context.clock.now()
    if name != "period":
        month = await month_of(view.context, name)
        return month.name, close_period.scope_of(view.context, month, known), month
    if not (view.word("from") and view.word("to")):
        raise UsageError("choose the first and the last day of the report")
    zone = view.context.calendar_zone
    since = day(view.needed("from"), "from", zone=zone)
    until = day(view.needed("to"), "to", zone=zone, after=True)
    assert since is not None
    assert until is not None
    scope = Scope(
        start=since,
        end=until,
        as_of=known,
        basis=closed_periods.CLOSING_BASIS,
        environment=view.context.database.environment or "",
    )
    name = f"{view.needed('from')}-{view.needed('to')}"
    return name, await closed_periods.on_the_books(view.context, scope), None


async def trends_page_document(view: View) -> Document:
    """Return the figures of twelve months for `GET /trends`.

    Raises UsageError if the background job failed.
    """
    seen = await view.shared_job("trends", "", work=partial(view.console.work, trends.trends))
    return {
        "looked_since": format_instant(seen.began),
        "looked_at": format_known(seen.ended),
        **(
            {"as_of": None, "months": [], "settling": [], "fees": []}
            if seen.ended is None
            else trends.trends_document(seen.result)
        ),
    }


async def _made(view: View, make: Callable[..., Awaitable[bytes]], *given: Any) -> bytes:
    try:
        return await view.console.work(make, *given)
    except ConfigurationError as error:
        raise UsageError("; ".join(error.problems)) from None


async def report_download(view: View) -> Response:
    """Return a report's file for `GET /reports/{month}` or `GET /reports/period`."""
    kept: dict[str, JournalFormat] = {journal.print_name(form): form for form in JOURNAL_FORMATS}
    entries = view.word("as")
    if entries in kept:
        return await _journal_download(view, kept[entries])
    form: ReportFormat = view.choice("as", REPORT_FORMATS) or "html"
    as_of, version = view.instant("as_of"), view.number("version")
    name, scope, month = await asked_scope(view, as_of=as_of)
    try:
        if month is None or as_of is not None:
            raise NotFoundError("only whole months can be closed")
        content = await closed_periods.closed_report(
            view.context, month.name, form, version=version
        )
    except NotFoundError:
        if version is not None:
            raise
        content = await _made(view, report_in, scope, form)
    ending, media, _ = MEDIA[form]
    return download(content, f"report-{name}.{ending}", media)


async def _journal_download(view: View, form: JournalFormat) -> Response:
    version = view.number("version")
    written = journal.closed_journal(view.context, view.subject, form, version=version)
    content = b"".join([part async for part in written])
    kind = JOURNAL_FORMS[form]
    return download(content, f"journal-{view.subject}.{kind.ending}", kind.media)


async def journal_document(view: View) -> Document | Response:
    """Return a journal for `GET /journals/{month}` or `GET /journals/period`.

    Raises UsageError if the background job failed.
    """
    form: JournalFormat | None = view.choice("as", JOURNAL_FORMATS)
    name, scope, month = await asked_scope(view)
    if form is not None:
        try:
            if month is None:
                raise NotFoundError("only whole months can be closed")
            return await _journal_download(view, form)
        except NotFoundError:
            content = await _made(view, journal.journal_in, scope, form)
        kind = JOURNAL_FORMS[form]
        return download(content, f"journal-{name}.{kind.ending}", kind.media)
    account, currency = view.word("account"), view.word("currency")
    make = partial(
        view.console.work,
        journal.journal_page,
        scope,
        account=account,
        currency=currency,
        most=POSTINGS,
    )
    seen = await view.shared_job("journal", f"{name} {account} {currency}", work=make)
    empty = {"about": "", "count": 0, "balances": [], "own": None, "postings": [], "more": 0}
    return {
        "period": name,
        "month": month is not None,
        "filters": {
            "account": account,
            "currency": currency,
            "from": view.word("from"),
            "to": view.word("to"),
        },
        "looked_since": format_instant(seen.began),
        "looked_at": format_known(seen.ended),
        **(empty if seen.ended is None else seen.result),
        "forms": [
            {"form": each, "name": kind.title, "for": kind.purpose}
            for each, kind in JOURNAL_FORMS.items()
        ],
    }


POSTINGS: Final = 200
"""Maximum number of an account's postings on one page."""


async def bank_document(view: View) -> Document:
    """Return the bank lines for `GET /bank`, newest first.

    Raises UsageError if the background job failed.
    """
    stands, line = view.choice("stands", tuple(BANK_PLACES)), view.word("line")
    skip = view.number("skip") or 0
    match = partial(
        view.console.work,
        bank_match.booked_page,
        stands=stands,
        line=line,
        skip=skip,
        limit=view.rows,
    )
    seen = await view.shared_job("bank", f"{stands} {skip} {view.rows} {line}", work=match)
    if seen.ended is None and view.format == "csv":
        raise UsageError(
            "payouts are still being matched with the bank: try the download again in a minute"
        )
    found = (
        bank_match.BookedPage(lines=[], counts={}, more=False)
        if seen.ended is None
        else seen.result
    )
    return {
        "filters": {"stands": stands, "line": line},
        "looked_since": format_instant(seen.began),
        "looked_at": format_known(seen.ended),
        "places": {place: found.counts[place] for place in BANK_PLACES if found.counts.get(place)},
        "lines": [each.whole_document() for each in found.lines],
        "skip": skip,
        "next": skip + view.rows if found.more else None,
        "imported": bool(found.counts),
    }


async def rows_document(view: View) -> Document:
    """Return the rows of a run's control total for `GET /rows/{run}`."""
    number = int(view.subject) if view.subject.isdigit() and len(view.subject) < 19 else 0
    side: Side = stated("side", view.choice("side", SIDES))
    bucket: Bucket = stated("bucket", view.choice("bucket", BUCKETS))
    currency, skip = view.word("currency") or "", view.number("skip") or 0
    await finished_run(view.context, number)
    work = partial(
        view.console.work, placed_rows.placed_rows, number,
        side=side, bucket=bucket, currency=currency,
    )  # fmt: skip
    seen = await view.shared_job("bank", f"rows {number} {side} {bucket} {currency}", work=work)
    rows = [] if seen.ended is None else seen.result
    return {
        "run": number,
        "filters": {"side": side, "bucket": bucket, "currency": currency},
        "looked_since": format_instant(seen.began),
        "looked_at": format_known(seen.ended),
        "found": len(rows),
        "most": placed_rows.MOST,
        "rows": rows[skip : skip + view.rows],
        "skip": skip,
        "next": skip + view.rows if len(rows) > skip + view.rows else None,
    }


async def trail_document(view: View) -> Document:
    """Return everything connected with an order, payment, payout or line."""
    work = partial(view.console.work, trail.trail_document, view.subject)
    seen = await view.shared_job("bank", f"trail {view.subject}", work=work)
    kinds = ("orders", "book", "statement", "payouts", "bank", "breaks")
    empty: Document = {kind: [] for kind in kinds} | {"more": False}
    return {
        "name": view.subject,
        "looked_since": format_instant(seen.began),
        "looked_at": format_known(seen.ended),
        **(empty if seen.ended is None else seen.result),
    }


# --- actions --------------------------------------------------------------------------------------


async def ask_close(view: View) -> Form:
    month = (await month_of(view.context, view.needed("month"))).name
    alone = await close_period.may_close_alone(view.context)
    closed, left = await close_period.months(view.context)
    back = address("periods", month)
    if any(each.period == month for each in closed):
        line = "This month is closed: there is nothing to do."
        return Form(month, back, line, ready=False)
    earlier = [each.name for each in left if each.name < month]
    red = _shown_blockers(view, month)
    if any(each.code in closings.UNCONDITIONAL for each in red):
        lines = tuple(each.sentence for each in red if each.code in closings.UNCONDITIONAL)
        return Form(month, back, *lines, ready=False)
    alone, zone = alone and not red, view.context.calendar_zone
    fields = [
        field
        for place, each in enumerate(red)
        for field in (
            Field(f"line-{place}", "", kind="hidden", value=each.line),
            Field(
                f"except-{place}",
                f"Why you close although this is not met: {local_text(each.sentence, zone)}",
                hint="The report prints your reason as an exception.",
            ),
        )
    ]
    return Form(
        month,
        back,
        f"The report and the journal of {month} are stored as they are now, together with the "
        "data behind them. Later findings are reported and posted in later months.",
        *(
            (
                f"No month is closed yet. Once {month} is, none before it can be closed any "
                f"more: {earlier[0]} is the first that is open.",
            )
            if earlier and not closed
            else ()
        ),
        "All conditions are checked once more, which takes some minutes with many orders. You "
        "may leave the page: the month's page shows the progress.",
        "You close it in your name."
        if alone
        else "Nobody makes an exception alone: you propose it, and it is closed when another "
        "operator approves it."
        if red
        else "The rules in force let nobody close a month alone: you propose it, and it is "
        "closed when another operator approves it.",
        password=True,
        fields=tuple(fields),
        button="" if alone else PROPOSE,
    )


async def do_close(view: View, reason: str) -> str | ActionResult:
    """Close the month, or propose to close the month.

    Raises UsageError with all reasons against closing.
    """
    month = (await month_of(view.context, view.needed("month"))).name
    exceptions = {
        line: view.given.get(f"except-{name.removeprefix('line-')}", "").strip()
        for name, line in view.given.items()
        if name.startswith("line-")
    }
    asked = close_period.CloseRequest(
        period=month, by=view.person.name, reason=reason, exceptions=exceptions
    )

    async def work() -> Proposal | None:
        done = await view.console.work(close_period.close_period, asked)
        if isinstance(done, tuple):
            raise UsageError(" ".join(each.sentence for each in done))
        return done if isinstance(done, Proposal) else None

    job = await view.job("close", month, work=work)
    return address("periods", month) if job.result is None else proposed(job.result)


async def ask_reopen(view: View) -> Form:
    month = (await month_of(view.context, view.needed("month"))).name
    made = await closed_periods.list_closed(view.context)
    try:
        closed = close_period.reopenable(made, month)
    except UsageError as error:
        return Form(month, address("periods", month), f"{error}.", ready=False)
    return Form(
        month,
        address("periods", month),
        f"{closed.by} closed it at {format_instant(closed.closed_at)}. Its report and journal "
        f"stay as version {closed.version}; it is closed again as the next version, with what "
        "is known then.",
        "You propose it, and it is reopened when another operator approves it.",
        password=True,
    )


async def do_reopen(view: View, reason: str) -> ActionResult:
    month = (await month_of(view.context, view.needed("month"))).name
    return proposed(
        await close_period.reopen_period(view.context, month, by=view.person.name, reason=reason)
    )


async def ask_run(view: View) -> Form:
    rows = await reconcile_rows.rows_ahead(view.context, as_of=None)
    return Form(
        "a run",
        "/runs",
        "A run matches orders with order books and statements, and finds every difference.",
        "Without days, a run covers everything: it opens new breaks, and closes those that no "
        "longer differ. With days, the run is read-only and changes no break.",
        f"It reads about {counted(rows, 'row')}, in a process of its own: you may leave the page, "
        "and the list of runs shows the progress.",
        fields=(
            Field(
                "since",
                f"From ({view.context.calendar_zone})",
                hint="A day such as 2026-10-01, or nothing.",
                required=False,
            ),
            Field(
                "until",
                "To, that day included",
                hint="A day such as 2026-10-31, or nothing.",
                required=False,
            ),
        ),
    )


async def do_run(view: View, reason: str) -> str:
    zone = view.context.calendar_zone
    asked = reconcile_period.RunRequest(
        since=day(view.given.get("since", ""), "From", zone=zone),
        until=day(view.given.get("until", ""), "To", zone=zone, after=True),
    )
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise UsageError("the first day must not lie after the last one")
    by = view.person.name
    work = partial(view.console.work, reconcile_period.reconcile_for, asked, by=by, reason=reason)
    await view.job("run", "run", work=work)  # only one closing at a time
    return "/runs"


ACTS: Final = (
    Act(
        "Start a run",
        "reconciled",
        ask_run,
        do_run,
        button="Run it now",
        done="The run was started; this page shows its result.",
    ),
    Act("Close a month", "period_closed", ask_close, do_close),
    Act("Reopen a month", "period_reopened", ask_reopen, do_reopen, button=PROPOSE),
)
