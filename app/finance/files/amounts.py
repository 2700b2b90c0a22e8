"""Exact amounts in major units, with only the declared marks; currencies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.finance.files.tables import Number, UnclearCell, quoted
from reconcile.money import MAX_MINOR, MoneyError, exponent_of

DECIMAL_MARKS: Final = (".", ",")

THOUSANDS_MARKS: Final = ("", ",", ".", "'", "’", " ", "\u00a0", "\u202f")
"""No mark, and the marks in use: the last ones are blanks that keep a number together."""

_CANONICAL: Final = re.compile(r"(-?)([0-9]{1,30})(?:\.([0-9]{1,60}))?")
_MARKS: Final = re.compile(r"[.,'’ \u00a0\u202f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks in a file's amounts.

    decimal, thousands  the mark before the decimals, and the mark between groups of thousands
    brackets            whether (1.00) is -1.00
    signs               signs that may stand before or behind an amount, and the currency of each
    """

    decimal: str = "."
    thousands: str = ""
    brackets: bool = False
    signs: Mapping[str, str] = field(default_factory=dict)


class Amounts:
    """Reads cells as minor units."""

    def __init__(self, marks: Marks) -> None:
        self._decimal, self._thousands = marks.decimal, marks.thousands
        self._brackets, self._signs = marks.brackets, marks.signs
        signs = sorted(map(re.escape, marks.signs), key=len, reverse=True)
        self._sign = re.compile("|".join(signs)) if signs else None
        grouped = ""
        if marks.thousands:  # in India the groups before the last have two digits
            mark = re.escape(marks.thousands)
            grouped = f"[0-9]{{1,3}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}|"
        self._pattern = re.compile(
            f"(-?)({grouped}[0-9]{{1,30}})(?:{re.escape(marks.decimal)}([0-9]{{1,60}}))?"
        )

    def read(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int]:
        """Return each cell's minor units in its currency. Raises UnclearCell."""
        return self._in_full(cells, currencies) or [
            self._minor(cell, currency) for cell, currency in zip(cells, currencies, strict=True)
        ]

    def _in_full(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int] | None:
        """Read cells of one currency, each with all decimals and no other mark; else return None.

        Most files write amounts so, and this is much faster for a million of them.
        """
        exponent = exponent_of(currencies[0])
        if self._decimal != "." or not exponent or len(set(currencies)) > 1:
            return None
        together = "\n".join(cells)
        amount = rf"[0-9]{{1,15}}\.[0-9]{{{exponent}}}"
        if not re.fullmatch(rf"{amount}(?:\n{amount})*", together):
            return None
        found = [int(digits) for digits in together.replace(".", "").split("\n")]
        return found if len(found) == len(cells) else None

    def optional(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int | None]:
        """Return each cell's minor units, None for empty cells. Raises UnclearCell."""
        if not any(cells):
            return [None] * len(cells)
        return [
            self._minor(cell, currency) if cell.strip() else None
            for cell, currency in zip(cells, currencies, strict=True)
        ]

    def parts(self, cell: str) -> tuple[str, str, str, str]:
        """Split a cell into minus sign, digits before and after the decimal mark, currency sign.

        Each is empty if it is missing. Raises UnclearCell.
        """
        pattern = _CANONICAL if type(cell) is Number else self._pattern
        match = pattern.fullmatch(cell) or pattern.fullmatch(cell.strip())
        shown = ""
        if match is None and (self._brackets or self._sign) and type(cell) is not Number:
            bare = cell.strip()
            sign = self._sign.search(bare) if self._sign else None
            if sign is not None:
                shown = sign[0]
                bare = " ".join((bare[: sign.start()] + bare[sign.end() :]).split())
                bare = re.sub(r"^- ", "-", bare)
            if self._brackets and bare.startswith("(") and bare.endswith(")"):
                bare = f"-{bare[1:-1].strip()}"
            match = pattern.fullmatch(bare)
        if match is None:
            raise UnclearCell(self._why_not(cell.strip()))
        minus, whole, decimals = match.groups("")
        if self._thousands and type(cell) is not Number:
            whole = whole.replace(self._thousands, "")
        return minus, whole, decimals, shown

    def _minor(self, cell: str, currency: str) -> int:
        sign, whole, decimals, shown = self.parts(cell)
        exponent = exponent_of(currency)
        if shown and self._signs[shown] != currency:
            raise UnclearCell(
                f"has the sign of {self._signs[shown]}, and the row's currency is {currency}"
            )
        if len(decimals) > exponent:
            if len(decimals) == 3 or decimals[exponent:].strip("0"):
                raise UnclearCell(
                    f"has more decimals than its currency, which has {exponent}: if the mark groups"
                    ' thousands, declare thousands = "." and decimal = "," in a mapping'
                )
            decimals = decimals[:exponent]
        minor = int(whole + decimals.ljust(exponent, "0"))
        if minor > MAX_MINOR:
            raise UnclearCell("does not fit in 64 bits of minor units")
        return -minor if sign else minor

    def _why_not(self, text: str) -> str:
        if not text:
            return "is empty"
        if text.startswith("="):
            return "is a formula: put its value there"
        if text.startswith("(") and text.endswith(")"):
            return (
                "is in brackets: write a negative amount with a minus sign, such as -1.00, or "
                'declare brackets = "negative" in a mapping'
            )
        if _MARKS.search(text) and not re.search(r"[^-0-9.,'’ \u00a0\u202f]", text):
            return (
                f"{quoted(text)} can be read in two ways: declare in a mapping what marks decimals "
                'and thousands, such as decimal = "," and thousands = "."'
            )
        return f"{quoted(text)} is not an amount such as 1500.00"


def read_currencies(cells: Sequence[str]) -> list[str]:
    """Return ISO 4217 codes in capital letters. Raises UnclearCell."""
    plain = [cell.strip().upper() for cell in cells]
    for code in set(plain):
        try:
            exponent_of(code)
        except MoneyError:
            what = f"{quoted(code)} is not a currency code" if code else "is empty"
            raise UnclearCell(f"{what}: write one of ISO 4217, such as KES") from None
    return plain
