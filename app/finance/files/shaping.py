"""Select a table's data rows, and build combined cells."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from app.finance.files import tables
from app.finance.files.amounts import Amounts, Marks, read_currencies
from app.finance.files.mapping import (
    Fields,
    FileMapping,
    FirstOf,
    Fold,
    JoinedOf,
    Made,
    Signs,
    SumOf,
)
from app.finance.files.preset_rows import ROW_FUNCTIONS, MadeRows, RowFunction
from reconcile.money import Money, is_currency

# --- words, with * for any text -------------------------------------------------------------------


class WordFilter:
    """Words that are compared with cells. Words after `!` are exceptions."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [(word, pattern_of(word)) for word in words if not word.startswith("!")]
        self._not = [pattern_of(word[1:]) for word in words if word.startswith("!")]
        self._known: dict[str, str | None] = {}

    def fitting(self, cell: str) -> str | None:
        if cell not in self._known:
            if len(self._known) > MAX_REMEMBERED:
                self._known.clear()
            text = cell.strip().casefold()[:MAX_WORD]
            found = next((w for w, p in self._words if p.fullmatch(text)), None)
            self._known[cell] = None if any(p.fullmatch(text) for p in self._not) else found
        return self._known[cell]


MAX_WORD: Final = 200
"""Maximum characters of a cell that is compared with patterns."""

MAX_REPORTED: Final = 50

MAX_REMEMBERED: Final = 10_000


def pattern_of(word: str) -> re.Pattern[str]:
    """Return a pattern for a word; a star stands for any text."""
    first, *inner = map(re.escape, word.strip().casefold().split("*"))
    if not inner:
        return re.compile(first)
    *between, last = inner
    found = "".join(f"(?>.*?{part})" for part in between)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)


# --- which rows are data --------------------------------------------------------------------------


Ignored = tuple[str, str]
"""Rule that left rows out: (column, word). An empty word means that a required word was missing."""


