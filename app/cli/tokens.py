"""Commands on API tokens: add, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.operators import ByOption
from app.cli.output import DocumentOption, Format, FormatOption, document, emit, note

if TYPE_CHECKING:
    from app.access.tokens import TokenScope
    from app.config.settings import Settings
    from app.receiving.context import AppContext
    from reconcile.instants import Instant

group = typer.Typer(help="Programs that may use the API.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A name for the program, such as shop.")]


@group.command("add", epilog="Such as: tallyhook tokens add books --scope read --until 90d")
def add(
    name: Name,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="What it may be used for: read, orders, checkout, finance or evidence; again for "
            "several. Without: read, orders and checkout.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="When it ends: a moment, or a length of time such as 90d or 12h."),
    ] = None,
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Make a token and show it, this once."""
    from app.access.tokens import UNNAMED, issue_token, token_of
    from app.cli.running import with_context

    scopes = _scopes(scope) if scope else UNNAMED

    async def work(context: AppContext, settings: Settings) -> dict[str, Any]:
        token = await issue_token(context, name=name, scopes=scopes, until=until, by=by)
        entry = await token_of(context, token)
        assert entry is not None, "it was made just now"
        made = {"scopes": list(entry.scopes), "until": _said(entry.until)}
        return {"name": name, "token": token, **made}

    made = with_context(work, purpose="writing")
    if form is not Format.table:
        document(made, form)
    else:
        print(made["token"])
        note("Keep it now: it is not shown again.")
    if not scope:
        note(
            f"Its scopes are {', '.join(UNNAMED)}; --scope names others, finance and evidence "
            "among them."
        )


def _scopes(given: list[str]) -> list[TokenScope]:
    from app.access.tokens import TOKEN_SCOPES
    from app.core.errors import UsageError

    found = [scope for scope in TOKEN_SCOPES if scope in given]
    if set(given) - set(TOKEN_SCOPES):
        raise UsageError(f"--scope is one of: {', '.join(TOKEN_SCOPES)}")
    return found


def _said(instant: Instant | None) -> str | None:
    from reconcile.instants import format_instant

    return None if instant is None else format_instant(instant)


COLUMNS = ("name", "scopes", "until", "created_at", "revoked_at", "changed_at")


@group.command("list")
def list_tokens(form: FormatOption = Format.table) -> None:
    """List tokens by name, with what each is for; never the tokens themselves."""
    from app.access.tokens import known_tokens
    from app.cli.running import with_context

    rows = [
        {
            "name": entry.name,
            "scopes": " ".join(entry.scopes),
            "until": _said(entry.until),
            "created_at": _said(entry.created_at),
            "revoked_at": _said(entry.revoked_at),
            "changed_at": _said(entry.changed_at),
        }
        for entry in with_context(lambda context, settings: known_tokens(context))
    ]
    emit(rows, columns=COLUMNS, form=form)


@group.command("revoke")
def revoke(name: Name, by: ByOption = None) -> None:
    """Revoke a token; the next request with it is refused."""
    from app.access.tokens import withdraw_token
    from app.cli.running import with_context

    with_context(
        lambda context, settings: withdraw_token(context, name=name, by=by),
        purpose="writing",
    )
    note(f"Revoked {name}.")
