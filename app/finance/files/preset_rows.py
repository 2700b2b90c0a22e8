"""Row functions of presets: what a single export needs and no key of a mapping describes.

A preset names its function with `rows`. A function adds columns to the rows of the export, which
the preset reads as its others, and may make one row of several.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from app.finance.files import tables

Row = tuple[int, Sequence[str]]
"""A row's number and its cells."""

AddUp = Callable[[Sequence[str], Sequence[str]], str]
"""Adds cells, subtracts others, and writes the sum as the file would. Raises UnclearCell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRows:
    """The rows of one table while a function makes others of them.

    places  the place of each column that the function reads
    broken  takes the problem of each row that is not clear, by the row's number
    """

    rows: Iterator[Row]
    places: Mapping[str, int]
    add_up: AddUp
    broken: dict[int, tables.Problem] = field(default_factory=dict)

    def cell(self, row: Sequence[str], name: str) -> str:
        return row[self.places[name]].strip()

    def report(self, number: int, sentence: str, *, column: str | None = None) -> None:
        problem = tables.Problem(row=number, column=column, sentence=sentence)
        self.broken.setdefault(number, problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFunction:
    """A function with the columns that it reads, and those that it adds behind them."""

    reads: Sequence[str]
    adds: Sequence[str]
    make: Callable[[MadeRows], Iterator[Row]]


_OF_BUYER: Final = frozenset({"itemprice", "promotion", "itemwithheldtax"})
"""Amount types that make up what a buyer paid, less the tax that Amazon pays itself."""


_WHOLE_AMOUNT: Final = "TransactionTotalAmount"
"""The description of an amount that its amount type describes."""


def _amazon_settlement(table: MadeRows) -> Iterator[Row]:
    """Make one row of the amounts of an order, and add what only the first row says.

    That is the deposit, the currency, and the total that all amounts must add up to. Amounts of an
    order that the buyer did not pay are fees.
    """
    cell, amounts = table.cell, list[str]()
    total, settled = "", ["", ""]
    held: Row | None = None  # until it is known whether it is the last one

    def group_of(numbered: Row) -> tuple[str, str, str, str | int]:
        number, row = numbered
        order = cell(row, "order-id")
        # The settlement's own row, and what is of no order, are each on their own.
        return (cell(row, "transaction-type"), order, cell(row, "adjustment-id"), order or number)

    for (kind, order, *_), group in groupby(table.rows, group_of):
        rows = list(group)
        number, first = rows[0]
        total = cell(first, "total-amount") or total
        said = cell(first, "deposit-date"), cell(first, "currency")
        settled = [new or known for new, known in zip(said, settled, strict=True)]
        if not kind:
            continue
        if held is not None:
            yield held
        parts = [(cell(row, "amount-type"), cell(row, "amount")) for _, row in rows]
        amounts += [amount for _, amount in parts]
        paid = [amount for of, amount in parts if of.casefold() in _OF_BUYER]
        fees = [amount for of, amount in parts if of.casefold() not in _OF_BUYER]
        try:
            net = table.add_up([*paid, *fees], [])
            made = [kind, table.add_up(paid, []), table.add_up([], fees), net]
        except tables.UnclearCell as error:
            table.report(number, str(error), column="amount")
            made = ["", "", "", ""]
        if not order:
            described = cell(first, "amount-description")
            made = [described if described != _WHOLE_AMOUNT else parts[0][0], "", "", made[3]]
        held = number, [*first, *made, *settled]
    if held is None:
        return
    with suppress(tables.UnclearCell):  # reported with its row
        apart = table.add_up(amounts, [total])
        if apart.strip("-0.,"):
            table.report(
                held[0],
                f"all rows and the settlement's total, {tables.quoted(total)}, are {apart} apart: "
                "rows are missing, or were changed",
            )
    yield held


_ETSY_ORDER: Final = re.compile(r"\bOrder #(\d{1,20})\b", re.ASCII)


def _etsy_statement(table: MadeRows) -> Iterator[Row]:
    """Add the order that a row's texts name, else what the row is about."""
    for number, row in table.rows:
        texts = [table.cell(row, name) for name in ("Info", "Title")]
        order = next((found[1] for text in texts if (found := _ETSY_ORDER.search(text))), "")
        about = "" if order else next((text for text in texts if text.strip("-")), "")
        yield number, [*row, order, about]


_MOLLIE_PAYMENT: Final = re.compile(r"\btr_\w{1,40}", re.ASCII)
_MOLLIE_IDS: Final = {"tr": "payment", "cpt": "payment", "re": "refund", "chb": "dispute"}


def _mollie_settlement(table: MadeRows) -> Iterator[Row]:
    """Add what a row is, as its id begins, and the payment that it is of or names.

    Costs have no id, and neither have reserves: these are known by their description.
    """
    for number, row in table.rows:
        own, described = table.cell(row, "ID"), table.cell(row, "Description")
        kind = _MOLLIE_IDS.get(own.partition("_")[0], "") if own else ""
        if not own:
            words = described.casefold().split()
            kind = "fee" if words[:1] == ["withheld"] and "fees" in words else described
        named = None if kind == "payment" and own.startswith("tr_") else (
            _MOLLIE_PAYMENT.search(described)
        )  # fmt: skip
        yield number, [*row, kind, own if named is None else named[0]]


ROW_FUNCTIONS: Final[Mapping[str, RowFunction]] = {
    "amazon_settlement": RowFunction(
        reads=(
            "deposit-date", "total-amount", "currency", "transaction-type", "order-id",
            "adjustment-id", "amount-type", "amount-description", "amount",
        ),
        adds=("kind", "gross", "fee", "net", "settled at", "settled currency"),
        make=_amazon_settlement,
    ),
    "etsy_statement": RowFunction(
        reads=("Title", "Info"), adds=("order", "about"), make=_etsy_statement
    ),
    "mollie_settlement": RowFunction(
        reads=("ID", "Description"), adds=("kind", "payment"), make=_mollie_settlement
    ),
}  # fmt: skip
