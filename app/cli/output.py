"""Listings as table, JSON, JSON Lines or CSV. Results go to standard output, all else to error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from app.cells import safe_cell
from app.errors import UsageError
from app.words import printable

MAX_NUMBER = 2**63 - 1
"""The largest number that a database takes, of a run, a deed or a leaf."""


class Format(StrEnum):
    """How a listing is written."""

    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


FormatOption = Annotated[
    Format, typer.Option("--format", help="table for people; json, jsonl or csv for programs.")
]


def emit(rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], form: Format) -> None:
    """Print rows, in a table or CSV by the given columns, in JSON whole."""
    if form is Format.json:
        print(json.dumps(list(rows), ensure_ascii=False, indent=2))
    elif form is Format.jsonl:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    elif form is Format.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        writer.writerows([cell(row.get(name)) for name in columns] for row in rows)
    else:
        _table(rows, columns)


def refuse_csv(form: Format) -> None:
    """Raises UsageError for CSV. A command that changes something asks before it does."""
    if form is Format.csv:
        raise UsageError("this is one document, not a list: say --format json or jsonl")


def document(value: Mapping[str, Any], form: Format = Format.json) -> None:
    """Print one JSON document, or the same on one line. Raises UsageError for CSV."""
    refuse_csv(form)
    print(json.dumps(value, ensure_ascii=False, indent=None if form is Format.jsonl else 2))


def cell(value: Any) -> str:
    """Text for a spreadsheet. A number of ours stays one; text never becomes a formula."""
    return str(value) if type(value) is int else safe_cell(_text(value))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and set(value) == {"amount", "currency"}:
        return f"{value['currency']} {value['amount']}"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return str(value)


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        # Text, not markup: a reference may hold square brackets.
        table.add_row(*(Text(printable(_text(row.get(name)))) for name in columns))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)


def say(sentence: str) -> None:
    """Print one line that may hold texts of others."""
    print(printable(sentence))


def note(sentence: str) -> None:
    """Say something to a person, on standard error."""
    print(printable(sentence), file=sys.stderr)


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Any]:
    """A progress bar on standard error, on a terminal only. Yields `advance(count)`."""
    with _bar() as bar:
        if bar is None:
            yield lambda count: None
        else:
            task = bar.add_task(label, total=total)
            yield lambda count: bar.advance(task, count)


@contextmanager
def measure(label: str) -> Iterator[Any]:
    """The same for work that knows how far it is. Yields `show(done, total)`."""
    with _bar() as bar:
        if bar is None:
            yield lambda done, total: None
        else:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _bar() -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield bar
