"""Parse currency codes and exact amounts in major units."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from app.finance.files.tables import Number, UnclearCell, is_quotable, quoted
from reconcile.money import MAX_MINOR, MoneyError, exponent_of

DECIMAL_MARKS: Final = (".", ",")

THOUSANDS_MARKS: Final = ("", ",", ".", "'", "’", " ", "\u00a0", "\u202f", "\u2009")
"""Thousands separators. An empty text means no separator."""

MINUS_SIGNS: Final = "-\u2212\u2010\u2011\u2013\uff0d"

_ALIKE: Final = str.maketrans(
    dict.fromkeys(MINUS_SIGNS, "-")
    | dict.fromkeys("\u00a0\u202f\u2007\u2009", " ")
    | {"’": "'", "\uff0b": "+"}
)
_CANONICAL: Final = re.compile(r"(-?)([0-9]{1,30})(?:\.([0-9]{1,60}))?")
_SUFFIXED: Final = re.compile(r"[0-9.,' ]*[0-9] ?(-|[CD]R?)", re.IGNORECASE)

Parts = tuple[str, str, str, str]
"""Parts of an amount: (minus, whole digits, decimals, currency sign)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Marks in a file's amounts. Without `declared`, 1.000 can mean a thousand."""

    decimal: str = "."
    thousands: str = ""
    declared: bool = False
    brackets: bool = False
    signs: Mapping[str, str] = field(default_factory=dict)
    suffixes: Mapping[str, str] = field(default_factory=dict)


