"""Pages of runs, months, reports and the bank: what was reconciled, what may be closed, downloads,
and what the bank booked; and starting a run, trying rules, closing a month.
"""

from datetime import tzinfo
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from app.access.proposal import Proposal
from app.console.proposals_pages import proposed, waiting_about
from app.console.view import PROPOSE, ROWS, ActionResult, Asked, Document, Field, View
from app.console.words import BANK_PLACES, address
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.jobs import Job, job_document
from app.core.schedule import schedule_entries
from app.core.text import counted
from app.finance import (
    bank_match,
    close_period,
    closed_periods,
    match_rules,
    reconcile_period,
    reconcile_rows,
    scheduled,
    worklist,
)
from app.finance.break_acts import finished_run, finished_runs
from app.finance.report_period import report_in
from app.finance.reports.render import REPORT_FORMATS, ReportFormat
from reconcile.instants import DAY, Instant, format_instant, format_known
from reconcile.periods import Calendar, Month
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
"""Of each form of a report: how its file's name ends, its type, and what it is for."""

CHECKS: Final = {
    "too_early": ("The month and the days after it are over.", None, "Wait until then."),
    "ties": (
        "Every sum of its report ties.",
        "/runs",
        "Start a run, and let an admin check the database (tallyhook db check); do not close "
        "before it is understood.",
    ),
    "breaks": (
        "No break of it must be decided first. Others may stay open: the report lists them.",
        "/breaks",
        "Put each right at its source, match it by hand, or accept it with a reason; start a run "
        "first if the list does not show it.",
    ),
    "pending": (
        "No order of it is pending.",
        "/orders?outcome=pending",
        "Wait for their deadline, or for the provider's word.",
    ),
    "rejected": (
        "No refused delivery of it would be accepted now.",
        "/do/reverify",
        "Support or an admin judges them again.",
    ),
}
"""What must be so before a month is closed, where it is put right, and what to do there."""


def day(text: str, name: str, *, zone: tzinfo, after: bool = False) -> Instant | None:
    """The beginning of a day in the zone, or of the one after it; None for no text. Raises
    UsageError for what is no day."""
    if not text.strip():
        return None
    try:
        return Calendar(zone).day(text.strip())[1 if after else 0]
    except ValueError:
        raise UsageError(f"{name}: write a day such as 2026-10-01") from None


async def runs_document(view: View) -> Document:
    """GET /runs?before="""
    before = view.number("before")
    found = await finished_runs(view.context, limit=ROWS + 1, before=before)
    newest = await worklist.newest_run(view.context)
    return {
        "before": before,
        "next": found[ROWS - 1].number if len(found) > ROWS else None,
        "runs": [reconcile_period.listed_run(each) for each in found[:ROWS]],
        "newest": None if newest is None else newest.number,
        "job": job_document(view.console.jobs.newest("run")),
    }


async def run_page_document(view: View) -> Document:
    """GET /runs/{number}: a run's control totals, as the command shows them."""
    if not (view.subject.isascii() and view.subject.isdigit() and len(view.subject) < 10):
        raise NotFoundError("a run has a number; the list of runs shows them")
    found = await reconcile_period.ran(
        view.context, await finished_run(view.context, int(view.subject))
    )
    newest = await worklist.newest_run(view.context)
    broken = [each.sides for each in found.control.ties() if not each.holds]
    document = reconcile_period.run_document(found) | {
        "broken_sides": broken,
        "breaks": found.breaks,
        "newest": newest is not None and found.number == newest.number,
    }
    return document | {"rules_named": _rules_named(found.rules)}


def _rules_named(rules: int | None) -> str:
    if rules is None:
        return "of a file"
    return f"number {rules}" if rules else "those built in"


async def tried_as(view: View, rules: str) -> str:
    """A preview's mark: the number of the rules that are in force now, and those that are tried."""
    saved = await match_rules.current_rules(view.context)
    return f"{0 if saved is None else saved.number} {rules}"


def rules_tried(job: Job) -> str:
    """The rules of a preview."""
    return job.mark.partition(" ")[2]