class Shaped:
    """Table that contains only data rows."""

    def __init__(self, table: tables.SourceTable, mapping: FileMapping, fields: Fields) -> None:
        """Apply a mapping's rules to a table. Raise RefusedTable if a needed column is missing."""
        self.heading, self.heading_row = table.heading, table.heading_row
        self._notes = [*table.notes]
        self.notes: Sequence[str] = self._notes
        self.of_ours = table.of_ours
        self.head, self.periods = table.head, table.periods
        self.table: Final = table
        self._shape = mapping.shape
        self._function: RowFunction | None = ROW_FUNCTIONS.get(mapping.rows or "")
        self._add_up = SumOfCells(mapping.marks).total
        self.ignored: Counter[Ignored] = Counter()
        adds = {*(self._function.adds if self._function else ())}
        if self._function is not None and not (adds and adds <= {*self.heading}):
            self._width = len(self.heading)
            self.heading = [*self.heading, *self._function.adds]
        else:
            self._function = None  # rejected rows have the columns already
        self._keep = self._rules(mapping.shape.keep)
        self._ignore = self._rules(mapping.shape.ignore)
        self._fold = None
        if mapping.shape.fold is not None:
            names = mapping.looked_for(fields)
            self._fold = _Folding(mapping.shape.fold, self, names, mapping.marks)

    def _rules(self, rules: Mapping[str, Sequence[str]]) -> list[tuple[str, int, WordFilter]]:
        place = partial(tables.column_place, heading=self.heading, row=self.heading_row)
        return [(name, place(name), WordFilter(words)) for name, words in rules.items()]

    def batches(self) -> Iterator[tables.Batch]:
        """Yield the data rows in batches."""
        self.ignored.clear()
        batches = self._emptied(self._chosen(self._made(self._cut(self.table.batches()))))
        yield from batches if self._fold is None else self._fold.batches(batches)

    def _cut(self, batches: Iterator[tables.Batch]) -> Iterator[tables.Batch]:
        first, last = self._shape.skip_first, self._shape.skip_last
        if self.of_ours or not (first or last):
            yield from batches
            return
        broken: dict[int, tables.Problem] = {}
        rows = islice(_each(batches, broken), first, None)
        held: deque[tuple[int, Sequence[str]]] = deque(islice(rows, last))
        while part := list(islice(rows, tables.BATCH)):
            held.extend(part)
            ready = [held.popleft() for _ in part]
            yield tables.Batch([row for _, row in ready], [number for number, _ in ready], broken)

    def _made(self, batches: Iterator[tables.Batch]) -> Iterator[tables.Batch]:
        if self._function is None:
            yield from batches
            return
        broken: dict[int, tables.Problem] = {}
        place = partial(tables.column_place, heading=self.table.heading, row=self.heading_row)
        unfit: list[tuple[int, Sequence[str]]] = []

        def whole() -> Iterator[tuple[int, Sequence[str]]]:
            for number, row in _each(batches, broken):
                if len(row) == self._width and number not in broken:
                    yield number, row
                elif "".join(row).strip():
                    sentence = f"the row has {len(row)} cells, but the heading has {self._width}"
                    problem = tables.Problem(row=number, column=None, sentence=sentence)
                    broken.setdefault(number, problem)
                    unfit.append((number, row))

        there = {tables.plain_name(name) for name in self.table.heading}
        may_read = [n for n in self._function.may_read if tables.plain_name(n) in there]
        made = self._function.make(
            MadeRows(
                rows=whole(),
                places={name: place(name) for name in (*self._function.reads, *may_read)},
                add_up=self._add_up,
                broken=broken,
                ignored=self.ignored,
                notes=self._notes,
            )
        )
        rows: list[Sequence[str]] = []
        numbers: list[int] = []
        for number, row in chain(made, unfit):
            if numbers and (number < numbers[-1] or len(numbers) == tables.BATCH):
                yield tables.Batch(rows, numbers, broken)  # the numbers of a batch ascend
                rows, numbers = [], []
            rows.append(row)
            numbers.append(number)
        yield tables.Batch(rows, numbers, broken)

    def _chosen(self, batches: Iterator[tables.Batch]) -> Iterator[tables.Batch]:
        if not self._keep and not self._ignore:
            yield from batches
            return
        for batch in batches:
            pairs = zip(batch.numbers, batch.rows, strict=True)
            kept = [each for each in pairs if each[0] in batch.broken or self._is_chosen(each[1])]
            yield tables.Batch(
                [row for _, row in kept], [number for number, _ in kept], batch.broken
            )

    def _emptied(self, batches: Iterator[tables.Batch]) -> Iterator[tables.Batch]:
        nothing = self._shape.empty
        if not nothing:
            yield from batches
            return
        for batch in batches:
            rows: list[Sequence[str]] = [
                ["" if cell.strip().casefold() in nothing else cell for cell in row]
                for row in batch.rows
            ]
            yield tables.Batch(rows, batch.numbers, batch.broken)

    def _is_chosen(self, row: Sequence[str]) -> bool:
        if not any(row):
            return False
        for name, place, words in self._ignore:
            cell = _cell(row, place)
            word = words.fitting(cell)
            if word is not None:
                # Report the text that a star matched: it might be money that nobody thought of.
                known = (name, cell.strip()) in self.ignored or len(self.ignored) < MAX_REPORTED
                if "*" in word and known and tables.is_quotable(cell):
                    word = cell.strip()
                self.ignored[name, word or "(nothing)"] += 1
                return False
        for name, place, words in self._keep:
            if words.fitting(_cell(row, place)) is None:
                self.ignored[name, ""] += 1
                return False
        return True


def _cell(row: Sequence[str], place: int | None) -> str:
    return "" if place is None or place >= len(row) else row[place]


def _each(
    batches: Iterator[tables.Batch], broken: dict[int, tables.Problem]
) -> Iterator[tuple[int, Sequence[str]]]:
    for batch in batches:
        broken.update(batch.broken)
        yield from zip(batch.numbers, batch.rows, strict=True)


