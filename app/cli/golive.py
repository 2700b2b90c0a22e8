"""The go-live checklist: run it, print it, and sign what only a person can state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import Format, FormatOption, emit, note

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.golive.golive import Item
    from app.receiving.context import Desk
    from reconcile.instants import Instant

group = typer.Typer(invoke_without_command=True)

COLUMNS = ("item", "state", "by", "at", "note", "sentence")


@group.callback()
def golive(
    context: typer.Context,
    page: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Also write it as a page for printing (HTML)."),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """The checklist before real money moves: what a program can check, and what people sign.

    Checks keys, the public endpoint and the environment, adds what was rehearsed and signed, and
    prints the list. Exit code 1 until it is complete.
    """
    if context.invoked_subcommand is not None:
        return
    from app.bootstrap_golive import run_checklist
    from app.cli.files import check_output, whole_file
    from app.cli.golive_page import page_of
    from app.cli.running import with_desk
    from app.golive.golive import open_items

    check_output(page, binary=False, what="the page")

    async def check(desk: Desk, settings: Settings) -> tuple[str, list[Item], Instant]:
        items = await run_checklist(desk, settings)
        return desk.store.environment or "", items, desk.clock.now()

    environment, items, now = with_desk(check, purpose="writing")
    rows = [item.document() for item in items]
    emit(rows, columns=COLUMNS, form=form)
    if page is not None:
        with whole_file(page) as file:
            file.write(page_of(rows, environment=environment, at=now).encode())
        note(f"Wrote {page}.")
    left = open_items(items)
    if left:
        note(f"Not complete: {', '.join(left)}.")
        raise typer.Exit(1)


@group.command("sign")
def sign(
    item: Annotated[str, typer.Argument(help="The item's name, as the list has it.")],
    by: Annotated[str, typer.Option(help="Who states it: a person's name.")],
    text: Annotated[str, typer.Option("--note", help="What is stated, and where it is kept.")],
) -> None:
    """State by name what no program can check. Statements are added and never changed."""
    from app.cli.running import with_desk
    from app.golive import golive

    with_desk(lambda desk, settings: golive.sign(desk, item, by=by, note=text), purpose="writing")
    note(f"{by} has signed {item}.")