def preview_of(view: View, name: str) -> Job:
    """A preview. Raises NotFoundError for one that is kept no longer."""
    job = view.console.jobs.job(name)
    if job is None or job.kind != "preview":
        raise NotFoundError("this preview is kept no longer: try the rules again")
    return job


async def preview_document(view: View) -> Document:
    """GET /previews/{job}: what rules that were tried would change."""
    job = preview_of(view, view.subject)
    result = job.result or {"as_of": None, "totals": [], "changes": [], "not_told": 0}
    changes = [
        {"effect": each["effect"], **(each["after"] or each["before"])}
        for each in result["changes"][:ROWS]
    ]
    return {
        "preview": job.name,
        "job": job_document(job),
        "rules": rules_tried(job),
        "as_of": result["as_of"],
        "totals": result["totals"],
        "changes": changes,
        "not_told": result["not_told"] + len(result["changes"]) - len(changes),
    }


async def periods_document(view: View) -> Document:
    """GET /periods"""
    closed, left = await close_period.months(view.context)
    margin = view.context.settings.closing_margin_days
    return {
        "closed": [
            {
                "period": each.period,
                "as_of": format_instant(each.as_of),
                "closed_at": format_instant(each.closed_at),
                "closed_by": each.by,
                "digest": each.digest,
            }
            for each in reversed(closed)
        ],
        "open": [
            {"period": each.name, "closable_from": format_instant(Instant(each.end + margin * DAY))}
            for each in left
        ],
        "margin_days": margin,
    }


async def month_of(context: AppContext, name: str) -> Month:
    """The month of this name, as it was closed or is counted now. Raises NotFoundError for what is
    none."""
    try:
        return await closed_periods.month_in_books(context, name)
    except UsageError as error:
        raise NotFoundError(str(error)) from None


async def period_document(view: View) -> Document:
    """GET /periods/{month}: what is against closing it, which a job looks for: as closing does, it
    folds every order. Of one that waits for an earlier one, which that is. Raises UsageError where
    the look came to nothing."""
    month = await month_of(view.context, view.subject)
    job = view.console.jobs.newest("close", month.name)
    document = await _closing(view, month, under_way=job is not None and job.ended is None)
    return document | {"job": job_document(job), "proposal": await waiting_about(view, month.name)}


async def _closing(view: View, month: Month, *, under_way: bool) -> Document:
    """What is against closing a month; nothing is looked at while it is being closed."""
    closed, left = await close_period.months(view.context)
    done = next((each for each in closed if each.period == month.name), None)
    document: dict[str, Any] = {
        "period": month.name,
        "closed_by": None if done is None else done.by,
        "closed_at": None if done is None else format_instant(done.closed_at),
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
    """One row a condition that holds, or a reason against it. may_judge: whether who looks may
    judge refused deliveries again; others are led to the list of them."""
    rows = []
    for code, (sentence, where, do) in CHECKS.items():
        found = [each for each in blockers if each.code == code]
        rows += [
            {
                "check": code,
                "state": "failed",
                "sentence": each.sentence,
                "do": do,
                "where": f"/breaks?cause={each.cause}"
                if each.cause
                else "/deliveries"
                if code == "rejected" and not may_judge
                else where,
            }
            for each in found
        ]
        if not found and (over or code == "too_early"):
            rows.append(
                {"check": code, "state": "passed", "sentence": sentence, "do": "", "where": None}
            )
    return rows


async def reports_document(view: View) -> Document:
    """GET /reports"""
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


async def report_download(view: View) -> Response:
    """GET /reports/{month}?as= and /reports/period?from=&to=&as=: one file. Of a closed month it is
    what was closed, byte for byte; any other is made in a process of its own."""
    work = view.console.work
    chosen = view.choice("as", REPORT_FORMATS) or "html"
    form = next(each for each in REPORT_FORMATS if each == chosen)
    name, content = view.subject, b""
    now = view.context.clock.now()
    if name == "period":
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
            as_of=now,
            basis=closed_periods.CLOSING_BASIS,
            environment=view.context.database.environment or "",
        )
        name = f"{view.needed('from')}-{view.needed('to')}"
        content = await work(
            report_in, await closed_periods.on_the_books(view.context, scope), form
        )
    else:
        month = await month_of(view.context, name)
        try:
            content = await closed_periods.closed_report(view.context, month.name, form)
        except NotFoundError:
            content = await work(report_in, close_period.scope_of(view.context, month, now), form)
    ending, media, _ = MEDIA[form]
    return Response(
        content,
        media_type=media,
        headers={"Content-Disposition": f'attachment; filename="report-{name}.{ending}"'},
    )


