"""Commands on what the shop is told: list and redeliver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.operators import ByOption
from app.cli.output import MAX_NUMBER, Format, FormatOption, emit_up_to, note
from app.core.text import counted

if TYPE_CHECKING:
    from app.orders.notify_shop import Entry

group = typer.Typer(
    help="What the shop is told at TALLYHOOK_SHOP__URL, and what became of it.",
    no_args_is_help=True,
)

COLUMNS = ("id", "order", "outcome", "state", "tries", "published_at", "due_at", "problem")


@group.command("list")
def list_notifications(
    state: Annotated[
        str | None,
        typer.Option(help="Only one of: waiting, delivered, dead (given up after three days)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Notifications at most.")] = 50,
    form: FormatOption = Format.table,
) -> None:
    """List notifications, newest first; the id is the revision's in the outcome feed."""
    from app.cli.running import with_context
    from app.core.errors import UsageError
    from app.orders import notify_shop

    chosen = next((each for each in notify_shop.STATES if each == state), None)
    if state is not None and chosen is None:
        raise UsageError(f"{state!r} is none of: {', '.join(notify_shop.STATES)}")
    entries = with_context(
        lambda context, settings: notify_shop.list_notifications(context, state=chosen, limit=limit)
    )
    emit_up_to(limit, [_row(entry) for entry in entries], columns=COLUMNS, form=form)
    if not entries and state is None:
        note("The shop has been told nothing yet: TALLYHOOK_SHOP__URL says where it is told.")


@group.command("redeliver")
def redeliver(
    ids: Annotated[
        list[int] | None,
        typer.Argument(
            min=1, max=MAX_NUMBER, help="Ids of the list. Default: all that wait or are dead."
        ),
    ] = None,
    by: ByOption = None,
) -> None:
    """Send notifications again, with the ids they had, and three more days to be taken."""
    from app.cli.running import with_context
    from app.orders import notify_shop

    count = with_context(
        lambda context, settings: notify_shop.redeliver(context, ids or None, by=by),
        purpose="writing",
    )
    note(f"{counted(count, 'notification')} will be sent again by the service that runs.")


def _row(entry: Entry) -> dict[str, Any]:
    from reconcile.instants import format_instant

    def moment(instant: int | None) -> str | None:
        return None if instant is None else format_instant(instant)

    return {
        "id": entry.seq,
        "order": entry.order,
        "outcome": entry.outcome,
        "state": entry.state,
        "tries": entry.tries,
        "published_at": moment(entry.published_at),
        "due_at": moment(entry.due_at),
        "delivered_at": moment(entry.delivered_at),
        "problem": entry.problem,
    }