class _Folding:
    def __init__(self, fold: Fold, table: Shaped, looked_for: Sequence[str], marks: Marks) -> None:
        place = partial(tables.column_place, heading=table.heading, row=table.heading_row)
        self._heading, self._by = table.heading, place(fold.by)
        self._sum = [place(name) for name in fold.sum]
        wanted = {tables.plain_name(name) for name in looked_for}
        self._compared = [
            place
            for place, name in enumerate(table.heading)
            if tables.plain_name(name) in wanted and place not in self._sum
        ]
        self._amounts = SumOfCells(marks)

    def batches(self, batches: Iterator[tables.Batch]) -> Iterator[tables.Batch]:
        broken: dict[int, tables.Problem] = {}
        orders = self._orders(_each(batches, broken), broken)
        while part := list(islice(orders, tables.BATCH)):
            yield tables.Batch([row for _, row in part], [number for number, _ in part], broken)

    def _orders(
        self, rows: Iterator[tuple[int, Sequence[str]]], broken: dict[int, tables.Problem]
    ) -> Iterator[tuple[int, Sequence[str]]]:
        group: list[tuple[int, Sequence[str]]] = []
        for number, row in rows:
            if not "".join(row).strip():
                continue
            name = _cell(row, self._by).strip()
            alone = number in broken
            if group and (alone or (name and name != _cell(group[0][1], self._by).strip())):
                yield self._one(group, broken)
                group = []
            if alone:
                yield number, row
            else:
                group.append((number, row))
        if group:
            yield self._one(group, broken)

    def _one(
        self, group: Sequence[tuple[int, Sequence[str]]], broken: dict[int, tables.Problem]
    ) -> tuple[int, Sequence[str]]:
        first, row = group[0]
        if len(group) == 1:
            return first, row
        width = len(self._heading)
        whole = [*row, *[""] * (width - len(row))]
        for number, other in group:
            if len(other) < width or any(other[width:]):
                sentence = f"row {number:,} has {len(other)} cells, but the heading has {width}"
                broken.setdefault(first, tables.Problem(row=first, column=None, sentence=sentence))
        for number, other in group[1:]:
            for place in self._compared:
                cell = _cell(other, place)
                if not whole[place].strip():
                    whole[place] = cell
                elif cell.strip() and cell.strip() != whole[place].strip():
                    sentence = (
                        f"row {number:,} has another value, although both have the same "
                        f"{self._heading[self._by]}: rows of one order must agree"
                    )
                    column = self._heading[place]
                    broken.setdefault(
                        first, tables.Problem(row=first, column=column, sentence=sentence)
                    )
        try:
            for place in self._sum:
                whole[place] = self._amounts.total([_cell(each, place) for _, each in group], [])
        except tables.UnclearCell as error:
            column = self._heading[place]
            broken.setdefault(first, tables.Problem(row=first, column=column, sentence=str(error)))
        return first, whole


# --- fields made of several columns ---------------------------------------------------------------


def made_cells(
    made: Made,
    heading: Sequence[str],
    *,
    row: int,
    optional: bool,
    marks: Marks,
    signs: Signs | None,
) -> MadeCells | None:
    """Return a function that computes a field's cells. Raise RefusedTable if a required field's
    columns are missing."""
    found = {tables.plain_name(name) for name in heading} & {
        tables.plain_name(name) for name in made.names
    }
    if optional and not found:
        return None
    if isinstance(made, FirstOf):
        if not found:
            names = " or ".join(map(repr, made.names))
            raise tables.RefusedTable(
                row,
                f"there is no column {names}, which the mapping names"
                f"{tables.found_instead(made.names, heading)}",
            )
        there = [name for name in made.names if tables.plain_name(name) in found]
        return FirstCells([tables.column_place(name, heading, row=row) for name in there])
    places = [tables.column_place(name, heading, row=row) for name in made.names]
    if isinstance(made, JoinedOf):
        return JoinedCells(places)
    return SummedCells(made, places, marks=marks, signs=signs)


DIRECTED: Final = frozenset({"amount", "gross", "net"})
"""Fields of money whose sign shows the direction."""


def all_made(mapping: FileMapping, heading: Sequence[str], *, row: int) -> dict[str, MadeCells]:
    """Return the functions that compute combined fields' cells. Raise RefusedTable for a missing
    column."""
    found = {
        name: made_cells(
            made,
            heading,
            row=row,
            optional=name in mapping.optional,
            marks=mapping.marks,
            signs=mapping.signs if name in DIRECTED else "sum",
        )
        for name, made in mapping.made.items()
    }
    return {name: cells for name, cells in found.items() if cells is not None}


