"""Commands on periods: reports, journals, the closing and verification of months, and the
schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import operators, printing, running
from app.core.errors import UsageError
from app.core.text import counted
from app.finance.reports.journal_forms import COMMAND_WORDS, JOURNAL_FORMATS

if TYPE_CHECKING:
    from app.context.context import AppContext
    from app.finance.report_period import JournalTotals
    from reconcile.reporting.report import Basis, PeriodReport, Scope


report_group = typer.Typer(help="Reports of a period's orders and money.", no_args_is_help=True)


class PeriodFormat(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    xlsx = "xlsx"
    html = "html"
    pdf = "pdf"


JournalName = StrEnum("JournalName", JOURNAL_FORMATS)  # type: ignore[misc]
USUAL_JOURNAL = JournalName(JOURNAL_FORMATS[0])


class BasisName(StrEnum):
    """Date by which money belongs to a period: the provider's, the arrival's or the payout's."""

    captured = "captured"
    received = "received"
    settled = "settled"


FromOption = Annotated[
    str, typer.Option("--from", help="The first day (in TALLYHOOK_TIMEZONE), or an RFC 3339 time.")
]
ToOption = Annotated[
    str, typer.Option("--to", help="The last day, inclusive, or an RFC 3339 time, exclusive.")
]
AsOfOption = Annotated[
    str | None, typer.Option(help="Use what was known at this RFC 3339 time. Default: now.")
]


@report_group.command(
    "period", epilog="Example: tallyhook report period --from 2026-10-01 --to 2026-10-31"
)
def report_period(
    since: FromOption,
    until: ToOption,
    as_of: AsOfOption = None,
    basis: Annotated[
        BasisName,
        typer.Option(
            help="The date that decides the period of a payment: captured (stated by the "
            "provider), received (arrival at Tallyhook) or settled (the payout)."
        ),
    ] = BasisName.captured,
    form: Annotated[
        PeriodFormat,
        typer.Option("--format", help="Output format. Default: table. xlsx and pdf need -o FILE."),
    ] = PeriodFormat.table,
    output: printing.OutputOption = None,
) -> None:
    """Report on a period: control totals, outcomes, breaks, late changes and fees.

    Equal evidence and --as-of give equal bytes. The exit code is 1 if the control totals do not
    agree.
    """
    from app.finance.closed_periods import closed_within
    from app.finance.report_period import report_period
    from app.finance.reports.render import BINARY, check_format, render

    printing.check_output(output, binary=form.value in BINARY, what=form.value.upper())
    check_format(form.value)

    async def work(context: AppContext) -> tuple[PeriodReport, list[str]]:
        scope = await _scope(context, since=since, until=until, as_of=as_of, basis=basis.value)
        with printing.progress("reading", None) as advance:
            report = await report_period(context, scope, progress=advance)
        return report, await closed_within(context, scope)

    report, closed = running.reading(work)
    with printing.whole_file(output) as file:
        file.write(render(report, form.value))
    if closed:
        printing.note(
            f"Closed months: {', '.join(closed)}. This report shows what is known now. `tallyhook "
            f"period show {closed[-1]}` prints the closed report."
        )
    if not report.ties_hold:
        printing.note("Some control totals do not tie: the report's first lines name them.")
        raise typer.Exit(1)


@report_group.command(
    "journal",
    epilog="Example: tallyhook report journal --from 2026-10-01 --to 2026-10-31",
)
def report_journal(
    since: FromOption,
    until: ToOption,
    as_of: AsOfOption = None,
    form: Annotated[
        JournalName, typer.Option("--format", help=f"For {COMMAND_WORDS}")
    ] = USUAL_JOURNAL,
    accounts: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A TOML file that names the accounts, their codes and tax codes, and states when "
            "sales are posted. Default: TALLYHOOK_REPORTS__ACCOUNTS.",
        ),
    ] = None,
    output: printing.OutputOption = None,
) -> None:
    """Write a journal of a period's payments, as balanced double entries.

    Payments and refunds are posted against Assets:Receivable, like the invoices and taxes in your
    own books. With revenue_at = "fulfilment" in the file of accounts, payments are posted against
    Liabilities:CustomerDeposits, and to Income:Sales when the order is fulfilled.

    Payments, refunds and lost disputes have the provider's dates, settlements the statement's.
    Write-offs are dated on the day of their acceptance.
    """
    from app.finance.reports.accounts import merchant_accounts
    from app.finance.reports.journal import write_journal

    printing.check_output(output, binary=False, what="a journal")
    with printing.whole_file(output) as file:

        async def work(context: AppContext) -> JournalTotals:
            scope = await _scope(context, since=since, until=until, as_of=as_of, basis="captured")
            named = merchant_accounts(context.settings.reports, accounts)
            with printing.progress("reading", None) as advance:
                return await write_journal(
                    context, scope, form.value, write=file.write, accounts=named, progress=advance
                )

        totals = running.reading(work)
    printing.note(f"{counted(totals.transactions, 'transaction')}.")


