"""Commands of the late-money desk: list and settle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.breaks import Reason, SecondOption
from app.cli.operators import ByOption
from app.cli.output import Format, FormatOption, note

if TYPE_CHECKING:
    from app.receiving.context import AppContext

group = typer.Typer(
    help="Late money: paid after cancel or expiry, paid twice, refunds owed.",
    no_args_is_help=True,
)

COLUMNS = ("id", "cause", "order", "payment", "money", "proposed", "state", "because")


@group.command("list")
def list_late(
    everything: Annotated[
        bool, typer.Option("--all", help="What evidence has ended, too.")
    ] = False,
    form: FormatOption = Format.table,
) -> None:
    """List late money as the last run saw it, each with a proposed action and where it stands."""
    from app.cli.output import print_items
    from app.cli.running import with_context
    from app.finance.break_acts import finished_runs

    async def work(context: AppContext) -> int | None:
        left_out = await print_items(_documents(context, everything), columns=COLUMNS, form=form)
        return left_out if await finished_runs(context, limit=1) else None

    left_out = with_context(lambda context, settings: work(context))
    if left_out is None:
        note("Nothing has been reconciled yet: `tallyhook reconcile run` finds what differs.")
    elif left_out:
        note(f"{left_out} more are not shown: --format csv or jsonl shows all.")


async def _documents(context: AppContext, everything: bool) -> AsyncIterator[list[dict[str, Any]]]:
    from app.finance.break_acts import late_document, late_items

    async for found in late_items(context, closed=everything):
        yield [late_document(each) for each in found]


@group.command(
    "settle", epilog="Such as: tallyhook late settle ID --action refund --reason 'paid twice'"
)
def settle(
    name: Annotated[str, typer.Argument(metavar="ID", help="Its id, as the list shows it.")],
    action: Annotated[str, typer.Option(help="accept, refund or credit.")],
    reason: Reason,
    by: ByOption = None,
    second: SecondOption = None,
) -> None:
    """Decide what becomes of late money. A refund stays on the list until it has come."""
    from app.cli.running import with_context
    from app.finance.break_acts import settle_late

    found = with_context(
        lambda context, settings: settle_late(
            context, name, action=action, reason=reason, by=by, second=second
        ),
        purpose="writing",
    )
    note(found.life.because)
