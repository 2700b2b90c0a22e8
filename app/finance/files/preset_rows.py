"""Convert the rows of exports that no mapping can describe."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from app.core.text import counted
from app.finance.files import tables
from app.finance.files.amounts import MINUS_SIGNS

Row = tuple[int, Sequence[str]]
"""Row of a table: (row number, cells)."""

AddUp = Callable[[Sequence[str], Sequence[str]], str]
"""Function that adds the first cells and subtracts the second cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRows:
    """Rows of one table that a preset's row function converts."""

    rows: Iterator[Row]
    places: Mapping[str, int]
    add_up: AddUp
    broken: dict[int, tables.Problem] = field(default_factory=dict)
    ignored: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def cell(self, row: Sequence[str], name: str) -> str:
        """Return a cell by column name, or an empty text."""
        return row[self.places[name]].strip() if name in self.places else ""

    def changed(self, row: Sequence[str], name: str, cell: str) -> Sequence[str]:
        return [*row[: self.places[name]], cell, *row[self.places[name] + 1 :]]

    def report(self, number: int, sentence: str, *, column: str | None = None) -> None:
        problem = tables.Problem(row=number, column=column, sentence=sentence)
        self.broken.setdefault(number, problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFunction:
    """Function that converts the rows of an export."""

    reads: Sequence[str]
    may_read: Sequence[str] = ()
    adds: Sequence[str] = ()
    make: Callable[[MadeRows], Iterator[Row]]


_BUYER_AMOUNTS: Final = frozenset({"itemprice", "promotion", "itemwithheldtax"})


_WHOLE_AMOUNT: Final = "TransactionTotalAmount"


def _amazon_settlement(table: MadeRows) -> Iterator[Row]:
    cell, amounts = table.cell, list[str]()
    total, settled = "", ["", ""]
    held: Row | None = None  # until it is known whether it is the last one

    def group_of(numbered: Row) -> tuple[str, str, str, str | int]:
        number, row = numbered
        order = cell(row, "order-id")
        # The settlement's own row, and amounts without an order, stay separate rows.
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
        paid = [amount for of, amount in parts if of.casefold() in _BUYER_AMOUNTS]
        fees = [amount for of, amount in parts if of.casefold() not in _BUYER_AMOUNTS]
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
                f"all rows and the settlement's total, {tables.quoted(total)}, differ by {apart}: "
                "rows are missing, or were changed",
            )
    yield held


_ETSY_ORDER: Final = re.compile(r"\bOrder #(\d{1,20})\b", re.ASCII)


def _etsy_statement(table: MadeRows) -> Iterator[Row]:
    for number, row in table.rows:
        texts = [table.cell(row, name) for name in ("Info", "Title")]
        order = next((found[1] for text in texts if (found := _ETSY_ORDER.search(text))), "")
        about = "" if order else next((text for text in texts if text.strip("-")), "")
        yield number, [*row, order, about]


_MOLLIE_PAYMENT: Final = re.compile(r"\btr_\w{1,40}", re.ASCII)
_MOLLIE_IDS: Final = {"tr": "payment", "cpt": "payment", "re": "refund", "chb": "dispute"}


def _mollie_settlement(table: MadeRows) -> Iterator[Row]:
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


_PAYPAL_PAYMENTS: Final = frozenset({
    "direct credit card payment", "donation payment", "ebay auction payment",
    "express checkout payment", "general payment", "generic instrument funded payment",
    "mobile payment", "preapproved payment bill user payment", "subscription payment",
    "website payment",
})  # fmt: skip

_BALANCE_CHANGED: Final = frozenset({
    "completed", "partially refunded", "refunded", "reversed", "placed", "cleared",
})  # fmt: skip
_BALANCE_KEPT: Final = frozenset({
    "pending", "denied", "failed", "voided", "expired", "canceled", "cancelled", "unclaimed",
})  # fmt: skip


def _paypal_activity(table: MadeRows) -> Iterator[Row]:
    """Convert the rows of PayPal's activity report. Purchases of the merchant and their refunds
    become disbursements."""
    column, kept, changed = "Status", _BALANCE_KEPT, _BALANCE_CHANGED
    if "Balance Impact" in table.places:
        column, kept, changed = (
            "Balance Impact",
            frozenset({"memo"}),
            frozenset({"credit", "debit"}),
        )
    bought = 0
    for number, row in table.rows:
        word = table.cell(row, column)
        if word.casefold() in kept:
            table.ignored[column, word] += 1
            continue
        if word.casefold() not in changed and any(row):
            words = ", ".join(sorted(changed | kept))
            table.report(
                number,
                f"{tables.quoted(word)} does not say whether the row changed the balance: it is "
                f"none of {words}",
                column=column,
            )
        stated = table.cell(row, "Type").casefold()
        leaves = table.cell(row, "Gross").startswith(tuple(MINUS_SIGNS))
        if stated in _PAYPAL_PAYMENTS if leaves else stated == "payment refund":
            bought += 1
            yield number, table.changed(row, "Type", "disbursement")
        else:
            yield number, row
    if bought:
        table.notes.append(
            "Read as disbursements, because they are purchases from the account or refunds of "
            f"purchases: {counted(bought, 'row')}."
        )


def _mpesa_portal(table: MadeRows) -> Iterator[Row]:
    """Convert the rows of an export from M-PESA's portal. Rows ending with "charge" become fees."""
    paid_to_persons = ("business payment", "promotion payment", "salary payment")
    for number, row in table.rows:
        stated = table.cell(row, "Reason Type").casefold()
        back = table.cell(row, "Linked Transaction ID") and not table.cell(row, "Paid In")
        if stated and table.cell(row, "Details").casefold().endswith(" charge"):
            yield number, table.changed(row, "Reason Type", "fee")
        elif back and stated.startswith(paid_to_persons):
            yield number, table.changed(row, "Reason Type", "refund")
        else:
            yield number, row


MAX_LINKED: Final = 200_000
"""Maximum number of remembered transactions."""


def _square_transactions(table: MadeRows) -> Iterator[Row]:
    payments: dict[str, str] = {}
    refunds: list[Row] = []
    for number, row in table.rows:
        if table.cell(row, "Event Type").casefold() == "refund":
            refunds.append((number, row))
            continue
        transaction = table.cell(row, "Transaction ID")
        if transaction in payments:
            payments[transaction] = ""
        elif len(payments) < MAX_LINKED:
            payments[transaction] = table.cell(row, "Payment ID")
        yield number, [*row, ""]
    for number, row in refunds:
        yield number, [*row, payments.get(table.cell(row, "Transaction ID"), "")]


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
    "paypal_activity": RowFunction(
        reads=("Type", "Status", "Gross"), may_read=("Balance Impact",), make=_paypal_activity
    ),
    "mpesa_portal": RowFunction(
        reads=("Reason Type", "Paid In"),
        may_read=("Details", "Linked Transaction ID"),
        make=_mpesa_portal,
    ),
    "square_transactions": RowFunction(
        reads=("Event Type", "Transaction ID", "Payment ID"),
        adds=("refunded payment",),
        make=_square_transactions,
    ),
}  # fmt: skip
