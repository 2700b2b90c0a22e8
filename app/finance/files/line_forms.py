"""Read a table's rows as book, statement or bank lines."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final, Protocol

from app.core.references import MAX_REFERENCE, composed, fault_of
from app.core.text import counted
from app.finance.files import shaping, tables
from app.finance.files.amounts import Amounts
from app.finance.files.dates import with_zones
from app.finance.files.mapping import Fields, FileMapping
from app.providers.identifiers import phone_digits
from reconcile.matching.books import match_keys

Cells = Mapping[str, Sequence[str]]

Columns = Sequence[Any]
"""Values of many rows, one sequence for each column. A column with an unclear cell is None."""

MAX_NAME: Final = 60

Attempt = Callable[..., Any]
"""Function that returns `read(*arguments)`, or None if unclear."""

NO_CURRENCY: Final = (
    "there is no column 'currency': name it in the heading, or in a mapping "
    '(currency = "KES" under [defaults])'
)


class LineForm(Protocol):
    """Rules for reading the rows of one kind of file."""

    FIELDS: Fields
    STAGED: Sequence[str]
    NAMED_BY: Sequence[str]
    ADDED_UP: Sequence[str]
    """Money fields whose sum a totals row can state."""

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        """Yield a sentence for each required column that is missing."""
        ...

    def values(self, cells: Cells, attempt: Attempt) -> Columns:
        """Return the rows' values, one column for each name in STAGED."""
        ...

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a staged row for display, with a masked phone number."""
        ...


@dataclass(slots=True)
class Understood:
    """Parsed rows of a batch, each beginning with its number. `unclear` rows have None for unclear
    values."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    unclear: list[tuple[Any, ...]] = field(default_factory=list)
    problems: list[tables.Problem] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    read: int = 0


