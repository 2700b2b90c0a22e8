"""What is common to the forms of files: rows become values, a column of many rows at once.

Where one cell of a batch is not clear, the batch is read again row by row, and each cell that is
not clear becomes a problem with its place. Good batches, which nearly all are, pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from app.finance.files.mapping import Fields, FileMapping
from app.finance.files.tables import Batch, Problem, Refused, Table, Unclear, places_of

Cells = Mapping[str, Sequence[str]]
"""By the name of a field: the cells of its column."""

Columns = Sequence[Any]
"""The values of many rows, column by column; None for a column that is not clear."""


MAX_NAME: Final = 60
"""Characters that are told of the name of a column that is not read."""


class Attempt(Protocol):
    """`attempt(field, read, *arguments)`: what `read` gives for the arguments."""

    def __call__(self, name: str, read: Callable[..., Any], /, *arguments: Any) -> Any:
        """None where it, or what one of its arguments rests on, is not clear."""
        ...


class Form(Protocol):
    """One kind of file."""

    FIELDS: Fields
    STAGED: Sequence[str]

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        """What the heading lacks, one sentence each."""
        ...

    def values(self, cells: Cells, attempt: Attempt) -> Columns:
        """The values of the rows, in the columns of STAGED; None for what is not clear."""
        ...

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        """A staged row, after its number, as people see it: the phone masked."""
        ...


@dataclass(slots=True)
class Understood:
    """What a batch says: the rows that are clear, each after its number, and the problems.

    unclear  the other rows, each after its number, with None for what is not clear
    """

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    unclear: list[tuple[Any, ...]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    read: int = 0


class Understanding:
    """Reads the batches of one table in one form. Raises Refused for a heading that lacks much."""

    def __init__(self, table: Table, form: Form, mapping: FileMapping) -> None:
        self._form, self._heading = form, table.heading
        self._places = places_of(
            table.heading, fields=form.FIELDS.names, named=mapping.columns, row=table.heading_row
        )
        lacking = list(form.missing(self._places))
        if lacking:
            raise Refused(table.heading_row, "; ".join(lacking))

    def passed_over(self) -> list[str]:
        """The heading's other columns, which nothing is read from: one may only be misspelled."""
        read = set(self._places.values())
        others = [name for place, name in enumerate(self._heading) if place not in read]
        return [name.strip()[:MAX_NAME] for name in others if name.strip()]

    def name_of(self, field: str) -> str | None:
        """What the heading calls a field; None where it has none."""
        return self._heading[self._places[field]] if field in self._places else None

    def batch(self, batch: Batch) -> Understood:
        """Its rows and problems."""
        width = len(self._heading)
        if not batch.broken and all(len(row) == width for row in batch.rows):
            try:
                columns = self._values(batch.rows, _at_once)
            except Unclear:
                pass
            else:
                rows = list(zip(batch.numbers, *columns, strict=True))
                return Understood(rows=rows, read=len(rows))
        found = Understood()
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            if number in batch.broken:
                self._broken(batch.broken[number], row, found)
            else:
                self._row(number, row, found)
        return found

    def _values(self, rows: Sequence[Sequence[str]], attempt: Attempt) -> Columns:
        columns = list(zip(*rows, strict=True))
        nothing = ("",) * len(rows)
        cells = {
            name: columns[self._places[name]] if name in self._places else nothing
            for name in self._form.FIELDS.names
        }
        return self._form.values(cells, attempt)

    def _row(self, number: int, row: Sequence[str], found: Understood) -> None:
        width = len(self._heading)
        if not any(row) or not "".join(row).strip():
            return
        found.read += 1
        misfit = len(row) < width or any(row[width:])
        trying = _Trying()
        values = self._tried(number, row, trying)
        if misfit:
            sentence = f"the row has {len(row)} cells, and the heading {width}"
            found.problems.append(Problem(row=number, column=None, sentence=sentence))
        else:
            for name, sentence in trying.unclear:
                problem = Problem(row=number, column=self.name_of(name), sentence=sentence)
                found.problems.append(problem)
        (found.unclear if misfit or trying.unclear else found.rows).append(values)

    def _broken(self, problem: Problem, row: Sequence[str], found: Understood) -> None:
        found.read += 1
        found.problems.append(problem)
        if problem.column is not None:  # else nobody knows what it speaks of
            found.unclear.append(self._tried(problem.row, row, _Trying()))

    def _tried(self, number: int, row: Sequence[str], trying: _Trying) -> tuple[Any, ...]:
        width = len(self._heading)
        columns = self._values([[*row, *[""] * (width - len(row))][:width]], trying)
        return (number, *(None if column is None else column[0] for column in columns))


def _at_once(_name: str, read: Callable[..., Any], /, *arguments: Any) -> Any:
    return read(*arguments)


class _Trying:
    """Tries one row, and notes what is not clear."""

    def __init__(self) -> None:
        self.unclear: list[tuple[str, str]] = []

    def __call__(self, name: str, read: Callable[..., Any], /, *arguments: Any) -> Any:
        if any(argument is None for argument in arguments):
            return None
        try:
            return read(*arguments)
        except Unclear as error:
            self.unclear.append((name, str(error)))
            return None


def with_default(default: str | None) -> Callable[[Sequence[str]], Sequence[str]]:
    """Fills empty cells."""
    if default is None:
        return lambda cells: cells
    return lambda cells: cells if all(cells) else [cell or default for cell in cells]


WHOLE_ROW: Final = ""
"""The name under which a row is tried as a whole: its problem has no column."""