@dataclass(frozen=True, slots=True)
class FirstCells:
    """Field with the first nonempty cell of several columns."""

    places: Sequence[int]

    def read(self, columns: Sequence[Sequence[str]]) -> Sequence[str]:
        rows = zip(*(columns[place] for place in self.places), strict=True)
        return [next((cell for cell in row if cell.strip()), "") for row in rows]


@dataclass(frozen=True, slots=True)
class JoinedCells:
    """Field that joins the cells of several columns."""

    places: Sequence[int]

    def read(self, columns: Sequence[Sequence[str]]) -> Sequence[str]:
        """Return the joined cell of each row."""
        found = []
        for row in zip(*(columns[place] for place in self.places), strict=True):
            dated = isinstance(row[0], tables.CellMoment)
            if dated:
                # A workbook may write a day with midnight, and a time of day with a day of 1899.
                first = row[0].removesuffix("T00:00:00")
                row = (first, *(_time_in(cell) for cell in row[1:]))
            text = " ".join(cell.strip() for cell in row if cell.strip())
            found.append(tables.CellMoment(text) if dated else text)
        return found


def _time_in(cell: str) -> str:
    return cell.rpartition("T")[2] if isinstance(cell, tables.CellMoment) else cell


_EXACT: Final = Context(prec=200)


class SumOfCells:
    """Adder of cells with amounts."""

    def __init__(self, marks: Marks, *, signs: Signs | None = "sum") -> None:
        self._amounts, self._decimal, self._signs = Amounts(marks), marks.decimal, signs

    def total(self, add: Sequence[str], subtract: Sequence[str]) -> str:
        """Return the sum as a cell; empty if all cells are empty. Raise UnclearCell for an unclear
        amount."""
        parts = [(1, *self._amounts.parts(cell)) for cell in add if cell.strip()]
        parts += [(-1, *self._amounts.parts(cell)) for cell in subtract if cell.strip()]
        if not parts:
            return ""
        typed = all(type(cell) is tables.Number for cell in (*add, *subtract) if cell.strip())
        shown = {sign for *_, sign in parts} - {""}
        if len(shown) > 1:
            raise tables.UnclearCell("adds amounts whose currency signs differ")
        total = Decimal(0)
        for factor, minus, whole, decimals, _ in parts:
            value = Decimal(f"{whole}.{decimals}" if decimals else whole)
            negative = self._is_negative(factor < 0, bool(minus), not value)
            total = _EXACT.add(total, value.copy_negate() if negative else value)
        if typed:
            return tables.Number(format(total, "f"))
        digits = format(total.copy_abs(), "f").replace(".", self._decimal)
        return f"{'-' if total < 0 else ''}{''.join(shown)}{digits}"

    def _is_negative(self, subtracted: bool, minus: bool, zero: bool) -> bool:
        if self._signs == "none" and minus and not zero:
            raise tables.UnclearCell(CONTRADICTS_NONE)
        if self._signs is None and subtracted and minus and not zero:
            raise tables.UnclearCell(UNDECLARED)
        if self._signs == "minus" and subtracted:
            if not minus and not zero:
                raise tables.UnclearCell(CONTRADICTS_MINUS)
            return True
        return subtracted != (minus and self._signs != "any")


UNDECLARED: Final = (
    "has a minus sign in a column that is subtracted: declare in the mapping how the file writes "
    'outgoing money: signs = "minus", "none" or "any", or "sum" to add and subtract the columns '
    "with the signs in the file"
)
CONTRADICTS_NONE: Final = (
    'has a minus sign, but with signs = "none" the type or the column says which way money went: '
    'correct the row, or set signs = "minus" or "any" if all rows are like this'
)
CONTRADICTS_MINUS: Final = (
    'has no minus sign, but with signs = "minus" money that leaves has one: correct the row, or '
    'set signs = "none" or "any" if all rows are like this'
)


