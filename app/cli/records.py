"""Commands on order books: import, list, imports."""

from __future__ import annotations

import typer

from app.cli.imports import (
    AcceptGoodOption,
    AsOfOption,
    DelimiterOption,
    DryRunOption,
    EncodingOption,
    FileArgument,
    LimitOption,
    MappingOption,
    ReferenceOption,
    RejectsOption,
    instant_of,
    list_imports,
    request_of,
    run_import,
    shown_instant,
)
from app.cli.operators import ByOption
from app.cli.output import DocumentOption, Format, FormatOption, emit_up_to

group = typer.Typer(
    help="Order books: what the merchant's own records say is owed and paid.",
    no_args_is_help=True,
)


@group.command(
    "import", epilog="Such as: tallyhook records import orders.csv --mapping shop.toml --dry-run"
)
def import_records(
    file: FileArgument,
    mapping: MappingOption = None,
    dry_run: DryRunOption = False,
    accept_good: AcceptGoodOption = False,
    rejects: RejectsOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Import an order book, to be reconciled with what was received. All of it, or nothing.

    The same file again changes nothing; a changed row is a new version, and the old one is kept.
    A book says nothing of an order's price: ledgers change only by source, session_reference and
    payment_reference, which lead the provider's events to the order.
    """
    from app.finance.imports import import_book

    request = request_of(
        file,
        mapping=mapping,
        dry_run=dry_run,
        accept_good=accept_good,
        rejects=rejects,
        delimiter=delimiter,
        encoding=encoding,
        by=by,
    )
    run_import(
        lambda context, settings, show: import_book(
            context, request, sources=settings.sources.keys(), progress=show
        ),
        form,
    )


@group.command("list")
def list_records(
    reference: ReferenceOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    form: FormatOption = Format.table,
) -> None:
    """List the lines of the order book, by key, as they are known or were at an instant."""
    from app.cli.running import with_context
    from app.finance.read_lines import list_book
    from reconcile.money import to_json

    at = instant_of(as_of)
    lines = with_context(
        lambda context, _: list_book(context, reference=reference, as_of=at, limit=limit)
    )
    rows = [
        {
            "line": line.line_id,
            "reference": line.reference,
            "kind": line.kind,
            "amount": to_json(line.money),
            "placed_at": shown_instant(line.placed_at),
            "status": line.status,
            "group": line.group,
        }
        for line in lines
    ]
    columns = ("line", "reference", "kind", "amount", "placed_at", "status", "group")
    emit_up_to(limit, rows, columns=columns, form=form)


@group.command("imports")
def list_book_imports(
    limit: LimitOption = 50,
    form: FormatOption = Format.table,
) -> None:
    """List the order books that were imported, newest first."""
    list_imports("book", limit, form)
