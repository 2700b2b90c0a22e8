"""Output of commands as table, JSON, JSON Lines or CSV."""

import json
import os
import sys
from codecs import lookup
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import tzinfo
from decimal import Decimal
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import typer

from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.errors import UsageError
from app.core.private_files import replacing
from app.core.references import composed
from app.core.text import printable
from reconcile.instants import SECOND, Instant, parse_instant
from reconcile.ledger.grouping import some
from reconcile.periods import Calendar

OrderArgument = Annotated[
    str, typer.Argument(help="The order's reference.", metavar="REF", callback=composed)
]
OrderArguments = Annotated[
    list[str] | None,
    typer.Argument(
        help="The orders' references.",
        metavar="REF",
        callback=lambda given: given and [composed(each) for each in given],
    ),
]


def moment(text: str | None, option: str) -> Instant | None:
    """Parse an RFC 3339 time, or a day as its start. Raise UsageError for any other text."""
    return None if text is None else _ends(text, option)[0]


def _ends(text: str, option: str) -> tuple[Instant, Instant]:
    try:
        if _is_day(text):
            return Calendar(merchant_zone()).day(text)
        return (moment := parse_instant(text)), moment
    except ValueError as error:
        raise UsageError(
            f"{option}: write a date such as 2026-10-01, or an RFC 3339 time ({error})"
        ) from None


def end_of(text: str | None, option: str) -> Instant | None:
    """Parse the end of a period: an RFC 3339 time, or a whole day. Raise UsageError for any other
    text."""
    return None if text is None else _ends(text, option)[1]


def deadline(text: str | None, option: str) -> Instant | None:
    """Parse a deadline: an RFC 3339 time, or a day's last second. Raise UsageError for any other
    text."""
    end = end_of(text, option)
    return Instant(end - SECOND) if end is not None and _is_day(str(text)) else end


def merchant_zone() -> tzinfo:
    """Return the merchant's time zone, or UTC if none is configured."""
    from app.config.load import load_settings
    from app.core.zones import zone_named

    return zone_named(load_settings().timezone or "UTC")


def local_sentence(
    row: Mapping[str, Any], zone: tzinfo, *, name: str = "sentence"
) -> dict[str, Any]:
    """Return the row with one text's times in the zone."""
    from app.core.zones import local_text

    return {**row, name: local_text(row[name], zone, named=True)}


def local_moment(row: Mapping[str, Any], zone: tzinfo, *, name: str) -> dict[str, Any]:
    """Return the row with one time in the zone."""
    from app.core.zones import local_moment as shown

    return {**row, name: shown(parse_instant(row[name]), zone)}


def _is_day(text: str) -> bool:
    return len(text) == len("2026-10-01")


STANDARD: Final = Path("-")

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="The file to write, or - for standard output. An existing file is replaced.",
    ),
]


def check_output(path: Path | None, *, binary: bool, what: str) -> None:
    """Raise UsageError for binary output to a terminal, or for a file in a missing folder."""
    if binary and path is None:
        raise UsageError(f"{what} is a binary format: give -o FILE, or -o - into a pipe")
    if binary and path == STANDARD and sys.stdout.isatty():
        raise UsageError(f"{what} is a binary format, which a terminal cannot show: give -o FILE")
    if path not in (None, STANDARD) and not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: create it first, or choose another")


@contextmanager
def whole_file(path: Path | None) -> Iterator[IO[bytes]]:
    """Open a new private file, which appears when complete, or standard output. Raise UsageError on
    failure."""
    if path is None or path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with replacing(path, part=part, exclusive=True) as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


MAX_NUMBER = 2**63 - 1
"""Maximum number that a database column can store."""


class Format(StrEnum):
    """Format in which a command prints its result."""

    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"
    csv_excel = "csv-excel"


def show_what_lacks() -> None:
    """Make the output streams escape characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def _in_utf_8() -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def print_file(text: str) -> None:
    """Print a file's content as UTF-8."""
    _in_utf_8()
    print(text, end="" if text.endswith("\n") else "\n")