class SummedCells:
    """Field whose cell is a sum of columns."""

    def __init__(
        self, made: SumOf, places: Sequence[int], *, marks: Marks, signs: Signs | None
    ) -> None:
        self.places: Sequence[int] = places
        self._split, self._end = len(made.add), len(made.add) + len(made.subtract)
        # Without columns to add, the sum's sign is reversed.
        self._sum = SumOfCells(marks, signs=signs if made.add else signs or "sum")
        self._signs = signs
        self._ways = None if made.sign is None else (WordFilter(made.plus), WordFilter(made.minus))

    def read(self, columns: Sequence[Sequence[str]]) -> Sequence[str]:
        """Return the summed cell of each row. Raise UnclearCell for an unclear amount or
        direction."""
        rows = zip(*(columns[place] for place in self.places), strict=True)
        return [self._one(row) for row in rows]

    def _one(self, row: Sequence[str]) -> str:
        total = self._sum.total(row[: self._split], row[self._split : self._end])
        if not total or self._ways is None:
            return total
        stays, turns = (words.fitting(row[-1]) is not None for words in self._ways)
        if stays == turns:
            raise tables.UnclearCell(
                f"depends on {tables.quoted(row[-1])}, which the mapping does not list: add it "
                "under plus or minus"
            )
        if self._signs == "minus":
            if turns != total.startswith("-") and total.strip("-0.,"):
                raise tables.UnclearCell(f"has a sign that contradicts {tables.quoted(row[-1])}")
            return total
        if total.startswith("-"):
            raise tables.UnclearCell(
                f"has a minus sign beside {tables.quoted(row[-1])}: if both mean the same, set "
                'signs = "minus" in the mapping'
            )
        return type(total)(f"-{total}") if turns else total


MadeCells = FirstCells | JoinedCells | SummedCells


# --- totals ---------------------------------------------------------------------------------------

_TOTALS: Final = frozenset(
    """
    total/totals/grand total/sub total/subtotal/subtotals/sum/overall total
    summe/gesamt/gesamtsumme/gesamtbetrag/zwischensumme/endsumme/insgesamt
    total général/totaux/sous-total/somme/montant total
    totales/suma/suma total/importe total/totale/totali/subtotale/somma
    totaal/totalen/subtotaal/eindtotaal/som/totais/soma/jumla/jumla kuu/jumla ndogo
    razem/łącznie/ogółem/summa/totalt/delsumma/totalsumma/i alt/ialt/yhteensä/celkem/součet
    összesen/toplam/genel toplam/ara toplam/sumă/jumlah/tổng/tổng cộng/tong cong
    итого/всего/разом/всього/σύνολο/المجموع/الإجمالي/कुल/योग/合计/总计/小计/合計/総計/小計/합계/총계
    """.strip()
    .replace("\n    ", "/")
    .split("/")
)

_COUNTED: Final = frozenset(
    """
    amount amounts sum gross net fee fees paid orders order sales payments transactions revenue
    refunds invoices due of for bestellungen umsatz betrag zahlungen brutto netto buchungen général
    general geral generale complessivo commandes ventes paiements pedidos ventas pagos importe
    ordini vendite pagamenti bestellingen bedrag betalingen vendas order belopp ordrer beløb
    malipo mauzo oda kwota zamówień
    """.strip().split()
)

_AROUND: Final = " \t\u00a0:：.*=#-–—()[]"
_LONGEST: Final = frozenset(max(label.split(), key=len) for label in _TOTALS)
_HINTS: Final = [word for word in _LONGEST if not any(other in word for other in _LONGEST - {word})]
_ASCII_HINTS: Final = [hint for hint in _HINTS if hint.isascii()]


def _is_label(cell: str) -> bool:
    words = cell.casefold().replace("(", " ").split()
    words = [word for each in words if (word := each.strip(_AROUND))]
    for length in (2, 1):
        if " ".join(words[:length]) in _TOTALS:
            return all(
                word in _COUNTED or word[0].isdigit() or is_currency(word.upper())
                for word in words[length:]
            )
    return False


_LEAST_ROWS_ABOVE: Final = 2


