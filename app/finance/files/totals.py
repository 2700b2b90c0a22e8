"""Totals rows: what a file adds up by itself, which is neither an order nor a payment.

A row is one where its reference is such a word, or, without a reference, its first cell that says
anything; and where its sum is that of the rows above. One that is called so and is another sum is a
problem: nobody knows whether it is a total of rows that are missing, or an order of that name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.finance.files.amounts import Amounts, read_currencies
from app.finance.files.shaping import MadeCells
from app.finance.files.tables import Batch, UnclearCell
from reconcile.money import Money

_WORDS: Final = re.compile(
    r"(?:grand[ -]?total|sub[ -]?totals?|totals?|sum)(?: (?:amount|sum))?(?: \(?[a-z]{3}\)?)?"
)
_HINTS: Final = ("total", "sum")


class Totals:
    """Tells the totals rows of one table from the others, and knows the sums above them."""

    def __init__(
        self,
        *,
        references: Sequence[int],
        amount: int | None,
        made: MadeCells | None = None,
        currency: int | None,
        staged: tuple[int, int],
        amounts: Amounts,
    ) -> None:
        """references, amount, currency: places in the heading; None: no such column. made: how the
        amount is made of several columns. staged: the places of currency and amount in a staged
        row, after its number."""
        self._references, self._amount, self._currency = references, amount, currency
        self._made = made
        self._staged, self._amounts = staged, amounts
        self._above: Counter[str] = Counter()
        self._above_unsigned: Counter[str] = Counter()
        self._since: Counter[str] = Counter()

    def named(self, batch: Batch) -> Mapping[int, Sequence[str]]:
        """The rows that are called totals, by their numbers."""
        text = self._text(batch.rows).casefold()
        if not any(hint in text for hint in _HINTS):
            return {}
        rows = zip(batch.numbers, batch.rows, strict=True)
        return {number: row for number, row in rows if self._is_named(row)}

    def _text(self, rows: Sequence[Sequence[str]]) -> str:
        """Of all rows at once, for a million of them: the text in which a name may stand. That is
        the first references, where no row is without one and there is no second."""
        if len(self._references) == 1:
            place = self._references[0]
            try:
                names = [row[place] for row in rows]
            except IndexError:  # a row that is too short
                names = [""]
            if all(map(str.strip, names)):
                return "\n".join(names)
        return "\n".join(["\t".join(row) for row in rows])

    def _is_named(self, row: Sequence[str]) -> bool:
        given = [row[place] for place in self._references if place < len(row)]
        given = [cell for cell in given if cell.strip()]
        return any(map(_is_word, given or [cell for cell in row if cell.strip()][:1]))

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Rows that are clear, each after its number."""
        place, minor = (place + 1 for place in self._staged)
        currencies = [row[place] for row in rows]
        minors = [row[minor] for row in rows]
        for currency in set(currencies):
            own = minors
            if currencies.count(currency) < len(rows):
                own = [m for m, c in zip(minors, currencies, strict=True) if c == currency]
            total = sum(own)
            self._above[currency] += total
            self._since[currency] += total
            self._above_unsigned[currency] += sum(map(abs, own))

    def why_not(self, row: Sequence[str]) -> str | None:
        """None where the row adds up those above it, all or since the last such row, or has no sum
        at all; else what keeps it from being a total."""
        sums = (self._above, self._since, self._above_unsigned)
        try:
            cell = self._sum_of(row)
            if cell.strip() and not any(self._adds_up(row, cell, each) for each in sums):
                told = [str(Money(minor=m, currency=c)) for c, m in sorted(self._above.items())]
                return (
                    "is called a total, and is not the sum of the rows above, which is "
                    f"{', '.join(told) or 'nothing'}: take it out, or put back what is missing"
                )
        except UnclearCell as error:
            return f"is called a total, and its sum {error}"
        self._since = Counter()
        return None

    def _sum_of(self, row: Sequence[str]) -> str:
        if self._made is None:
            return _cell(row, self._amount)
        return self._made.read([[cell] for cell in [*row, *[""] * max(self._made.places)]])[0]

    def _adds_up(self, row: Sequence[str], cell: str, sums: Counter[str]) -> bool:
        named = _cell(row, self._currency).strip()
        currencies = read_currencies([named]) if named else sorted(sums)
        return any(self._amounts.read([cell], [each])[0] == sums[each] for each in currencies)


def _cell(row: Sequence[str], place: int | None) -> str:
    return "" if place is None or place >= len(row) else row[place]


def _is_word(cell: str) -> bool:
    return bool(_WORDS.fullmatch(" ".join(cell.casefold().strip(" \t:.*=").split())))