@report_group.command("accounts", epilog="Example: tallyhook report accounts > accounts.toml")
def print_accounts() -> None:
    """Print a file of accounts with every default, for `report journal --accounts`."""
    from app.finance.reports.accounts import FILE

    print(FILE, end="")


async def _scope(
    context: AppContext, *, since: str, until: str, as_of: str | None, basis: Basis
) -> Scope:
    from app.finance.closed_periods import on_the_books
    from reconcile.reporting.report import Scope

    start, end = printing.moment(since, "--from"), printing.end_of(until, "--to")
    known = printing.moment(as_of, "--as-of")
    assert start is not None
    assert end is not None
    scope = Scope(
        start=start,
        end=end,
        as_of=context.clock.now() if known is None else known,
        basis=basis,
        environment=context.database.environment or "not stamped",
    )
    return await on_the_books(context, scope)


period_group = typer.Typer(
    help="Months of the books. They are closed in order, and can always be printed again. Later "
    "findings become adjustments in the report and journal of the first open month.",
    no_args_is_help=True,
)

Period = Annotated[str, typer.Argument(help="A calendar month, such as 2026-10.")]


@period_group.command("close")
def close_month(
    period: Period,
    by: operators.ByOption = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Close with what was known at this RFC 3339 time, without asking "
            "providers. Default: now."
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option(help="The reason. Required if the rules in force require two people.")
    ] = "",
    exceptions: Annotated[
        list[str] | None,
        typer.Option(
            "--except",
            metavar="LINE=REASON",
            help="LINE=REASON: close although this line of `period ready` is not met. "
            "Repeat for several lines.",
        ),
    ] = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Close a month: store its report and journal, with their evidence, permanently.

    Months are closed in order, without gaps, from the first closed month on. If the rules require
    two people, the closing becomes a proposal. The exit code is 1 if something prevents the
    closing; every reason is listed, with what to do.
    """
    from app.access.proposal import Proposal
    from app.finance.close_period import CloseRequest, close_period
    from reconcile.reporting.closing import Closing

    async def work(context: AppContext) -> Any:
        request = CloseRequest(
            period=period,
            by=by,
            as_of=printing.moment(as_of, "--as-of"),
            reason=reason,
            exceptions=_exceptions(exceptions or []),
        )
        return await close_period(context, request, progress=advance)

    with printing.progress("closing", None) as advance:
        done = running.writing(work)
    if isinstance(done, Closing):
        _print_closed(done, form)
        return
    if isinstance(done, Proposal):
        printing.note(operators.proposal_notice(done))
        return
    rows = [
        {"reason": each.code, "line": each.line, "sentence": each.sentence, "do": each.do}
        for each in done
    ]
    if form is printing.Format.table:
        zone = printing.merchant_zone()
        for row in (printing.local_sentence(each, zone) for each in rows):
            print(f"{row['sentence']}\n  {row['do']}")
    else:
        printing.emit(rows, columns=("reason", "line", "sentence", "do"), form=form)
    printing.note(f"{period} stays open. Problems that prevent closing: {len(rows):,}.")
    raise typer.Exit(1)


def _exceptions(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        line, equals, reason = each.partition("=")
        if not equals or not reason.strip():
            raise UsageError('--except needs LINE=REASON, such as unsettled="paid out in November"')
        found[line.strip()] = reason.strip()
    return found


@period_group.command("ready")
def show_ready(
    period: Period,
    by: operators.ByOption = None,
    as_of: AsOfOption = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List all conditions for closing a month, and whether each condition is met.

    The exit code is 1 if a condition is not met. Two people together may still close the month with
    `period close --except LINE=REASON`, but not while deliveries are unread.
    """
    from app.finance.close_period import CloseRequest, against_closing
    from reconcile.reporting.closing import closing_lines

    async def work(context: AppContext) -> Any:
        request = CloseRequest(period=period, by=by, as_of=printing.moment(as_of, "--as-of"))
        return await against_closing(context, request, progress=advance)

    with printing.progress("looking", None) as advance:
        # As `close` does: in the name of the operator whose token was given.
        against = running.writing(work)
    zone = printing.merchant_zone()
    rows = [
        {"line": line, "holds": blocker is None, "sentence": sentence,
         "do": "" if blocker is None else blocker.do}
        for line, sentence, blocker in closing_lines(against)
    ]  # fmt: skip
    if form is printing.Format.table:
        rows = [printing.local_sentence(each, zone) for each in rows]
    printing.emit(rows, columns=("line", "holds", "sentence", "do"), form=form)
    if against:
        raise typer.Exit(1)


