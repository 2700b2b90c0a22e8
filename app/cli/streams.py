"""Documents and listings too long to be held in memory: printed as their items come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from app.cli.output import Format, cell, emit, json_text
from app.core.cells import csv_line

Items = AsyncIterator[list[dict[str, Any]]]

TABLE_MAX = 1_000
"""Rows of a table at most: it is laid out as a whole, and nobody reads more of them."""


async def print_document(head: Mapping[str, Any], items: Items, *, name: str, form: Format) -> None:
    """One JSON document whose last member `name` is a list that may be of any length."""
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
    """A listing. Returns how many rows a table left out; other formats leave none out."""
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
    rows: list[dict[str, Any]] = []
    left_out = 0
    async for batch in items:
        room = TABLE_MAX - len(rows)
        rows += batch[:room]
        left_out += len(batch[room:])
    emit(rows, columns=columns, form=Format.table)
    return left_out