async def bank_document(view: View) -> Document:
    """GET /bank?stands=&line=&skip=: the newest lines first, of one place, or the one line, where
    that is asked for. A job matches all of them. Raises UsageError where they cannot be matched."""
    stands, line = view.choice("stands", tuple(BANK_PLACES)), view.word("line")
    skip = view.number("skip") or 0
    match = partial(
        view.console.work, bank_match.booked_page, stands=stands, line=line, skip=skip, limit=ROWS
    )
    seen = await view.shared_job("bank", f"{stands} {skip} {line}", work=match)
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
        "lines": [each.document() for each in found.lines],
        "skip": skip,
        "next": skip + ROWS if found.more else None,
        "imported": bool(found.counts),
    }


# --- what is done from them -----------------------------------------------------------------------


async def ask_close(view: View) -> Asked:
    """What closing does, and whether one person may."""
    month = (await month_of(view.context, view.needed("month"))).name
    alone = await close_period.may_close_alone(view.context)
    closed, left = await close_period.months(view.context)
    back = address("periods", month)
    if any(each.period == month for each in closed):
        line = "It is closed: there is nothing to do."
        return Asked(subject=month, lines=(line,), back=back, ready=False)
    earlier = [each.name for each in left if each.name < month]
    return Asked(
        subject=month,
        lines=(
            f"The report of {month} is kept as it is now, with everything it rests on. What is "
            "learned later stands in the reports of later months. It cannot be taken back.",
            *(
                (
                    f"No month is closed yet. Once {month} is, none before it can be closed any "
                    f"more: {earlier[0]} is the first that is open.",
                )
                if earlier and not closed
                else ()
            ),
            "Everything that is against it is looked for once more, which takes some minutes with "
            "many orders: you may leave the page, and the month says how it goes.",
            "You close it in your name."
            if alone
            else "The rules in force let nobody close a month alone: you propose it, and it is "
            "closed when another operator approves it.",
        ),
        back=back,
        password=True,
        button="" if alone else PROPOSE,
    )


async def do_close(view: View, reason: str) -> str | ActionResult:
    """Close the month, or propose that, and wait a little. Raises UsageError with everything that
    is against it."""
    month = (await month_of(view.context, view.needed("month"))).name
    jobs, by = view.console.jobs, view.person.name
    asked = close_period.CloseRequest(period=month, by=by, reason=reason)

    async def work() -> Proposal | None:
        done = await view.console.work(close_period.close_period, asked)
        if isinstance(done, tuple):
            raise UsageError(" ".join(each.sentence for each in done))
        return done if isinstance(done, Proposal) else None

    job = jobs.begin("close", month, by=by, work=work)
    await jobs.wait(job)
    return address("periods", month) if job.result is None else proposed(job.result)


async def ask_run(view: View) -> Asked:
    """What a run does, and of what time."""
    rows = await reconcile_rows.rows_ahead(view.context, as_of=None)
    return Asked(
        subject="a run",
        lines=(
            "A run matches orders with order books and statements, and finds every difference.",
            "Without days it is of everything, and opens and closes breaks: what is new, and what "
            "evidence has ended. With days it only looks, and changes no break.",
            f"It reads about {counted(rows, 'row')}, in a process of its own: you may leave the "
            "page, and the list of runs says how it goes.",
        ),
        back="/runs",
        fields=(
            Field(
                name="since",
                label=f"From ({view.context.calendar_zone})",
                hint="A day such as 2026-10-01, or nothing.",
                required=False,
            ),
            Field(
                name="until",
                label="To, that day included",
                hint="A day such as 2026-10-31, or nothing.",
                required=False,
            ),
        ),
    )


