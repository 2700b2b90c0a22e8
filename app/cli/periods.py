"""Commands on periods: close, list, show, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.operators import ByOption
from app.cli.output import (
    DocumentOption,
    Format,
    FormatOption,
    OutputOption,
    check_output,
    document,
    emit,
    moment,
    note,
    progress,
    whole_file,
)
from app.cli.report import PeriodFormat
from app.core.text import counted

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.receiving.context import AppContext

group = typer.Typer(
    help="Months of the books: closed once, in order, and printed again for ever.",
    no_args_is_help=True,
)

Period = Annotated[str, typer.Argument(help="A calendar month in UTC, such as 2026-10.")]


@group.command("close")
def close(
    period: Period,
    by: ByOption = None,
    as_of: Annotated[
        str | None, typer.Option(help="Close what was known at this moment (RFC 3339); else now.")
    ] = None,
    form: DocumentOption = Format.table,
) -> None:
    """Close a month: keep its report with everything it rests on, for ever.

    Months are closed in order, without gaps: none before the first one can be closed later.
    Exit code 1 where something stands against it; every reason is told, and what to do.
    """
    from app.bootstrap_sources import compile_sources
    from app.cli.running import with_context
    from app.finance.close_period import Request, close_period
    from reconcile.reporting.closing import Closing

    async def work(context: AppContext, settings: Settings) -> Any:
        request = Request(
            period=period,
            by=by,
            as_of=moment(as_of, "--as-of"),
            margin_days=settings.closing_margin_days,
            sources=compile_sources(settings),
        )
        return await close_period(context, request, progress=advance)

    with progress("closing", None) as advance:
        done = with_context(work, purpose="writing")
    if isinstance(done, Closing):
        _tell(done, form)
        return
    rows = [{"reason": each.code, "sentence": each.sentence, "do": each.do} for each in done]
    if form is Format.table:
        for row in rows:
            print(f"{row['sentence']}\n  {row['do']}")
    else:
        emit(rows, columns=("reason", "sentence", "do"), form=form)
    note(f"{period} stays open: {counted(len(rows), 'reason')} against closing it.")
    raise typer.Exit(1)


def _tell(closing: Any, form: Format) -> None:
    row = {
        "period": closing.month.name,
        "closed_by": closing.by,
        "evidence": sum(each.count for each in closing.evidence),
        "history": closing.history,
        "digest": closing.digest,
    }
    if form is Format.table:
        rows = counted(sum(each.count for each in closing.evidence), "row")
        print(
            f"Closed {row['period']} by {row['closed_by']}: {rows} of evidence.\n"
            f"history {row['history']}\nclosing {row['digest']}"
        )
    else:
        document(row, form)


@group.command("list")
def list_periods(form: FormatOption = Format.table) -> None:
    """List the closed months, the earliest first."""
    from app.cli.running import with_context
    from app.finance.closed_periods import list_closed
    from reconcile.instants import format_instant

    rows = [
        {
            "period": each.period,
            "as_of": format_instant(each.as_of),
            "closed_at": format_instant(each.closed_at),
            "closed_by": each.by,
            "digest": each.digest,
        }
        for each in with_context(lambda context, settings: list_closed(context))
    ]
    emit(rows, columns=("period", "as_of", "closed_at", "closed_by", "digest"), form=form)


@group.command("show")
def show(
    period: Period,
    form: Annotated[
        PeriodFormat, typer.Option("--format", help="table for people; xlsx and pdf need -o.")
    ] = PeriodFormat.table,
    output: OutputOption = None,
) -> None:
    """Print the report of a closed month again, byte for byte as it was closed."""
    from app.cli.running import with_context
    from app.finance.closed_periods import closed_report
    from app.finance.reports.render import BINARY

    check_output(output, binary=form.value in BINARY, what=form.value.upper())
    content = with_context(lambda context, settings: closed_report(context, period, form.value))
    with whole_file(output) as file:
        file.write(content)


@group.command("verify")
def verify(
    period: Annotated[
        str | None, typer.Argument(help="One month; else all that are closed.")
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Prove that closed months still follow from their evidence; exit code 1 where one does not."""
    from app.cli.running import with_context
    from app.finance.verify_periods import verify_periods

    async def work(context: AppContext, settings: Settings) -> list[Any]:
        return [each async for each in verify_periods(context, only=period, progress=advance)]

    with progress("verifying", None) as advance:
        found = with_context(work)
    rows = [
        {"period": v.period, "step": v.step, "passed": v.passed, "sentence": v.sentence}
        for v in found
    ]
    emit(rows, columns=("period", "step", "passed", "sentence"), form=form)
    if not all(each.passed for each in found):
        raise typer.Exit(1)
