"""Tables of JSON Lines: one object a line, read exactly or not at all.

Names, numbers and texts only; a name twice, NaN, and objects within objects are problems of their
row, for whoever wrote them meant something that a table cannot say. So is a line that is no object;
a file that has hardly anything else is no JSON Lines, and refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn

from app.finance.files.tables import (
    BATCH,
    MAX_CELL,
    MAX_COLUMNS,
    MAX_ROWS,
    Batch,
    Number,
    Problem,
    Refused,
    plain_name,
)
from app.finance.files.text import encoding_of, lines

MAX_DIGITS: Final = 100
"""Characters of one number; no amount needs a third of them."""

MAX_BROKEN: Final = 100
"""Of the first lines, so many may be no objects even where fewer are: that many problems can be
told one by one. A JSON document over several lines has more."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """A line that is no object: what is wrong with it, and its text."""

    sentence: str
    text: str


class JsonLines:
    """One file of JSON Lines. Its heading is made of all names of the first BATCH lines."""

    heading_row = 1

    def __init__(self, path: Path, *, encoding: str | None, names: Sequence[str]) -> None:
        """names: the columns that are looked for; others are passed over."""
        self._path, self._encoding = path, encoding_of(path, encoding)
        self._wanted = {plain_name(name): name for name in names}
        self.heading: Sequence[str] = self._heading()

    def _heading(self) -> list[str]:
        """The names that the first rows use, as they write them."""
        found: dict[str, str] = {}
        looked = list(islice(self._objects(), BATCH))
        _refuse_other_things(looked)
        for _, row in looked:
            for name in () if isinstance(row, _Broken) else row:
                plain = plain_name(name)
                if plain in self._wanted:
                    found.setdefault(plain, name)
        if not found:
            raise Refused(1, f"the file names none of: {', '.join(self._wanted.values())}")
        return list(found.values())

    def batches(self) -> Iterator[Batch]:
        """All rows."""
        places = {plain_name(name): place for place, name in enumerate(self.heading)}
        objects, read = self._objects(), 0
        while part := list(islice(objects, BATCH)):
            read += len(part)
            if read > MAX_ROWS:
                raise Refused(
                    part[0][0], f"there are more than {MAX_ROWS:,} rows: import it in parts"
                )
            yield _batch(part, places)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | _Broken]]:
        for number, line in enumerate(lines(self._path, self._encoding), 1):
            if not line.strip():
                continue
            try:
                found = _DECODER.decode(line)
            except (ValueError, RecursionError) as error:
                found = _Broken(f"the line is not a JSON object: {_reason(error)}", line)
            else:
                if not isinstance(found, dict) or len(found) > MAX_COLUMNS:
                    sentence = f"the line is no JSON object of at most {MAX_COLUMNS} names"
                    found = _Broken(sentence, line)
            yield number, found


def _refuse_other_things(looked: Sequence[tuple[int, object]]) -> None:
    """Raises Refused with the first line that is no object where nearly none is."""
    broken = [(number, row) for number, row in looked if isinstance(row, _Broken)]
    if broken and len(broken) >= min(len(looked), max(MAX_BROKEN, len(looked) // 2) + 1):
        number, row = broken[0]
        others = ", nor are others: JSON Lines has one object on each line"
        raise Refused(number, row.sentence + (others if len(broken) > 1 else ""))


def _batch(part: Sequence[tuple[int, dict[str, Any] | _Broken]], places: dict[str, int]) -> Batch:
    rows: list[Sequence[str]] = []
    broken = {}
    for number, row in part:
        if isinstance(row, _Broken):
            # One less than a cell may have: an apostrophe may come before it among the rejects.
            rows.append([row.text.strip()[: MAX_CELL - 1], *[""] * (len(places) - 1)])
            broken[number] = Problem(row=number, column=None, sentence=row.sentence)
            continue
        cells, problem = _cells(row, places, number)
        rows.append(cells)
        if problem is not None:
            broken[number] = problem
    return Batch(rows, [number for number, _ in part], broken)


def _cells(
    row: dict[str, Any], places: dict[str, int], number: int
) -> tuple[list[str], Problem | None]:
    """The cells, and the first one's problem that is none."""
    cells, problem = [""] * len(places), None
    for name, value in row.items():
        place = places.get(plain_name(name))
        if place is None or value is None:
            continue
        sentence = _misfit(value, cells[place])
        if sentence is None:
            cells[place] = value
        elif problem is None:
            problem = Problem(row=number, column=name[:80], sentence=sentence)
    return cells, problem


def _misfit(value: Any, before: str) -> str | None:
    """Why a value cannot be the cell; `before` is what the row said of it already."""
    if not isinstance(value, str):
        return "is neither a text nor a number"
    if len(value) > MAX_CELL:
        return f"has more than {MAX_CELL:,} characters"
    return "is there twice" if before else None


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it breaks at character {error.pos + 1}"
    return str(error) if isinstance(error, _Unfit) else "it is nested too deeply"


class _Unfit(ValueError):
    """JSON that says something a table cannot."""


def _number(text: str) -> Number:
    if len(text) > MAX_DIGITS:
        raise _Unfit(f"it has a number of more than {MAX_DIGITS} characters")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _Unfit("it has a number with an exponent out of all bounds") from None
    if value and abs(value.adjusted()) > MAX_DIGITS:
        raise _Unfit("it has a number that is too large or too small")
    return Number(format(value, "f"))


def _constant(_name: str) -> NoReturn:
    raise _Unfit("it has NaN or Infinity")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Unfit("it has the same name twice")
    return result


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)
