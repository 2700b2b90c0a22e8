"""Commands on the schedule: what is done when, and doing one entry now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.operators import ByOption
from app.cli.output import Format, FormatOption, emit, note
from app.cli.running import with_context
from app.core.errors import UsageError

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.receiving.context import AppContext

group = typer.Typer(
    help="What is done at its times: reconciliations, and reports that are delivered.",
    invoke_without_command=True,
)

COLUMNS = ("name", "cron", "does", "next", "last", "state", "late", "problem")


@group.callback()
def shown(context: typer.Context) -> None:
    """Show the entries of TALLYHOOK_SCHEDULE where no command is named."""
    if context.invoked_subcommand is None:
        list_entries()


@group.command("list")
def list_entries(form: FormatOption = Format.table) -> None:
    """List the entries, with their last and next times and what became of the last."""
    from app.core.schedule import entries_of
    from app.finance.scheduled import schedule_document

    async def work(context: AppContext, settings: Settings) -> list[dict[str, Any]]:
        return await schedule_document(context, entries_of(settings.schedule))

    rows = with_context(work)
    if not rows:
        note("TALLYHOOK_SCHEDULE has no entries; config.example.env shows how they are written.")
    flat = form in (Format.table, Format.csv)
    emit([_row(each) for each in rows] if flat else rows, columns=COLUMNS, form=form)


def _row(told: Mapping[str, Any]) -> dict[str, Any]:
    """One entry as a line."""
    last = told["last"] or {}
    words = [*(["reconcile"] if told["reconcile"] else []), told["span"], *told["forms"]]
    words += ["checkpoint"] if told["checkpoint"] else []
    return {
        "name": told["name"],
        "cron": told["cron"],
        "does": " ".join([word for word in (*words, *told["ways"]) if word]),
        "next": told["next"],
        "last": last.get("due_at"),
        "state": last.get("state"),
        "late": last.get("late"),
        "problem": last.get("problem"),
    }


@group.command("run", epilog="Such as: tallyhook schedule run month")
def run_one(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The entry's name.")],
    by: ByOption = None,
    due: Annotated[
        str | None,
        typer.Option(hidden=True, help="When it was due: what the service gives its own process."),
    ] = None,
    tries: Annotated[
        int, typer.Option("--try", hidden=True, help="And which try of it the service has claimed.")
    ] = 1,
) -> None:
    """Do one entry now: reconcile, report, deliver. Exit code 1 where it came to nothing."""
    from app.bootstrap_ways import schedule_of
    from app.core.http import outgoing_client
    from app.finance.delivering import LIMIT_S
    from app.finance.scheduled import claimed_run, time_document
    from app.finance.scheduled_work import run_claimed, run_now
    from reconcile.instants import parse_instant

    async def work(context: AppContext, settings: Settings) -> Mapping[str, Any] | None:
        async with outgoing_client(timeout_s=LIMIT_S) as client:
            schedule = schedule_of(settings, client=client, clock=context.clock)
            if due is None:
                return time_document(await run_now(context, schedule, name, by=by))
            try:
                due_at = parse_instant(due)
            except ValueError:
                raise UsageError("--due is no moment; to do an entry now, leave it out") from None
            claimed = await claimed_run(context, name, due_at=due_at, tries=tries)
            if claimed is None:
                return None
            return time_document(await run_claimed(context, schedule, claimed))

    ended = with_context(work, purpose="writing")
    if ended is None or due is not None:
        return  # what became of it is written down; another may have done it
    for each in ended["delivered"]:
        note(f"{each['file']}: delivered ({each['way']}).")
    if ended["state"] != "done":
        note(f"{name} came to nothing: {ended['problem']}")
        raise typer.Exit(1)
    note(f"{name}: {ended['state']}.")