class Amounts:
    """Parser of the amounts in a file's cells."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._thousands = marks.thousands.translate(_ALIKE)
        self._signs = sorted(marks.signs, key=len, reverse=True)
        self._suffixes = sorted(marks.suffixes, key=len, reverse=True)
        grouped = ""
        if marks.thousands:  # Indian groups before the last have two digits
            mark = re.escape(self._thousands)
            grouped = f"[0-9]{{1,3}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}|"
        self._pattern = re.compile(
            f"([-+]?)({grouped}[0-9]{{1,30}})(?:{re.escape(marks.decimal)}([0-9]{{1,60}}))?"
        )

    def read(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int]:
        """Return each cell's amount in minor units. Raise UnclearCell for a cell without a clear
        amount."""
        return self._in_full(cells, currencies) or [
            self._minor(cell, currency) for cell, currency in zip(cells, currencies, strict=True)
        ]

    def _in_full(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int] | None:
        exponent = exponent_of(currencies[0])
        if self._marks.decimal != "." or not exponent or len(set(currencies)) > 1:
            return None
        together = "\n".join(cells)
        amount = rf"-?[0-9]{{1,14}}\.[0-9]{{{exponent}}}"  # any 18 digits fit into 64 bits
        if not re.fullmatch(rf"{amount}(?:\n{amount})*", together):
            return None
        found = [int(digits) for digits in together.replace(".", "").split("\n")]
        return found if len(found) == len(cells) else None

    def optional(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int | None]:
        """Return each cell's amount in minor units; None for an empty cell. Raise UnclearCell for
        an unclear amount."""
        if not any(cells):
            return [None] * len(cells)
        return [*(self._in_full(cells, currencies) or ())] or [
            self._minor(cell, currency) if cell.strip() else None
            for cell, currency in zip(cells, currencies, strict=True)
        ]

    def parts(self, cell: str, currency: str | None = None) -> Parts:
        """Split an amount in a cell into its parts. Raise UnclearCell, with the possible amounts,
        for an unclear amount."""
        parts = self._split(cell)
        if parts is None:
            raise UnclearCell(self._why_not(cell, currency))
        return parts

    def _split(self, cell: str) -> Parts | None:
        typed = type(cell) is Number
        match = (_CANONICAL if typed else self._pattern).fullmatch(cell)
        if match is None:
            return None if typed else self._peeled(cell)
        direction, whole, decimals = match.groups("")
        if typed:
            return direction, whole, decimals.rstrip("0"), ""
        if self._thousands:
            whole = whole.replace(self._thousands, "")
        return direction.strip("+"), whole, decimals, ""

    def _peeled(self, cell: str) -> Parts | None:
        text = cell.translate(_ALIKE).strip()
        directions, shown = list[str](), ""
        while (match := self._pattern.fullmatch(text)) is None:
            sign = next((s for s in self._signs if text.startswith(s) or text.endswith(s)), "")
            suffix = next((s for s in self._suffixes if text.casefold().endswith(s)), "")
            if len(directions) > 1:  # also stops early in a long row of hyphens
                return None
            if sign and not shown and len(sign) >= len(suffix):
                shown = sign
                text = text[len(sign) :] if text.startswith(sign) else text[: -len(sign)]
            elif self._marks.brackets and text[:1] == "(" and text[-1:] == ")":
                directions.append("-")
                text = text[1:-1]
            elif suffix:
                directions.append(self._marks.suffixes[suffix])
                text = text[: -len(suffix)]
            elif text[:1] in ("-", "+"):
                directions.append(text[:1])
                text = text[1:]
            else:
                return None
            text = text.strip()
        direction, whole, decimals = match.groups("")
        directions += [direction] if direction else []
        if len(directions) > 1:
            return None
        whole = whole.replace(self._thousands, "") if self._thousands else whole
        return "".join(directions).strip("+"), whole, decimals, shown

    def _minor(self, cell: str, currency: str) -> int:
        minus, whole, decimals, shown = self.parts(cell, currency)
        exponent = exponent_of(currency)
        if shown and self._marks.signs[shown] != currency:
            raise UnclearCell(
                f"has the currency sign of {self._marks.signs[shown]}, but the row's currency is "
                f"{currency}"
            )
        if len(decimals) > exponent:
            certain = self._marks.declared or type(cell) is Number
            if decimals[exponent:].strip("0") or (len(decimals) == 3 and not certain):
                more = f"has more decimals than {currency}, which has {exponent}"
                readings = "" if certain else self._readings(cell, currency)
                raise UnclearCell(f"{more}; {readings}" if readings else more)
            decimals = decimals[:exponent]
        minor = int(whole + decimals.ljust(exponent, "0"))
        if minor > MAX_MINOR:
            raise UnclearCell("does not fit in 64 bits of minor units")
        return -minor if minus else minor

    def _why_not(self, cell: str, currency: str | None) -> str:
        text = cell.translate(_ALIKE).strip()
        if not text:
            return "is empty"
        if type(cell) is Number:  # a typed number ignores declarations
            return f"{quoted(cell)} is not an amount such as 1500.00"
        if text.startswith("="):
            return "is a formula: replace it with its value"
        if text.startswith("(") and text.endswith(")") and not self._marks.brackets:
            return (
                "is in brackets: write a negative amount with a minus sign, such as -1.00, or "
                'declare brackets = "negative" in a mapping'
            )
        ended = _SUFFIXED.fullmatch(text)
        if ended is not None and ended[1].casefold() not in self._marks.suffixes:
            return (
                f'ends with {ended[1]!r}: say whether that is "minus" or "plus", under '
                "[suffixes] in a mapping"
            )
        return self._readings(cell, currency) or f"{quoted(cell)} is not an amount such as 1500.00"

    def _readings(self, cell: str, currency: str | None) -> str:
        found = dict[str, str]()
        for trial in self._trials:
            parts = trial._split(cell)
            if parts is None:
                continue
            minus, whole, decimals, _ = parts
            if currency is not None:
                exponent = exponent_of(currency)
                if decimals[exponent:].strip("0"):
                    continue
                decimals = decimals.ljust(exponent, "0")[:exponent]
            shown = f"{minus}{int(whole):,}{'.' * bool(decimals)}{decimals}"
            found.setdefault(shown, trial._declaration)
        if not found:
            return ""
        if not is_quotable(cell):  # it may be a phone number
            return (
                "can be read in several ways, so declare its marks in a mapping: "
                f"{' or '.join(found.values())}"
            )
        ways = " or as ".join(f"{shown} ({declared})" for shown, declared in found.items())
        return f"{quoted(cell)} can be read as {ways}: declare in a mapping what is meant"

    @cached_property
    def _trials(self) -> Sequence["Amounts"]:
        thousands = dict.fromkeys((self._thousands, "", ",", ".", " ", "'"))
        return [
            Amounts(replace(self._marks, decimal=decimal, thousands=mark, declared=True))
            for mark in thousands
            for decimal in DECIMAL_MARKS
            if decimal != mark
        ]

    @property
    def _declaration(self) -> str:
        keys = {"decimal": self._marks.decimal, "thousands": self._thousands}
        return " and ".join(f'{key} = "{mark}"' for key, mark in keys.items() if mark)


def read_currencies(cells: Sequence[str]) -> list[str]:
    """Return ISO 4217 codes in capital letters. Raise UnclearCell for a cell without such a
    code."""
    plain = [cell.strip().upper() for cell in cells]
    for code in set(plain):
        try:
            exponent_of(code)
        except MoneyError:
            what = f"{quoted(code)} is not a currency code" if code else "is empty"
            raise UnclearCell(f"{what}: write an ISO 4217 code, such as KES") from None
    return plain
