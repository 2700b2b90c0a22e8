"""Commands on the door's diary: list and show."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.output import Format, FormatOption, document, emit

group = typer.Typer(help="What arrived at the door, and its verdict.", no_args_is_help=True)

COLUMNS = ("delivery", "received_at", "source", "verdict", "event", "size", "problem")


@group.command("list")
def list_deliveries(
    verdict: Annotated[str | None, typer.Option(help="Only this verdict.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Arrivals at most.")] = 50,
    form: FormatOption = Format.table,
) -> None:
    """List arrivals, newest first: stored, duplicate, unreadable and refused alike."""
    from app.cli.running import with_desk
    from app.operations.read_deliveries import VERDICTS, list_deliveries

    if verdict is not None and verdict not in VERDICTS:
        from app.errors import UsageError

        raise UsageError(f"{verdict!r} is none of: {', '.join(VERDICTS)}")
    entries = with_desk(lambda desk, settings: list_deliveries(desk, verdict=verdict, limit=limit))
    emit([_row(entry) for entry in entries], columns=COLUMNS, form=form)


@group.command("show")
def show_delivery(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.")],
    form: FormatOption = Format.table,
) -> None:
    """Show one arrival: its verdict, why, and its headers. Never its body."""
    from app.cli.running import with_desk
    from app.operations.read_deliveries import show_delivery
    from reconcile.instants import format_instant

    entry = with_desk(lambda desk, settings: show_delivery(desk, delivery))
    row = _row(entry) | {
        "digest": entry.digest,
        "pruned_at": None if entry.pruned_at is None else format_instant(entry.pruned_at),
        "headers": entry.headers.split("\n") if entry.headers else [],
    }
    if form is not Format.table:
        document(row, form)
        return
    headers = row.pop("headers")
    shown = [{"what": name, "value": value} for name, value in row.items()]
    emit(shown, columns=("what", "value"), form=form)
    for line in headers:
        print(f"  {line}")


def _row(entry: Any) -> dict[str, Any]:
    from reconcile.instants import format_instant

    return {
        "delivery": entry.delivery_id,
        "received_at": format_instant(entry.received_at),
        "source": entry.source,
        "verdict": entry.verdict,
        "event": entry.event_id,
        "size": entry.size,
        "problem": entry.problem,
    }
