"""Draft a mapping from a person's choices about columns."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from app.core.masking import clipped, masked_at_sight
from app.core.text import printable
from app.finance.files import opening, tables, workbooks
from app.finance.files.mapping import Fields

MOST_ROWS: Final = 5

MOST_CELL: Final = 60

MOST_WORDS: Final = 10

IGNORED: Final = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePreview:
    """Heading and first rows of a file, with masked phone numbers."""

    columns: Sequence[str]
    places: Mapping[str, str]
    rows: Sequence[Sequence[str]]
    words: Mapping[str, Sequence[str]]

    def suggested(self, name: str) -> str:
        """Return the column with the most similar name."""
        plain = {tables.plain_name(each): each for each in self.columns}
        near = get_close_matches(tables.plain_name(name), plain, n=1, cutoff=0.75)
        return plain[near[0]] if near else ""


def preview_table(
    path: Path,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> TablePreview:
    """Return the heading and first rows of an unknown file."""

    def filled(row: Sequence[str]) -> int:
        return sum(1 for cell in row if cell.strip())

    form = opening.format_of(path)
    if form == "json_lines":
        raise tables.RefusedTable(1, "name the columns of JSON Lines in a mapping file")
    table: tables.SourceTable
    if form == "workbook":
        most = tables.SEARCHED_ROWS + tables.BATCH
        table = workbooks.XlsxTable(path, sheet=sheet, recognize=filled, most=most)
    else:
        table = tables.CsvTable(path, encoding=encoding, delimiter=delimiter, recognize=filled)
    first = next(iter(table.batches()), tables.Batch([], []))
    columns = [name.strip() for name in table.heading]
    named = [(place, name) for place, name in enumerate(columns) if name]
    return TablePreview(
        columns=[name for _, name in named],
        places={name: str(place + 1) for place, name in named if columns.count(name) == 1},
        rows=[
            [_shown(row[place] if place < len(row) else "") for place, _ in named]
            for row in first.rows[:MOST_ROWS]
        ],
        words={
            name: words
            for place, name in named
            if (words := _words_of(row[place] for row in first.rows if place < len(row)))
        },
    )


def _shown(cell: str) -> str:
    return clipped(masked_at_sight(printable(cell)), MOST_CELL)


def _words_of(cells: Iterable[str]) -> Sequence[str]:
    words = dict[str, None]()
    for cell in cells:
        words[cell.strip()] = None
        if len(words) > MOST_WORDS or len(cell) > MOST_CELL:
            return ()
    return sorted(words, key=lambda word: not word) if any(words) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingDraft:
    """A person's choices about the columns of a file."""

    kind: str
    columns: Mapping[str, str]
    has_heading: bool = True
    less: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    def toml(self, fields: Fields, heading: Sequence[str]) -> str:
        """Return the draft as the text of a mapping file."""
        plain = {tables.plain_name(name) for name in heading}
        singles = {
            name: column
            for name in fields.names
            if (column := self.columns.get(name, "")) or tables.plain_name(name) in plain
            if not self.less.get(name)
        }
        lines = [f"kind = {_quoted(self.kind)}", *([] if self.has_heading else ["heading_row = 0"])]
        lines += [f"{key} = {_quoted(value)}" for key, value in self.keys.items() if value]
        if any(self.less.values()) and not self.keys.get("signs"):
            lines += ['signs = "none"']
        lines += _section("columns", singles)
        for name, less in self.less.items():
            if less:
                added = [f"add = [{_quoted(column)}]" for column in [self.columns[name]] if column]
                lines += ["", f"[amounts.{name}]", *added, f"subtract = [{_quoted(less)}]"]
        defaults = {name: value for name, value in self.defaults.items() if value}
        lines += _section("defaults", defaults)
        ignored = dict[str, list[str]]()
        for name, words in self.words.items():
            meant = {word: ours for word, ours in words.items() if ours and ours != IGNORED}
            lines += _section(f"words.{name}", meant)
            for word, ours in words.items():
                if ours == IGNORED:
                    ignored.setdefault(self.columns[name], []).append(word)
        if ignored:
            lines += ["", "[ignore]"]
            lines += [
                f"{_quoted(column)} = [{', '.join(map(_quoted, words))}]"
                for column, words in ignored.items()
            ]
        return "\n".join(lines) + "\n"


def _section(name: str, values: Mapping[str, str]) -> list[str]:
    if not values:
        return []
    pairs = (f"{_quoted(key)} = {_quoted(value)}" for key, value in values.items())
    return ["", f"[{name}]", *pairs]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
