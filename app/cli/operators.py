"""Commands on operators: add, invite, list, disable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import Format, FormatOption, emit, note

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.receiving.context import AppContext

group = typer.Typer(
    help="People: who may do what for finance, support and administration.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="The person's name, as the audit trail shall show it.")]
ByOption = Annotated[
    str | None,
    typer.Option("--by", help="The operator who asks; else TALLYHOOK_OPERATOR names them."),
]


@group.command("add", epilog="Such as: tallyhook operators add Ann --role admin")
def add(
    name: Name,
    role: Annotated[str, typer.Option(help="finance, support, admin or viewer.")],
    by: ByOption = None,
) -> None:
    """Add a person with a role. The first one must be an admin."""
    from app.access.operators import ROLES, register_operator
    from app.cli.running import with_context
    from app.core.errors import UsageError

    found = next((each for each in ROLES if each == role), None)
    if found is None:
        raise UsageError(f"--role is one of: {', '.join(ROLES)}")
    with_context(
        lambda context, settings: register_operator(context, name=name, role=found, by=by),
        purpose="writing",
    )
    note(f"Added {name} as {role}.")


@group.command("invite", epilog="Such as: tallyhook operators invite Ann --role admin")
def invite(
    name: Name,
    role: Annotated[
        str | None, typer.Option(help="finance, support, admin or viewer; of a new person.")
    ] = None,
    by: ByOption = None,
) -> None:
    """Print a link with which a person sets their password for the console: once, within a day.

    For who has one already it is the way to set another.
    """
    from app.access.operators import ROLES
    from app.access.sessions import invite_operator
    from app.cli.running import with_context
    from app.core.errors import UsageError

    found = next((each for each in ROLES if each == role), None)
    if role is not None and found is None:
        raise UsageError(f"--role is one of: {', '.join(ROLES)}")

    async def inviting(context: AppContext, settings: Settings) -> tuple[str, str]:
        token = await invite_operator(context, name=name, role=found, by=by)
        return settings.console.public_url or "http://127.0.0.1:8081", token

    address, token = with_context(inviting, purpose="writing")
    print(f"{address}/invite#{token}")
    note(f"{name} opens this within 24 hours, once; whoever has the link can be {name}.")


@group.command("list")
def list_operators(form: FormatOption = Format.table) -> None:
    """List all operators by name, the disabled included."""
    from app.access.operators import known_operators
    from app.cli.running import with_context
    from reconcile.instants import format_instant

    rows = [
        {
            "name": each.name,
            "role": each.role,
            "created_at": format_instant(each.created_at),
            "disabled_at": None if each.disabled_at is None else format_instant(each.disabled_at),
        }
        for each in with_context(lambda context, settings: known_operators(context))
    ]
    emit(rows, columns=("name", "role", "created_at", "disabled_at"), form=form)


@group.command("disable")
def disable(name: Name, by: ByOption = None) -> None:
    """Let a person do nothing any more; the trail keeps their name."""
    from app.access.operators import retire_operator
    from app.cli.running import with_context

    with_context(
        lambda context, settings: retire_operator(context, name=name, by=by),
        purpose="writing",
    )
    note(f"Disabled {name}.")
