"""Commands on statements: import, list, imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from app.config.settings import Settings

group = typer.Typer(
    help="Statements: the provider's settlement and transaction files.", no_args_is_help=True
)


@group.command(
    "import", epilog="Such as: tallyhook statement import october.csv --source shop --dry-run"
)
def import_statement(
    file: FileArgument,
    source: Annotated[
        str | None, typer.Option(help="Whose statement it is; needed where there are several.")
    ] = None,
    mapping: MappingOption = None,
    dry_run: DryRunOption = False,
    accept_good: AcceptGoodOption = False,
    rejects: RejectsOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Import a provider's statement, to be reconciled with what was received. All, or nothing.

    The same file again changes nothing; a changed row is a new version, and the old one is kept.
    """
    from app.finance.imports import import_statement

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
        lambda context, settings, show: import_statement(
            context,
            request,
            source=_source(settings, source),
            own_orders=_has_own_orders(settings, _source(settings, source)),
            progress=show,
        ),
        form,
    )


def _has_own_orders(settings: Settings, source: str) -> bool:
    return source in settings.sources and settings.sources[source].orders == "own"


def _source(settings: Settings, said: str | None) -> str:
    """The one that was said, else the only one; "" where there are none.

    Raises UsageError where it is for a person to say: a line under another source is another line,
    and its money would count twice.
    """
    from app.core.errors import UsageError

    known = sorted(settings.sources)
    if said is not None:
        if said not in known:
            raise UsageError(f"there is no source {said[:40]!r}; there are: {', '.join(known)}")
        return said
    if len(known) > 1:
        raise UsageError(f"say --source: whose statement it is; there are: {', '.join(known)}")
    return known[0] if known else ""


@group.command("list")
def list_statement_lines(
    reference: ReferenceOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    form: FormatOption = Format.table,
) -> None:
    """List the lines of statements, by key, as they are known or were at an instant."""
    from app.cli.running import with_context
    from app.finance.read_lines import list_statement
    from reconcile.money import Money, to_json

    at = instant_of(as_of)
    lines = with_context(
        lambda context, _: list_statement(context, reference=reference, as_of=at, limit=limit)
    )
    rows = [
        {
            "line": line.line_id,
            "payment": line.payment,
            "order": line.order,
            "type": line.kind,
            "gross": to_json(Money(minor=line.gross, currency=line.currency)),
            "fee": to_json(Money(minor=line.fee, currency=line.currency)),
            "net": to_json(Money(minor=line.net, currency=line.currency)),
            "settled_at": shown_instant(line.settled_at),
            "payout": line.payout,
        }
        for line in lines
    ]
    columns = ("line", "payment", "order", "type", "gross", "fee", "net", "settled_at", "payout")
    emit_up_to(limit, rows, columns=columns, form=form)


@group.command("imports")
def list_statement_imports(
    limit: LimitOption = 50,
    form: FormatOption = Format.table,
) -> None:
    """List the statements that were imported, newest first."""
    list_imports("statement", limit, form)
