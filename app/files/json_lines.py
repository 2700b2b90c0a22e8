"""Tables of JSON Lines: one object a line, read exactly or not at all.

Names, numbers and texts only; a name twice, NaN, and objects within objects are refused, for
whoever wrote them meant something that a table cannot say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn

from app.files.columns import plain_name
from app.files.problems import Refused
from app.files.tables import BATCH, MAX_CELL, MAX_COLUMNS, MAX_ROWS, Batch, Number
from app.files.text import encoding_of, lines

MAX_DIGITS: Final = 100
"""Characters of one number; no amount needs a third of them."""


class JsonLines:
    """One file of JSON Lines. Its heading is made of all names of the first MAX_LOOKED lines."""

    heading_row = 1

    def __init__(self, path: Path, *, encoding: str | None, names: Sequence[str]) -> None:
        """names: the columns that are looked for; others are passed over."""
        self._path, self._encoding = path, encoding_of(path, encoding)
        self._wanted = {plain_name(name): name for name in names}
        self.heading: Sequence[str] = self._heading()

    def _heading(self) -> list[str]:
        """The names that the first rows use, as they write them."""
        found: dict[str, str] = {}
        for row in islice(self._objects(), BATCH):
            for name in row[1]:
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
            rows: list[Sequence[str]] = [_cells(row, places, number) for number, row in part]
            yield Batch(rows, [number for number, _ in part])

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(lines(self._path, self._encoding), 1):
            if not line.strip():
                continue
            try:
                found = _DECODER.decode(line)
            except (ValueError, RecursionError) as error:
                raise Refused(number, f"the line is not a JSON object: {_reason(error)}") from None
            if not isinstance(found, dict) or len(found) > MAX_COLUMNS:
                raise Refused(number, f"the line is no JSON object of at most {MAX_COLUMNS} names")
            yield number, found


def _cells(row: dict[str, Any], places: dict[str, int], number: int) -> list[str]:
    cells = [""] * len(places)
    for name, value in row.items():
        place = places.get(plain_name(name))
        if place is None or value is None:
            continue
        if not isinstance(value, str):
            raise Refused(number, "is neither a text nor a number", column=name[:80])
        if len(value) > MAX_CELL:
            raise Refused(number, f"has more than {MAX_CELL:,} characters", column=name[:80])
        if cells[place]:
            raise Refused(number, "is there twice", column=name[:80])
        cells[place] = value
    return cells


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