class Understanding:
    """Parser of a table's rows with the rules of one line form. Raises RefusedTable for a missing
    required column."""

    def __init__(self, table: tables.SourceTable, form: LineForm, mapping: FileMapping) -> None:
        self._form, self._heading, self._table = form, table.heading, table
        self._made = shaping.all_made(mapping, table.heading, row=table.heading_row)
        # The column of each field; for a field made of several columns, the first one.
        plain = {tables.plain_name(name) for name in table.heading}
        named = {
            name: column
            if name not in mapping.optional or tables.plain_name(column) in plain
            else ""
            for name, column in mapping.columns.items()
        }
        self._places = tables.places_of(
            table.heading, fields=form.FIELDS.names, named=named, row=table.heading_row
        ) | {name: cells.places[0] for name, cells in self._made.items()}
        lacking = list(form.missing(self._places))
        if lacking:
            sentence = "; ".join(lacking)
            names = [name for name in form.FIELDS.names if repr(name) in sentence]
            raise tables.RefusedTable(
                table.heading_row, sentence + tables.found_instead(names, table.heading)
            )
        self._nameless = [] if mapping.unnamed_ignored else [
            place for place, name in enumerate(table.heading) if not name.strip()
        ]  # fmt: skip
        self._shortened = ShortenedReferences(
            {name: (place, table.heading[place]) for name, place in self._places.items()}
        )
        self._zone_place = None
        if mapping.zone_column is not None:
            self._zone_place = tables.column_place(
                mapping.zone_column, table.heading, row=table.heading_row
            )
        added_up = next((name for name in form.ADDED_UP if name in self._places), form.ADDED_UP[0])
        minor = "minor" if "minor" in form.STAGED else added_up
        self._totals = shaping.ShapedTotals(
            references=[self._places[name] for name in form.NAMED_BY if name in self._places],
            amount=self._places.get(added_up),
            made=self._made.get(added_up),
            currency=self._places.get("currency"),
            debit=self._places.get("debit") if added_up == "credit" else None,
            staged=(form.STAGED.index("currency"), form.STAGED.index(minor)),
            amounts=Amounts(mapping.marks),
            own=[
                place
                for name, place in self._places.items()
                if name not in (*form.FIELDS.amounts, "currency") or name == "balance"
                for place in (self._made[name].places if name in self._made else (place,))
            ],
            others=[
                (place, form.STAGED.index(name))
                for name, place in self._places.items()
                if name in ("fee", "net") and name != added_up and name not in self._made
            ],
        )

    def passed_over(self) -> list[str]:
        """Return the names of the columns that are not read."""
        read = set(self._places.values())
        read |= {place for cells in self._made.values() for place in cells.places}
        others = [name for place, name in enumerate(self._heading) if place not in read]
        return [name.strip()[:MAX_NAME] for name in others if name.strip()]

    def ignored(self) -> Mapping[shaping.Ignored, int]:
        """Return the number of ignored rows by rule."""
        return self._table.ignored if isinstance(self._table, shaping.Shaped) else {}

    def notes(self) -> list[str]:
        """Return notes for a person on the rows read so far."""
        return list(self._shortened.notes())

    def name_of(self, field: str) -> str | None:
        """Return the file's column for a field, or None."""
        return self._heading[self._places[field]] if field in self._places else None

    def batches(self) -> Iterator[Understood]:
        held: tables.Batch | None = None
        try:
            for batch in self._table.batches():
                if held is not None:
                    yield self.batch(held)
                held = batch
        except tables.RefusedTable:
            if held is not None:
                yield self.batch(held)
            raise
        if held is not None:
            yield self.batch(held, last=True)

    def batch(self, batch: tables.Batch, *, last: bool = False) -> Understood:
        """Parse a batch of rows."""
        found, rest = Understood(), batch
        self._shortened.look(batch.rows, batch.numbers)
        if self._nameless[:1] == [0] and _counts(batch.rows):
            self._nameless = self._nameless[1:]
        for number, row in self._totals.named(batch).items():
            if number in batch.broken:
                continue
            place = bisect_left(rest.numbers, number)
            self._take(tables.Batch(rest.rows[:place], rest.numbers[:place], rest.broken), found)
            rest = tables.Batch(rest.rows[place + 1 :], rest.numbers[place + 1 :], rest.broken)
            # If rows are left out, totals cannot be checked.
            why_not = None if self.ignored() else self._totals.why_not(row)
            self._set_aside(number, why_not, found)
        place = len(rest.rows)
        while last and place and not "".join(rest.rows[place - 1]).strip():
            place -= 1
        end = rest.rows[place - 1] if last and place else ()
        number = rest.numbers[place - 1] if end else 0
        if not (number in rest.broken or self._misplaced(end)) and (
            self._totals.says_amounts_alone(end)
        ):
            rows = rest.rows[: place - 1]
            self._take(tables.Batch(rows, rest.numbers[: place - 1], rest.broken), found)
            self._set_aside(number, self._totals.why_not_last(end), found)
        else:
            self._take(rest, found)
        return found

    def _set_aside(self, number: int, why_not: str | None, into: Understood) -> None:
        if why_not is None:
            into.totals.append(number)
        else:
            into.read += 1
            column = self.name_of(self._form.NAMED_BY[0])
            into.problems.append(tables.Problem(row=number, column=column, sentence=why_not))

    def _take(self, batch: tables.Batch, into: Understood) -> None:
        width, rows = len(self._heading), list[tuple[Any, ...]]()
        if not batch.rows:
            return
        regular = not batch.broken and all(len(row) == width for row in batch.rows)
        if regular and not any(row[place] for place in self._nameless for row in batch.rows):
            try:
                columns = self._values(batch.rows, lambda _, read, *arguments: read(*arguments))
            except tables.UnclearCell:
                pass
            else:
                rows = list(zip(batch.numbers, *columns, strict=True))
                into.read += len(rows)
        rows = rows or self._one_by_one(batch, into)
        self._totals.add(rows)
        into.rows += rows

    def _one_by_one(self, batch: tables.Batch, into: Understood) -> list[tuple[Any, ...]]:
        width, rows = len(self._heading), list[tuple[Any, ...]]()
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            broken = batch.broken.get(number)
            if broken is None and not "".join(row).strip():
                continue
            into.read += 1
            if broken is not None and broken.column is None:  # the row's subject is unknown
                into.problems.append(broken)
                continue
            unclear: list[tuple[str, tables.UnclearCell]] = []
            whole = [*row, *[""] * (width - len(row))][:width]
            columns = self._values([whole], partial(_attempt_one, unclear))
            if broken is not None:
                problems = [broken]
            elif sentence := self._misplaced(row):
                problems = [tables.Problem(row=number, column=None, sentence=sentence)]
            else:
                problems = [
                    tables.Problem(
                        row=number, column=self.name_of(name), sentence=str(error), word=error.word
                    )
                    for name, error in unclear
                ]
            into.problems += problems
            values = (number, *(None if column is None else column[0] for column in columns))
            (into.unclear if problems else rows).append(values)
        return rows

    def _misplaced(self, row: Sequence[str]) -> str | None:
        width = len(self._heading)
        beyond = [place for place in (*self._nameless, *range(width, len(row)))
                  if row[place : place + 1] and row[place].strip()]  # fmt: skip
        if len(row) < width:
            return f"the row has {len(row)} cells, but the heading has {width}"
        if not beyond:
            return None
        place = beyond[0] + 1
        where = f"column {place} ({tables.column_letters(place)}) has content"
        if beyond[0] >= width:
            return (
                f"the row has {len(row)} cells, but the heading has {width}: {where}, but no name"
            )
        return (
            f"{where}, but no name in the heading: name it there, clear its cells, or set "
            'unnamed = "ignored" in a mapping'
        )

    def _values(self, rows: Sequence[Sequence[str]], attempt: Attempt) -> Columns:
        columns = list(zip(*rows, strict=True))
        nothing = ("",) * len(rows)
        cells: dict[str, Any] = {
            name: columns[self._places[name]] if name in self._places else nothing
            for name in self._form.FIELDS.names
        }
        for name, made in self._made.items():
            cells[name] = attempt(name, made.read, columns)
        if self._zone_place is not None:
            for name in self._form.FIELDS.dates:
                cells[name] = attempt(name, with_zones, cells[name], columns[self._zone_place])
        return self._form.values(cells, attempt)