class ShapedTotals:
    """Finder of rows that are totals."""

    def __init__(
        self,
        *,
        references: Sequence[int],
        amount: int | None,
        made: MadeCells | None = None,
        currency: int | None,
        debit: int | None = None,
        staged: tuple[int, int],
        amounts: Amounts,
        own: Collection[int] = (),
        others: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Set the columns to read, by index in the heading."""
        self._own, self._others = own, others
        self._of_others: Counter[tuple[int, str]] = Counter()
        self._references, self._amount, self._currency = references, amount, currency
        self._debit, self._made = debit, made
        self._staged, self._amounts = staged, amounts
        self._above: Counter[str] = Counter()
        self._above_unsigned: Counter[str] = Counter()
        self._since: Counter[str] = Counter()
        self._rows_above = 0

    def named(self, batch: tables.Batch) -> Mapping[int, Sequence[str]]:
        """Return the rows that are labelled as totals, by number."""
        text = self._text(batch.rows).casefold()
        if not any(hint in text for hint in (_ASCII_HINTS if text.isascii() else _HINTS)):
            return {}
        rows = zip(batch.numbers, batch.rows, strict=True)
        return {number: row for number, row in rows if self._is_named(row)}

    def _text(self, rows: Sequence[Sequence[str]]) -> str:
        if self._references:
            try:
                names = ["\t".join([row[place] for place in self._references]) for row in rows]
            except IndexError:  # a row that is too short
                names = [""]
            if all(map(str.strip, names)):
                return "\n".join(names)
        return "\n".join(["\t".join(row) for row in rows])

    def _is_named(self, row: Sequence[str]) -> bool:
        given = [cell for place in self._references if (cell := _cell(row, place)).strip()]
        return any(map(_is_label, given or [cell for cell in row if cell.strip()][:1]))

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        place, minor = (place + 1 for place in self._staged)
        currencies = [row[place] for row in rows]
        minors = [row[minor] for row in rows]
        self._rows_above += len(rows)
        for currency in set(currencies):
            own = minors
            if currencies.count(currency) < len(rows):
                own = [m for m, c in zip(minors, currencies, strict=True) if c == currency]
            total = sum(own)
            self._above[currency] += total
            self._since[currency] += total
            self._above_unsigned[currency] += sum(map(abs, own))
            for column, staged in self._others:
                self._of_others[column, currency] += sum(
                    row[staged + 1] for row in rows if row[place] == currency
                )

    def says_amounts_alone(self, row: Sequence[str]) -> bool:
        """Return whether a row has amounts and no other text."""
        amounts = [_cell(row, place) for place in (self._amount, self._debit)]
        return "".join(amounts).strip() != "" and not any(
            _cell(row, place).strip() for place in self._own
        )

    def why_not(self, row: Sequence[str]) -> str | None:
        """Return why a labelled row is no total, or None."""
        found = self._why_not(row)
        return None if found is None else f"is called a total, but {found}"

    def why_not_last(self, row: Sequence[str]) -> str | None:
        """Return why the last row is no total, or None."""
        found = self._why_not(row)
        if found is None and self._rows_above < _LEAST_ROWS_ABOVE:
            found = "there are too few rows above to tell whether it is a total or an order"
        for place, _ in self._others if found is None else ():
            if (cell := _cell(row, place)).strip() and not any(
                abs(self._sum(cell, "", currency)) == abs(total)
                for (column, currency), total in self._of_others.items()
                if column == place
            ):
                found = "one of its amounts is not the sum of the amounts above"
        return None if found is None else (
            f"has no name and no day, like a total, but {found}; set skip_last = 1 in a mapping "
            "to leave it out"
        )  # fmt: skip

    def _why_not(self, row: Sequence[str]) -> str | None:
        came, left = _cell(row, self._amount), _cell(row, self._debit)
        try:
            if self._made is not None:
                whole = [*row, *[""] * max(self._made.places)]
                came = self._made.read([[cell] for cell in whole])[0]
            named = _cell(row, self._currency).strip()
            if (came.strip() or left.strip()) and not any(
                self._sum(came, left, each) == sums[each]
                for sums in (self._above, self._since, self._above_unsigned)
                for each in (read_currencies([named]) if named else sorted(sums))
            ):
                above = [str(Money(minor=m, currency=c)) for c, m in sorted(self._above.items())]
                return (
                    f"is not the sum of the rows above, which is {', '.join(above) or 'nothing'}: "
                    "remove it, or add the missing rows"
                )
        except tables.UnclearCell as error:
            return f"its sum {error}"
        self._since = Counter()
        return None

    def _sum(self, came: str, left: str, currency: str) -> int:
        plus, minus = self._amounts.optional([came, left], [currency] * 2)
        return (plus or 0) - abs(minus or 0)