def _encoded(form: Format | None) -> Format | None:
    if form not in (None, Format.table):
        _in_utf_8()
    if form is not Format.csv_excel:
        return form
    print(BYTE_ORDER_MARK, end="")
    return Format.csv


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        callback=_encoded,
        help="Output format: table to read; json, jsonl or csv for programs; csv-excel for Excel, "
        "with names shown correctly.",
    ),
]
DocumentOption = Annotated[
    Literal[Format.table, Format.json, Format.jsonl],
    typer.Option(
        "--format",
        callback=_encoded,
        help="Output format: table to read; json, or jsonl on one line, for programs.",
    ),
]
JsonOption = Annotated[
    Literal[Format.json, Format.jsonl],
    typer.Option("--format", callback=_encoded, help="Output format: json, or jsonl on one line."),
]


def sharing(
    options: Callable[..., None], *, without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds another function's parameters."""

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            command(**given)

        own = signature(command, eval_str=True).parameters.values()
        shared = signature(options, eval_str=True).parameters.values()
        declared = [
            *(each for each in own if each.kind is Parameter.POSITIONAL_OR_KEYWORD),
            *(each for each in shared if each.name not in without),
            *(each for each in own if each.kind is Parameter.KEYWORD_ONLY),
        ]
        run.__dict__["__signature__"] = Signature(
            [each.replace(kind=Parameter.KEYWORD_ONLY) for each in declared]
        )
        run.__annotations__ = {each.name: each.annotation for each in declared}
        return run

    return declare


def emit(rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], form: Format) -> None:
    """Print rows in this format. Tables and CSV show only the given columns."""
    if form is Format.json:
        print(json_text(list(rows), indent=2))
    elif form is Format.jsonl:
        for row in rows:
            print(json_text(row))
    elif form is Format.csv:
        print(csv_line(columns), end="")
        for row in rows:
            print(csv_line(cell(row.get(name)) for name in columns), end="")
    else:
        _table(rows, columns)


def emit_up_to(
    limit: int, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], form: Format
) -> None:
    """Print rows in this format."""
    emit(rows, columns=columns, form=form)
    if len(rows) == limit:
        note(f"There may be more than {these(rows)}: raise --limit.")


ROWS_OF_DOCUMENT: Final = 50


def emit_newest(rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str]) -> None:
    """Print the last 50 rows and the number of earlier rows."""
    emit(rows[-ROWS_OF_DOCUMENT:], columns=columns, form=Format.table)
    if len(rows) > ROWS_OF_DOCUMENT:
        print(
            f"{len(rows) - ROWS_OF_DOCUMENT:,} earlier rows are not shown: --format json "
            "lists all.\n"
        )


def these(rows: Sequence[Any]) -> str:
    """Return `this one` for a single row, or `these` with the number of rows."""
    return "this one" if len(rows) == 1 else f"these {len(rows):,}"


def document(value: Mapping[str, Any], form: Format = Format.json) -> None:
    """Print a document as JSON."""
    print(json_text(value, indent=None if form is Format.jsonl else 2))


def printed(value: Mapping[str, Any], form: Format) -> bool:
    """Print the document unless the format is a table. Return whether it was printed."""
    if form is not Format.table:
        document(value, form)
    return form is not Format.table


def members(value: Mapping[str, Any]) -> None:
    """Print a document as a table of its members."""
    rows = [{"what": name.replace("_", " "), "value": each} for name, each in value.items()]
    emit(rows, columns=("what", "value"), form=Format.table)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text
    )


def cell(value: Any) -> str:
    """Return a value as the text of a spreadsheet cell, with formulas escaped."""
    return str(value) if type(value) is int else safe_cell(_text(value))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_money(value):
        return f"{value['currency']} {value['amount']}"
    if isinstance(value, list):
        return some([str(item) for item in value])
    return str(value)


def _is_money(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"amount", "currency"}


def shown(value: Any) -> str:
    """Return a value as text for people."""
    if _is_money(value):
        return f"{value['currency']} {Decimal(value['amount']):,f}"
    return printable(_text(value))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) or _is_money(value)


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        values = [value for row in rows if (value := row.get(name)) is not None]
        number = bool(values) and all(map(_is_number, values))
        table.add_column(
            name.replace("_", " "),
            overflow="fold",
            justify="right" if number else "left",
            no_wrap=number or not any(" " in shown(value) for value in values),
        )
    for row in rows:
        # Text, not markup: a reference may hold square brackets.
        table.add_row(*(Text(shown(row.get(name))) for name in columns))
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).minimum
    if not sys.stdout.isatty():
        Console(width=max(needed, _FILE_WIDTH)).print(table)
    elif rows and needed > console.width:
        _one_below_another(rows, columns)
    else:
        console.print(table)


_FILE_WIDTH = 200

_ANY_WIDTH = 100_000