def _counts(rows: Sequence[Sequence[str]]) -> bool:
    cells = [row[0] for row in rows if any(row)]
    if not all(cell.isascii() and cell.isdigit() and len(cell) < MAX_INDEX for cell in cells):
        return False
    numbers = list(map(int, cells))
    return (len(numbers) > 1 or numbers in ([0], [1])) and all(
        before < after for before, after in pairwise(numbers)
    )


MAX_INDEX: Final = 9


def _attempt_one(
    unclear: list[tuple[str, tables.UnclearCell]],
    name: str,
    read: Callable[..., Any],
    /,
    *arguments: Any,
) -> Any:
    if any(argument is None for argument in arguments):
        return None
    try:
        return read(*arguments)
    except tables.UnclearCell as error:
        unclear.append((name, error))
        return None


def with_default(default: str | None) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return a function that replaces empty cells by the default."""
    if default is None:
        return lambda cells: cells
    return lambda cells: cells if all(cells) else [cell or default for cell in cells]


WHOLE_ROW: Final = ""
"""Field name in a problem that concerns a whole row."""


# --- references, closed vocabularies and phone numbers in cells -----------------------------------


APART: Final = "\x1f"
"""Separator between references that are checked together."""

_NOTHING: Final = "-–—_./* \t\u00a0"


_ERROR: Final = re.compile(r"#(?:[^\W_a-z][\w/]*[!?]|N/A|N/D|NV)")


def _plain(cells: Sequence[str]) -> list[str]:
    return [cell.strip() if cell.strip(_NOTHING) else "" for cell in cells]


def read_references(cells: Sequence[str]) -> list[str]:
    """Return references without surrounding blanks. Raise UnclearCell for an invalid or empty
    cell."""
    plain = _plain(cells)
    if not all(map(str.isascii, plain)):
        plain = list(map(composed, plain))
    if not all(plain):
        raise tables.UnclearCell("is empty")
    if max(map(len, plain)) > MAX_REFERENCE:
        raise tables.UnclearCell(f"is longer than {MAX_REFERENCE} characters")
    if not "".join(plain).isprintable():
        for fault in filter(None, map(fault_of, plain)):
            raise tables.UnclearCell(fault)
    together = APART + APART.join(plain)
    if f"{APART}#" in together and any(map(_ERROR.fullmatch, plain)):
        raise tables.UnclearCell(
            "is a spreadsheet error: correct it in the spreadsheet, and export the file again"
        )
    if f"{APART}=" in together or f"{APART}@" in together:
        raise tables.UnclearCell("is a formula: replace it with its value")
    return plain


def read_optional_references(cells: Sequence[str]) -> list[str | None]:
    """Return references, with None for empty cells. Raise UnclearCell for an invalid reference."""
    if not any(cells):
        return [None] * len(cells)
    plain = _plain(cells)
    if all(plain):
        return list(read_references(plain))
    given = iter(read_references(found) if (found := [cell for cell in plain if cell]) else ())
    return [next(given) if cell else None for cell in plain]


def optional_match_keys(names: Sequence[str | None]) -> list[str | None]:
    keys = iter(match_keys([name for name in names if name is not None]))
    return [None if name is None else next(keys) for name in names]


_WHOLE: Final = re.compile(r"[1-9][0-9]{7,14}")


class Vocabulary:
    """Parser of words of a closed vocabulary, ignoring case."""

    def __init__(
        self,
        name: str,
        vocabulary: Sequence[str],
        *,
        mapping: FileMapping,
        also: Mapping[str, str] | None = None,
        default: str | None,
    ) -> None:
        """Set the words that cells can have."""
        meant = {**(also or {}), **mapping.words.get(name, {})}
        self._vocabulary = vocabulary
        self._advice = (
            f"map it to one of them under [words.{name}] in a mapping, or leave its rows out "
            "under [ignore]"
        )
        if mapping.preset:
            self._advice = (
                f"map it to one of them under [words.{name}], or list it under [ignore], in a "
                f"copy of the preset (`tallyhook presets show {mapping.preset} > my.toml`), and "
                "import with --preset ./my.toml"
            )
        self._meaning: dict[str, str | None] = {word: word for word in vocabulary}
        self._meaning |= {word.strip().casefold(): meaning for word, meaning in meant.items()}
        if "" not in self._meaning and (default is None or not mapping.names(name)):
            self._meaning[""] = default
        if name in mapping.defaults:
            self._meaning[""] = mapping.defaults[name]
        self._known: dict[str, str | None] = dict(self._meaning)

    def read(self, cells: Sequence[str]) -> list[str | None]:
        """Return the word of each cell; None for an empty cell without a default. Raise UnclearCell
        for an unknown word."""
        known = self._known
        try:
            return [known[cell] for cell in cells]
        except KeyError:
            return [self._one(cell) for cell in cells]

    def _one(self, cell: str) -> str | None:
        plain = cell.strip()
        if plain.casefold() in self._meaning:
            return self._meaning[plain.casefold()]
        raise tables.UnclearCell(
            f"{tables.quoted(cell)} is none of {', '.join(self._vocabulary)}: {self._advice}",
            word=tables.quoted(cell),
        )


_NATIONAL: Final = (
    ', or phone_country = "254" there, or TALLYHOOK_PHONE_COUNTRY, for national numbers'
)


class Phones:
    """Parser that turns cells with phone numbers into E.164 digits."""

    def __init__(self, country: str | None) -> None:
        """Set the calling code for numbers with a leading zero. Without a code, such numbers are
        unclear."""
        self._country = country

    def read(self, cells: Sequence[str]) -> list[str | None]:
        """Return each cell's digits; None for an empty cell. Raise UnclearCell, without the number,
        for an unclear number."""
        whole = _WHOLE.fullmatch
        return [None if not cell else cell if whole(cell) else self._one(cell) for cell in cells]

    def _one(self, cell: str) -> str | None:
        if not cell.strip():
            return None
        digits = phone_digits(str(cell), self._country)
        if digits is None:
            hint = "" if self._country else _NATIONAL
            raise tables.UnclearCell(
                "is not a whole phone number with its country code: correct or clear it, or leave "
                f'the column out (phone = "" under [columns] in a mapping{hint})'
            )
        return digits


WATCHED: Final = frozenset(
    {
        "reference",
        "payment_reference",
        "original_payment",
        "order_reference",
        "session_reference",
        "entry_reference",
        "movement",
        "payout",
    }
)
"""Fields whose references must be exact."""

# --- references that a spreadsheet shortened ------------------------------------------------------

KEPT_DIGITS: Final = 15

_SCIENTIFIC: Final = re.compile(r"\s*[0-9](?:[.,][0-9]+)?E\+[0-9]+\s*", re.IGNORECASE)
_LONG: Final = re.compile(rf"^[ \t]*[0-9]{{{KEPT_DIGITS}}}([0-9]+)[ \t]*$", re.MULTILINE)

SHOWN: Final = 3


class ShortenedReferences:
    """Finder of columns whose references a spreadsheet has shortened, as in `4.81477E+15`. Source:
    Microsoft, "Excel specifications and limits"."""

    def __init__(self, columns: Mapping[str, tuple[int, str]]) -> None:
        """Set the column of each field as (index, name)."""
        self._columns = {key: column for key, column in columns.items() if key in WATCHED}
        self._rows: dict[str, list[int]] = defaultdict(list)
        self._found: dict[str, int] = defaultdict(int)
        self._whole: set[str] = set()
        """Fields with a long reference that no spreadsheet has shortened."""
        self._ended: dict[str, list[int]] = defaultdict(list)
        self._cut: dict[str, int] = defaultdict(int)

    def look(self, rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> None:
        for key, (place, _) in self._columns.items():
            try:
                cells = [row[place] for row in rows]
            except IndexError:  # a row that is too short
                cells = [row[place] if place < len(row) else "" for row in rows]
            text = "\n".join(cells)
            if "E+" in text or "e+" in text or tables.LongNumber in set(map(type, cells)):
                found = [
                    number
                    for number, cell in zip(numbers, cells, strict=True)
                    if type(cell) is tables.LongNumber or _SCIENTIFIC.fullmatch(cell)
                ]
                self._found[key] += len(found)
                self._rows[key] += found[: SHOWN - len(self._rows[key])]
            if key in self._whole or not (ends := _LONG.findall(text)):
                continue
            if any(end.strip("0") for end in ends):
                self._whole.add(key)
            else:
                self._cut[key] += len(ends)
                cut = (n for n, cell in zip(numbers, cells, strict=True) if _LONG.match(cell))
                self._ended[key] += [n for n, _ in zip(cut, range(SHOWN), strict=False)]

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each column whose references are shortened."""
        for key, (_, name) in self._columns.items():
            rows, count = self._rows[key], self._found[key]
            if not count and key not in self._whole:
                rows, count = self._ended[key][:SHOWN], self._cut[key]
            if count:
                yield (
                    "Excel shortened this reference: export the column as text. It is column "
                    f"{name.strip()[:60]!r} in {counted(count, 'row')}{listed_rows(rows, count)}."
                )


def listed_rows(rows: Sequence[int], count: int) -> str:
    """Return a phrase that lists the first rows."""
    named = ", ".join(f"{row:,}" for row in rows)
    return f", {'such as ' if count > len(rows) else ''}row {named}"
