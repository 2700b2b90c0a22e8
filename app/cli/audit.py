"""The audit trail: who did what, when and why."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.output import MAX_NUMBER, Format, FormatOption, emit, note

group = typer.Typer(
    help="Who did what, to what, when and why: only ever added to.", no_args_is_help=True
)

COLUMNS = ("number", "at", "who", "role", "action", "subject", "reason", "facts")


@group.callback()
def audit() -> None:
    """Who did what, to what, when and why: only ever added to."""


@group.command("list")
def list_deeds(
    subject: Annotated[
        str | None, typer.Option(help="Only what was done to this: an order, a token, a file.")
    ] = None,
    who: Annotated[str | None, typer.Option(help="Only what this person did.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, such as erased.")] = None,
    after: Annotated[
        int, typer.Option(min=0, max=MAX_NUMBER, help="Only numbers after this one.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Deeds at most.")] = 100,
    form: FormatOption = Format.table,
) -> None:
    """List what was done, in the order in which it was done."""
    from app.access.operators import MAY, trail
    from app.cli.running import with_context
    from app.core.errors import UsageError
    from reconcile.instants import format_instant

    if action is not None and action not in MAY:
        raise UsageError(f"{action!r} is none of: {', '.join(MAY)}")
    found = with_context(
        lambda context, settings: trail(
            context, subject=subject, who=who, action=action, after=after, limit=limit
        )
    )
    told = form in (Format.table, Format.csv)
    rows = [
        {
            "number": deed.number,
            "at": format_instant(deed.at),
            "who": deed.who,
            "role": deed.role,
            "action": deed.action,
            "subject": deed.subject,
            "reason": deed.reason,
            "facts": [f"{name} {value}" for name, value in deed.facts.items()]
            if told
            else dict(deed.facts),
        }
        for deed in found
    ]
    emit(rows, columns=COLUMNS, form=form)
    if len(rows) == limit:
        note(f"There may be more: --after {rows[-1]['number']}")
