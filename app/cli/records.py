"""Commands on order books: import, imports."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.imports import (
    AcceptGoodOption,
    DelimiterOption,
    DryRunOption,
    EncodingOption,
    FileArgument,
    MappingOption,
    list_imports,
    request_of,
    run_import,
)
from app.cli.operators import ByOption
from app.cli.output import Format, FormatOption

group = typer.Typer(
    help="Order books: what the merchant's own records say is owed and paid.",
    no_args_is_help=True,
)


@group.command("import")
def import_records(
    file: FileArgument,
    mapping: MappingOption = None,
    dry_run: DryRunOption = False,
    accept_good: AcceptGoodOption = False,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    by: ByOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Import an order book, to be reconciled with what was received. All of it, or nothing.

    The same file again changes nothing; a changed row is a new version, and the old one is kept.
    A book makes no statement about an order: ledgers do not change by it.
    """
    from app.operations.imports import import_book

    request = request_of(
        file,
        mapping=mapping,
        dry_run=dry_run,
        accept_good=accept_good,
        delimiter=delimiter,
        encoding=encoding,
        by=by,
    )
    run_import(lambda desk, _, advance: import_book(desk, request, progress=advance), form)


@group.command("imports")
def list_book_imports(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Imports at most.")] = 50,
    form: FormatOption = Format.table,
) -> None:
    """List the order books that were imported, newest first."""
    list_imports("book", limit, form)
