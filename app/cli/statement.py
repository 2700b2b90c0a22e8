"""Commands on statements: import, imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from app.config import Settings

group = typer.Typer(
    help="Statements: the provider's settlement and transaction files.", no_args_is_help=True
)


@group.command("import")
def import_statement(
    file: FileArgument,
    source: Annotated[
        str | None, typer.Option(help="Whose statement it is; needed where there are several.")
    ] = None,
    mapping: MappingOption = None,
    dry_run: DryRunOption = False,
    accept_good: AcceptGoodOption = False,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    by: ByOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Import a provider's statement, to be reconciled with what was received. All, or nothing.

    The same file again changes nothing; a changed row is a new version, and the old one is kept.
    """
    from app.operations.imports import import_statement

    request = request_of(
        file,
        mapping=mapping,
        dry_run=dry_run,
        accept_good=accept_good,
        delimiter=delimiter,
        encoding=encoding,
        by=by,
    )
    run_import(
        lambda desk, settings, advance: import_statement(
            desk, request, source=_source(settings, source), progress=advance
        ),
        form,
    )


def _source(settings: Settings, said: str | None) -> str:
    """The one that was said, else the only one; "" where there are several or none."""
    from app.errors import UsageError

    known = sorted(settings.sources)
    if said is not None:
        if said not in known:
            raise UsageError(f"there is no source {said[:40]!r}; there are: {', '.join(known)}")
        return said
    return known[0] if len(known) == 1 else ""


@group.command("imports")
def list_statement_imports(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Imports at most.")] = 50,
    form: FormatOption = Format.table,
) -> None:
    """List the statements that were imported, newest first."""
    list_imports("statement", limit, form)
