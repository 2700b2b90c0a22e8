"""Define the rows of booked entries, and check their balances."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Final

from app.finance.files import tables
from app.finance.files.bank import MAX_TEXT

HEADING: Final = (
    "account",
    "booked_at",
    "amount",
    "currency",
    "entry_reference",
    "reference",
    "counterparty",
    "text",
)

INTERIM: Final = ("CAMT.052", "MT942")
"""Formats of reports that banks send during the day."""

NOTIFICATION: Final = "CAMT.054"
"""Format of notifications, which may leave bookings out."""

Row = tuple[int, Sequence[str]]
"""Row of a bank file: (row number, cells)."""


class BankTable(ABC):
    """Base class of the tables of all bank formats.

    accepted  ids of proposals that accept a difference, by `Balances.name`
    differs   the statement for which the file was refused, or None
    broken    problems of entries that are not yielded yet, by row number
    """

    format = ""
    heading: Sequence[str] = HEADING
    heading_row = 1
    notes: Sequence[str] = ()
    of_ours = False
    head: Sequence[str] = ()

    def __init__(self) -> None:
        self.periods: list[tables.StatedPeriod] = []
        self._notes: list[str] = []
        self.notes = self._notes
        self.statements = self.compared = 0
        self.balances: list[Balances] = []
        self.accepted: Mapping[str, str] = {}
        self.differs: Balances | None = None
        self.broken: dict[int, tables.Problem] = {}

    def batches(self) -> Iterator[tables.Batch]:
        rows, read = self._rows(), 0
        self.statements = self.compared = 0
        for of_last_time in (self.periods, self.balances, self.broken, self._notes):
            of_last_time.clear()
        while part := list(islice(rows, tables.BATCH)):
            read += len(part)
            if read > tables.MAX_ROWS:
                raise tables.RefusedTable(
                    part[0][0],
                    f"there are more than {tables.MAX_ROWS:,} entries: split the file, and import "
                    "each part",
                )
            numbers = [number for number, _ in part]
            broken = {each: self.broken.pop(each) for each in numbers if each in self.broken}
            yield tables.Batch([cells for _, cells in part], numbers, broken)
        if not read and self.statements:
            agrees = ", the balance agrees" if self.compared == self.statements else ""
            self._notes.append(f"0 entries{agrees}.")

    @abstractmethod
    def _rows(self) -> Iterator[Row]:
        """Yield every booked entry with its row number."""

    def end_statement(self, row: int, found: Balances) -> None:
        """Count a statement that ends at a row, and store its balances. Raise RefusedTable for an
        unaccepted difference."""
        self.statements += 1
        if found.difference() and found.name not in self.accepted:
            self.differs = found
            raise tables.RefusedTable(
                row, f"{found.said()}; the file was cut off or changed: fetch it again"
            )
        if found.difference():
            said = found.said()
            self._notes.append(f"{said[0].upper()}{said[1:]}; it is imported unchanged.")
            found.proposal = self.accepted[found.name]
        if found.opening is None or found.closing is None:
            return
        self.compared += 1
        before = self.balances[-1] if self.balances else None
        if found.goes_on and before is not None and found.follows(before):
            found.opening, found.opened = before.opening, before.opened
            found.moved += before.moved
            found.proposal = found.proposal or before.proposal
            del self.balances[-1]
        self.balances.append(found)


def cells_of(**found: str) -> Sequence[str]:
    return [found.get(name, "") for name in HEADING]


def amount_cell(text: str, *, debit: bool) -> str:
    """Return a cell with the amount, negative for a debit. An unclear amount becomes a `Number`,
    which is refused later."""
    if not re.fullmatch(r"[0-9]{1,30}(\.[0-9]{0,60})?", text):
        return tables.Number(f"{'debit' if debit else 'credit'} {text}")
    return tables.Number(("-" if debit and text.strip("0.") else "") + text.removesuffix("."))


def joined_text(texts: Sequence[str]) -> str:
    joined = " ".join(dict.fromkeys(" ".join(text.split()) for text in texts if text.strip()))
    return joined[:MAX_TEXT]


def day_after(day: str) -> str:
    try:
        return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return day


@dataclass(slots=True)
class Balances:
    """Balances of one statement, and the sum of its entries."""

    opening: Decimal | None = None
    closing: Decimal | None = None
    moved: Decimal = Decimal(0)
    currency: str = ""
    account: str = ""
    opened: str = ""
    closed: str = ""
    goes_on: bool = False
    proposal: str | None = None

    @property
    def name(self) -> str:
        """Return a text that identifies this statement's difference."""
        return f"{self.account} {self.opened} {self.closed} {self.currency} {self.difference():f}"

    def add(self, cell: str) -> None:
        """Add the amount of a booked entry."""
        try:
            self.moved += Decimal(cell)
        except InvalidOperation:
            self.opening = None

    def follows(self, other: Balances) -> bool:
        """Check if this statement continues the statement `other`."""
        of, before = (self.account, self.currency), (other.account, other.currency)
        return of == before and self.opening == other.closing

    def difference(self) -> Decimal:
        """Return the unexplained change of balance, or 0."""
        if self.opening is None or self.closing is None:
            return Decimal(0)
        return self.closing - self.opening - self.moved

    def said(self) -> str:
        """Return a sentence about the statement's difference."""
        if self.opening is None or self.closing is None:
            return ""
        between, unit = self.closing - self.opening, f" {self.currency}".rstrip()
        return (
            f"the entries of the statement add up to {self.moved:f}{unit}, but its opening and "
            f"closing balance differ by {between:f}{unit}: a difference of "
            f"{self.difference():f}{unit}"
        )
