"""What importing an order book and importing a statement have in common on the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import Format, document, emit, emit_up_to, measure, note, say
from app.core.text import counted

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.finance.imports import Imported, Request
    from app.receiving.context import AppContext

FileArgument = Annotated[Path, typer.Argument(help="The file: CSV, XLSX or JSON Lines.")]
MappingOption = Annotated[
    Path | None, typer.Option(help="A TOML file that names columns, marks, dates and words.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Import nothing; show rows as understood, and problems.")
]
AcceptGoodOption = Annotated[
    bool,
    typer.Option(
        "--accept-good",
        help="Import the good rows and set the others aside; of one reference all, if any.",
    ),
]
RejectsOption = Annotated[
    Path | None, typer.Option(help="Where the others go; else beside the file.")
]
DelimiterOption = Annotated[
    str | None, typer.Option(help='What divides the cells of a CSV: "," ";" "|" or tab.')
]
EncodingOption = Annotated[
    str | None, typer.Option(help="The encoding of a text file, such as cp1252.")
]

ReferenceOption = Annotated[
    str | None, typer.Option(help="Only lines that name this order, group or payment.")
]
AsOfOption = Annotated[
    str | None, typer.Option(help="As known at this RFC 3339 instant instead of now.")
]
LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="Lines at most.")]

COLUMNS = ("number", "published_at", "file", "who", "read", "new", "changed", "unchanged",
           "rejected")  # fmt: skip

COLUMNS_NAMED = 20
"""Columns that were not read, in a sentence. Some files have a hundred; JSON has all of them."""

Use = Callable[["AppContext", "Settings", Any], Awaitable["Imported"]]
"""(context, settings, what to tell of progress) → what became of the file"""


def run_import(use: Use, form: Format) -> None:
    """Import with a progress bar and print what became of the file.

    Ends with exit code 1 where rows were rejected, or the file was.
    """
    from app.cli.running import with_context

    with measure("rows") as show:
        done = with_context(
            lambda context, settings: use(context, settings, show), purpose="writing"
        )
    if form is Format.table:
        _print(done)
    else:
        document(_document(done), form)
    if done.found:
        raise typer.Exit(1)


def _document(done: Imported) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "file": done.file,
        "import": done.number,
        "read": done.read,
        "new": done.new,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "rejected": done.rejected,
        "problems": [
            {"row": each.row, "column": each.column, "sentence": each.sentence}
            for each in done.problems
        ],
        "problems_left_out": done.left_out,
        "rejects": done.rejects,
        "columns_not_read": done.passed_over,
    }
    return whole | ({"rows": done.rows} if done.rows else {})


def _print(done: Imported) -> None:
    if done.rows:
        emit(done.rows, columns=tuple(done.rows[0]), form=Format.table)
    for each in done.problems:
        column = "" if each.column is None else f", column {each.column}"
        say(f"row {each.row}{column}: {each.sentence}")
    if done.left_out:
        print(f"… and {counted(done.left_out, 'more problem')}")
    counts = ", ".join(
        f"{getattr(done, name):,} {name}" for name in ("new", "changed", "unchanged", "rejected")
    )
    say(f"{done.file}: {counted(done.read, 'row')} read: {counts}.")
    if done.passed_over:
        note(f"Columns that were not read: {_few(done.passed_over)}.")
    if done.rejects is not None:
        note(f"The rows that were rejected are in {done.rejects}.")
    if done.number is None:
        note("Nothing was imported.")


def _few(names: Sequence[str]) -> str:
    """The first names of columns; how many more there are."""
    shown = ", ".join(names[:COLUMNS_NAMED])
    more = len(names) - COLUMNS_NAMED
    return f"{shown}, and {more:,} more" if more > 0 else shown


def request_of(path: Path, **said: Any) -> Request:
    """What the words of the command ask for."""
    from app.finance.imports import Request

    if said["delimiter"] in ("tab", "\\t"):
        said["delimiter"] = "\t"
    return Request(path=path, **said)


def list_imports(kind: Any, limit: int, form: Format) -> None:
    """Print the imports of a kind, newest first."""
    from app.cli.running import with_context
    from app.finance.imports import past_imports
    from reconcile.instants import format_instant

    found = with_context(lambda context, settings: past_imports(context, kind=kind, limit=limit))
    rows = [
        {name: getattr(each, name) for name in (*COLUMNS, "sha256")}
        | {"published_at": format_instant(each.published_at or 0)}
        for each in found
    ]
    emit_up_to(limit, rows, columns=COLUMNS, form=form)


def instant_of(said: str | None) -> int | None:
    """The instant of `--as-of`. Raises UsageError."""
    from app.core.errors import UsageError
    from reconcile.instants import parse_instant

    try:
        return None if said is None else parse_instant(said)
    except ValueError as error:
        raise UsageError(f"--as-of: {error}") from None


def shown_instant(instant: int | None) -> str | None:
    """An instant as it is printed."""
    from reconcile.instants import format_instant

    return None if instant is None else format_instant(instant)