def _print_closed(closing: Any, form: printing.Format) -> None:
    row = {
        "period": closing.month.name,
        "version": closing.version,
        "closed_by": closing.by,
        "evidence": sum(each.count for each in closing.evidence),
        "history": closing.history,
        "digest": closing.digest,
    }
    if form is printing.Format.table:
        rows = counted(sum(each.count for each in closing.evidence), "row")
        print(
            f"Closed {row['period']} by {row['closed_by']}: {rows} of evidence.\n"
            f"history {row['history']}\nclosing {row['digest']}"
        )
    else:
        printing.document(row, form)


@period_group.command("list")
def list_periods(form: printing.FormatOption = printing.Format.table) -> None:
    """List every closing of a month, including reopened months. The earliest month comes first."""
    from app.finance.closed_periods import list_closed

    closed = running.reading(list_closed)
    rows = [each.document() for each in closed]
    columns = (
        "period",
        "version",
        "as_of",
        "closed_at",
        "closed_by",
        "approved_by",
        "reopened_at",
        "digest",
    )
    printing.emit(rows, columns=columns, form=form)


@period_group.command("reopen")
def reopen_month(
    period: Period,
    reason: Annotated[str, typer.Option(help="The reason. It is stored permanently.")],
    by: operators.ByOption = None,
) -> None:
    """Propose to reopen the last closed month. Another person must approve it.

    The closed report and journal are kept. Closing the month again makes the next version.
    """
    from app.finance.close_period import reopen_period

    done = running.writing(reopen_period, period, by=by, reason=reason)
    printing.note(operators.proposal_notice(done))


@period_group.command("show")
def show_period(
    period: Period,
    journal: Annotated[
        bool, typer.Option("--journal", help="Print the journal instead of the report.")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"For a report: {', '.join(PeriodFormat)} (default: table; xlsx and pdf need -o). "
            f"For a journal: {', '.join(JOURNAL_FORMATS)} (default: beancount).",
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=1, help="Version of the closing. Default: the one in force.")
    ] = None,
    output: printing.OutputOption = None,
) -> None:
    """Print the report or journal of a closed month, byte for byte as it was closed."""
    from app.finance.closed_periods import closed_report
    from app.finance.reports.journal import closed_journal
    from app.finance.reports.render import BINARY

    known: Sequence[str] = JOURNAL_FORMATS if journal else tuple(PeriodFormat)
    if form is not None and form not in known:
        raise UsageError(f"--format must be one of: {', '.join(known)}")
    if not journal:
        report = PeriodFormat(form or "table")
        printing.check_output(output, binary=report.value in BINARY, what=report.upper())
        content = running.reading(closed_report, period, report.value, version=version)
        with printing.whole_file(output) as file:
            file.write(content)
        return
    entries = form or JOURNAL_FORMATS[0]
    printing.check_output(output, binary=False, what="a journal")
    with printing.whole_file(output) as file:

        async def work(context: AppContext) -> None:
            async for part in closed_journal(context, period, entries, version=version):
                file.write(part)

        running.reading(work)


