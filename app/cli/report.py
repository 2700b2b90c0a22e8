"""Commands that report: a period for people and programs, and its money as a journal."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from app.cli.output import OutputOption, check_output, end_of, moment, note, progress, whole_file
from app.core.text import counted

if TYPE_CHECKING:
    from app.finance.report_period import JournalTotals
    from app.finance.reports.journal import Accounts
    from app.receiving.context import AppContext
    from reconcile.reporting.journal import Transaction
    from reconcile.reporting.report import Basis, PeriodReport, Scope

group = typer.Typer(help="What became of a period's orders and money.", no_args_is_help=True)


class PeriodFormat(StrEnum):
    """How a report is written."""

    table = "table"
    json = "json"
    csv = "csv"
    xlsx = "xlsx"
    html = "html"
    pdf = "pdf"


class JournalFormat(StrEnum):
    """How a journal is written."""

    beancount = "beancount"
    csv = "csv"


class BasisName(StrEnum):
    """Which date places money in the period."""

    captured = "captured"
    received = "received"
    settled = "settled"


FromOption = Annotated[
    str, typer.Option("--from", help="The first day (UTC), or the RFC 3339 moment it begins.")
]
ToOption = Annotated[
    str, typer.Option("--to", help="The last day, all of it, or the moment before which it ends.")
]
AsOfOption = Annotated[
    str | None, typer.Option(help="As it could be known at this RFC 3339 moment; else now.")
]


@group.command(
    "period", epilog="Such as: tallyhook report period --from 2026-10-01 --to 2026-10-31"
)
def period(
    since: FromOption,
    until: ToOption,
    as_of: AsOfOption = None,
    basis: Annotated[
        BasisName,
        typer.Option(help="captured: the provider's date; received: ours; settled: the payout's."),
    ] = BasisName.captured,
    form: Annotated[
        PeriodFormat, typer.Option("--format", help="table for people; xlsx and pdf need -o.")
    ] = PeriodFormat.table,
    output: OutputOption = None,
) -> None:
    """Report a period: control totals that tie, outcomes, breaks, late changes and fees.

    The same evidence and the same --as-of give the same bytes in every format. Exit code 1 where a
    tie does not hold.
    """
    from app.cli.running import with_context
    from app.finance.report_period import report_period
    from app.finance.reports.render import BINARY, check_format, render

    check_output(output, binary=form.value in BINARY, what=form.value.upper())
    check_format(form.value)

    async def work(context: AppContext) -> PeriodReport:
        scope = _scope(context, since=since, until=until, as_of=as_of, basis=basis.value)
        with progress("reading", None) as advance:
            return await report_period(context, scope, progress=advance)

    report = with_context(lambda context, settings: work(context))
    with whole_file(output) as file:
        file.write(render(report, form.value))
    if not report.ties_hold:
        note("Not every tie holds: the report's first lines name those that do not.")
        raise typer.Exit(1)


@group.command(
    "journal",
    epilog="Such as: tallyhook report journal --from 2026-10-01 --to 2026-10-31",
)
def journal(
    since: FromOption,
    until: ToOption,
    as_of: AsOfOption = None,
    form: Annotated[
        JournalFormat, typer.Option("--format", help="For beancount, or one line a posting.")
    ] = JournalFormat.beancount,
    accounts: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A TOML file that names the accounts."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Write a period's money as balanced double entries.

    Payments, refunds and lost disputes stand on the provider's dates, settlements on the
    statement's, write-offs on the day they were accepted.
    """
    from app.cli.running import with_context
    from app.finance.reports.journal import DEFAULTS, accounts_of

    named = DEFAULTS if accounts is None else accounts_of(_text_of(accounts), name=str(accounts))
    check_output(output, binary=False, what="a journal")
    with whole_file(output) as file:
        totals = with_context(
            lambda context, settings: _journal(
                context,
                _scope(context, since=since, until=until, as_of=as_of, basis="captured"),
                (form, named, file),
            )
        )
    note(f"{counted(totals.transactions, 'transaction')}.")


async def _journal(
    context: AppContext, scope: Scope, into: tuple[JournalFormat, Accounts, IO[bytes]]
) -> JournalTotals:
    from app.finance.report_period import report_journal
    from app.finance.reports.journal import head, writer

    form, accounts, file = into
    title = f"Tallyhook {scope.environment}"
    file.write(head(form.value, accounts=accounts, title=title).encode())
    lines = writer(form.value, accounts=accounts)

    def write(transaction: Transaction) -> None:
        file.write(lines(transaction).encode("utf-8", "backslashreplace"))

    with progress("reading", None) as advance:
        return await report_journal(context, scope, write=write, progress=advance)


def _scope(
    context: AppContext, *, since: str, until: str, as_of: str | None, basis: Basis
) -> Scope:
    from reconcile.reporting.report import Scope

    start, end = moment(since, "--from"), end_of(until, "--to")
    known = moment(as_of, "--as-of")
    assert start is not None
    assert end is not None
    return Scope(
        start=start,
        end=end,
        as_of=context.clock.now() if known is None else known,
        basis=basis,
        environment=context.store.environment or "not stamped",
    )


def _text_of(path: Path) -> str:
    from app.core.errors import UsageError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as text: {error}") from None