def _one_below_another(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    widest = max(map(len, columns))
    for row in rows:
        print()
        for name in columns:
            if text := shown(row.get(name)):
                print(f"{name.replace('_', ' '):<{widest}}  {text}")


def say(sentence: str) -> None:
    """Print a sentence that may contain text from outside."""
    print(printable(sentence))


def note(sentence: str) -> None:
    """Print a sentence for people on standard error."""
    print(printable(sentence), file=sys.stderr)


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Any]:
    """Show a progress bar on a terminal. Yield a function `advance(count)`, which moves the bar."""
    with _bar() as bar:
        if bar is None:
            yield lambda count: None
        else:
            task = bar.add_task(label, total=total)
            yield lambda count: bar.advance(task, count)


@contextmanager
def progress_ahead(label: str) -> Iterator[Any]:
    """Show a progress bar whose total is set later. Yield the functions `ahead(total)` and
    `advance(count)`."""
    with _bar() as bar:
        if bar is None:
            yield lambda total: None, lambda count: None
        else:
            task = bar.add_task(label, total=None)
            yield (
                lambda total: bar.update(task, total=total),
                lambda count: bar.advance(task, count),
            )


@contextmanager
def measure(label: str) -> Iterator[Any]:
    """Show a progress bar. Yield the function `show(done, total)`."""
    with _bar() as bar:
        yield _shown_as(bar, label)


@contextmanager
def measure_both(label: str, then: str) -> Iterator[Any]:
    """Show a progress bar for two parts of work. Yield `show(done, total)` for the first part and
    `advance(count)` for the second."""
    with _bar() as bar:
        show = _shown_as(bar, label)
        if bar is None:
            yield show, lambda count: None
        else:
            task = bar.add_task(then, total=None)
            yield show, lambda count: bar.advance(task, count)


def _shown_as(bar: Any, label: str) -> Any:
    if bar is None:
        return lambda done, total: None
    task = bar.add_task(label, total=None)
    return lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _bar() -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        yield bar


FLAT: Final = frozenset((Format.table, Format.csv, Format.csv_excel))

Items = AsyncIterator[Sequence[Mapping[str, Any]]]


async def for_people(
    items: Items, zone: tzinfo, form: Format, *, name: str = "sentence"
) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
    """Yield the rows as they are to be printed."""
    async for rows in items:
        people = form is Format.table
        yield [local_sentence(row, zone, name=name) for row in rows] if people else rows


TABLE_MAX = 1_000
"""Maximum number of rows in a table, because a table is laid out in memory."""


async def print_document(head: Mapping[str, Any], items: Items, *, name: str, form: Format) -> None:
    """Print one JSON document that ends with a long list."""
    indent = None if form is Format.jsonl else 2
    opening = json_text(head, indent=indent).removesuffix("}").rstrip()
    new_line, comma = ("\n  ", ",\n    ") if indent else (" ", ", ")
    print(f'{opening},{new_line}"{name}": [', end="")
    first = True
    async for batch in items:
        for item in batch:
            text = json_text(item, indent=indent)
            lead = (comma[1:] if indent else "") if first else comma
            print(lead + (text.replace("\n", "\n    ") if indent else text), end="")
            first = False
    print((new_line if indent and not first else "") + "]" + ("\n}" if indent else "}"))


async def print_items(items: Items, *, columns: Sequence[str], form: Format) -> int:
    """Print a list of any length. Return the number of rows that a table leaves out."""
    if form is Format.json:
        await _print_array(items)
        return 0
    if form is Format.table:
        return await _print_table(items, columns)
    if form is Format.csv:
        print(csv_line(columns), end="")
    async for batch in items:
        for item in batch:
            if form is Format.jsonl:
                print(json_text(item))
            else:
                print(csv_line(cell(item.get(name)) for name in columns), end="")
    return 0


async def _print_array(items: Items) -> None:
    lead = "["
    async for batch in items:
        for item in batch:
            text = json_text(item, indent=2)
            print(lead + "\n  " + text.replace("\n", "\n  "), end="")
            lead = ","
    print("[]" if lead == "[" else "\n]")


async def _print_table(items: Items, columns: Sequence[str]) -> int:
    rows: list[Mapping[str, Any]] = []
    left_out = 0
    async for batch in items:
        room = TABLE_MAX - len(rows)
        rows += batch[:room]
        left_out += len(batch[room:])
    emit(rows, columns=columns, form=Format.table)
    return left_out
