"""Commands on orders: list and show."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.output import Format, FormatOption, document, emit, note
from reconcile.ledger import FINDING_CODES, OUTCOMES

group = typer.Typer(help="Orders and their explained ledgers.", no_args_is_help=True)

COLUMNS = ("order", "outcome", "fulfillable", "captured", "findings", "explanation")


@group.command("list")
def list_orders(
    outcome: Annotated[
        str | None, typer.Option(help=f"Only one of: {', '.join(OUTCOMES)}.")
    ] = None,
    finding: Annotated[str | None, typer.Option(help="Only with this finding.")] = None,
    after: Annotated[str, typer.Option(help="Only references after this one.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Orders at most.")] = 100,
    form: FormatOption = Format.table,
) -> None:
    """List orders with their outcome and one line of explanation."""
    from app.cli.running import with_desk
    from app.errors import UsageError
    from app.operations import read_orders
    from reconcile.explain import ledger_summary

    for word, words in ((outcome, OUTCOMES), (finding, FINDING_CODES)):
        if word is not None and word not in words:
            raise UsageError(f"{word!r} is none of: {', '.join(words)}")
    ledgers = with_desk(
        lambda desk, settings: read_orders.list_orders(
            desk,
            after=after,
            limit=limit,
            outcome=outcome,
            finding=finding,
        )
    )
    rows = [ledger_summary(ledger) for ledger in ledgers]
    for row in rows:
        row["captured"] = row["totals"]["captured"]
    emit(rows, columns=COLUMNS, form=form)
    if len(rows) == limit:
        note(f"There may be more: --after {rows[-1]['order']}")


@group.command("show")
def show_order(
    reference: Annotated[str, typer.Argument(help="The order's reference.")],
    as_of: Annotated[
        str | None, typer.Option(help="As it could be known at this RFC 3339 moment.")
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Show one order's ledger: what happened, why we say so, and what would change it."""
    from app.cli.ledger_text import print_ledger
    from app.cli.running import with_desk
    from app.errors import UsageError
    from app.operations.read_orders import order_document
    from reconcile.instants import parse_instant

    try:
        instant = None if as_of is None else parse_instant(as_of)
    except ValueError as error:
        raise UsageError(f"--as-of: {error}") from None
    found = with_desk(lambda desk, settings: order_document(desk, reference, as_of=instant))
    if form is Format.table:
        print_ledger(found)
    else:
        document(found, form)