RUN: Final = "run"
"""What runs of a console are about: one at a time."""


async def do_run(view: View, reason: str) -> str:
    """Start it, and wait a little."""
    zone = view.context.calendar_zone
    asked = reconcile_period.RunRequest(
        since=day(view.given.get("since", ""), "From", zone=zone),
        until=day(view.given.get("until", ""), "To", zone=zone, after=True),
    )
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise UsageError("the first day must not lie after the last one")
    jobs, by = view.console.jobs, view.person.name
    work = partial(view.console.work, reconcile_period.reconcile_for, asked, by=by, reason=reason)
    await jobs.wait(jobs.begin("run", RUN, by=by, work=work))
    return "/runs"


async def ask_preview(view: View) -> Asked:
    """Which rules are tried."""
    saved = await match_rules.current_rules(view.context)
    return Asked(
        subject="matching rules",
        lines=(
            "Everything is matched under the rules in force and under these, and you see what "
            "would newly match, be lost or change, with money. Nothing of it is kept.",
            "When you have seen that, you may put them in force, or propose that.",
        ),
        back="/runs",
        reason=False,
        fields=(
            Field(
                name="rules",
                label="Rules (TOML)",
                kind="area",
                value="" if saved is None else saved.toml,
                hint='Such as date_window = "2 days". At most 12,000 characters.',
                required=False,
            ),
        ),
    )


async def do_preview(view: View, reason: str) -> str:
    """Compare, and wait a little."""
    rules = view.given.get("rules", "").replace("\r\n", "\n")  # read where it can be ended
    jobs, by = view.console.jobs, view.person.name
    work = partial(view.console.reads_rules, match_rules.previewed_rules, rules)
    mark = await tried_as(view, rules)
    job = jobs.begin("preview", by, by=by, work=work, mark=mark)
    await jobs.wait(job)
    return address("previews", job.name)


async def ask_save_rules(view: View) -> Asked:
    """Which rules would be in force, and whether one person may put them there."""
    job = preview_of(view, view.needed("preview"))
    back, subject = address("previews", job.name), "the rules that were tried"
    if job.ended is None or job.problem is not None:
        lines: tuple[str, ...] = ("What they would change is not known: look at the preview.",)
        return Asked(subject=subject, lines=lines, back=back, ready=False)
    if not await _still_against(view, job):
        lines = ("Other rules were put in force since these were tried: try them again.",)
        return Asked(subject=subject, lines=lines, back=back, ready=False)
    count = sum(each["count"] for each in job.result["totals"])
    alone = await match_rules.may_save_alone(view.context)
    return Asked(
        subject=subject,
        lines=(
            f"They would change {counted(count, 'match or break', 'matches and breaks')}, as the "
            "preview shows."
            if count
            else "They would change no match and no break.",
            "The next run goes by them; runs and closed months of before stay what they are.",
            "You put them in force in your name."
            if alone
            else "The rules in force limit what one person may do alone: you propose these, and "
            "they are in force when another operator approves them.",
        ),
        back=back,
        button="" if alone else PROPOSE,
    )


async def do_save_rules(view: View, reason: str) -> str | ActionResult:
    """Put them in force, or propose that."""
    job = preview_of(view, view.needed("preview"))
    if job.ended is None or job.problem is not None or not await _still_against(view, job):
        raise UsageError("what these rules would change now is not known: try them again")
    done = await view.console.reads_rules(
        match_rules.save_rules, rules_tried(job), by=view.person.name, reason=reason
    )
    return proposed(done) if isinstance(done, Proposal) else "/runs"


async def _still_against(view: View, job: Job) -> bool:
    """Whether the rules in force are those with which they were compared."""
    return job.mark == await tried_as(view, rules_tried(job))