@period_group.command("verify")
def check_months(
    period: Annotated[
        str | None, typer.Argument(help="The month. Default: all closed months.")
    ] = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Prove that closed and reopened months follow from their evidence. The exit code is 1 if a
    month does not."""
    from app.finance.verify_periods import verify_periods

    async def work(context: AppContext) -> list[Any]:
        return [each async for each in verify_periods(context, only=period, progress=advance)]

    with printing.progress("verifying", None) as advance:
        found = running.reading(work)
    rows = [each.document() for each in found]
    columns = ("period", "version", "step", "passed", "sentence")
    printing.emit(rows, columns=columns, form=form)
    if not all(each.passed for each in found):
        raise typer.Exit(1)


# --- the schedule ---------------------------------------------------------------------------------

schedule_group = typer.Typer(
    help="Scheduled tasks: reconciliations, and reports that are delivered.",
    invoke_without_command=True,
)

COLUMNS = ("name", "cron", "does", "next", "last", "state", "late", "problem")


@schedule_group.callback()
def shown(context: typer.Context) -> None:
    """List the entries of TALLYHOOK_SCHEDULE if no other command is given."""
    if context.invoked_subcommand is None:
        list_entries()


@schedule_group.command("list")
def list_entries(form: printing.FormatOption = printing.Format.table) -> None:
    """List the entries of the schedule, with their last and next times."""
    from app.core.schedule import schedule_entries
    from app.finance.scheduled import schedule_document

    async def work(context: AppContext) -> Sequence[Mapping[str, Any]]:
        return await schedule_document(context, schedule_entries(context.settings.schedule))

    rows = running.reading(work)
    if not rows:
        printing.note(
            "TALLYHOOK_SCHEDULE has no entries; config.example.env shows how they are written."
        )
    flat = form in (printing.Format.table, printing.Format.csv)
    printing.emit([_row(each) for each in rows] if flat else rows, columns=COLUMNS, form=form)


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    last = entry["last"] or {}
    words = [*(["reconcile"] if entry["reconcile"] else []), entry["span"], *entry["forms"]]
    words += ["checkpoint"] if entry["checkpoint"] else []
    return {
        "name": entry["name"],
        "cron": entry["cron"],
        "does": " ".join([word for word in (*words, *entry["ways"]) if word]),
        "next": entry["next"],
        "last": last.get("due_at"),
        "state": last.get("state"),
        "late": last.get("late"),
        "problem": last.get("problem"),
    }


@schedule_group.command("run", epilog="Example: tallyhook schedule run month")
def run_one(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The entry's name.")],
    by: operators.ByOption = None,
    claimed: Annotated[
        bool, typer.Option("--claimed", hidden=True, help="For internal use by the service.")
    ] = False,
) -> None:
    """Run one entry of the schedule now: reconcile, report, deliver. The exit code is 1 if it
    fails."""
    from app.core.child_processes import taken_over
    from app.core.http import outgoing_client
    from app.finance.scheduled import claimed_run, time_document
    from app.finance.scheduled_work import LIMIT_S, run_claimed, run_now, schedule_of

    settings, due = taken_over() if claimed else (None, None)

    async def work(context: AppContext) -> Mapping[str, Any] | None:
        async with outgoing_client(timeout_s=LIMIT_S) as client:
            schedule = schedule_of(context, client)
            if due is None:
                return time_document(await run_now(context, schedule, name, by=by))
            if await claimed_run(context, name, due_at=due.due_at, tries=due.tries):
                await run_claimed(context, schedule, due)
            return None

    ended = running.with_context(work, purpose="writing", loaded=settings)
    if ended is None:
        return  # the result is stored; another worker may have done it
    for each in ended["delivered"]:
        printing.note(f"{each['file']}: delivered ({each['way']}).")
    if ended["state"] != "done":
        printing.note(f"{name} failed: {ended['problem']}")
        raise typer.Exit(1)
    printing.note(f"{name}: {ended['state']}.")
