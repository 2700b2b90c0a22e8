"""Commands on API tokens: add, list, revoke."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.operators import ByOption
from app.cli.output import DocumentOption, Format, FormatOption, document, emit, note

group = typer.Typer(help="Programs that may use the API.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A name for the program, such as shop.")]


@group.command("add")
def add(name: Name, by: ByOption = None, form: DocumentOption = Format.table) -> None:
    """Make a token and show it, this once."""
    from app.cli.running import with_desk
    from app.operations.people.manage_tokens import issue_token

    token = with_desk(
        lambda desk, settings: issue_token(desk, name=name, by=by),
        purpose="writing",
    )
    if form is not Format.table:
        document({"name": name, "token": token}, form)
    else:
        print(token)
        note("Keep it now: it is not shown again.")


@group.command("list")
def list_tokens(form: FormatOption = Format.table) -> None:
    """List tokens by name; never the tokens themselves."""
    from app.cli.running import with_desk
    from app.operations.people.manage_tokens import known_tokens
    from reconcile.instants import format_instant

    entries = with_desk(lambda desk, settings: known_tokens(desk))
    rows = [
        {
            "name": entry.name,
            "created_at": format_instant(entry.created_at),
            "revoked_at": None if entry.revoked_at is None else format_instant(entry.revoked_at),
        }
        for entry in entries
    ]
    emit(rows, columns=("name", "created_at", "revoked_at"), form=form)


@group.command("revoke")
def revoke(name: Name, by: ByOption = None) -> None:
    """Revoke a token; the next request with it is refused."""
    from app.cli.running import with_desk
    from app.operations.people.manage_tokens import withdraw_token

    with_desk(
        lambda desk, settings: withdraw_token(desk, name=name, by=by),
        purpose="writing",
    )
    note(f"Revoked {name}.")
