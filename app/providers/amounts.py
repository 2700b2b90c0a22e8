"""Parser of amounts as providers write them. An amount that is not exact is refused, never
rounded."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from app.core.reading import UnclearAmount, Unreadable
from reconcile.money import InexactAmount, Money, MoneyError, exponent_of, from_major

AmountUnit = Callable[[Any, str], Money]
"""Function that reads an amount from the value and currency.

The function raises MoneyError.
"""

AMOUNTS_REMEMBERED: Final = 1_024
"""Maximum number of amounts in the cache, about 300 kB."""

_NUMBERS: Final = frozenset({Decimal, int, str})
_CURRENCY = re.compile(r"[A-Z]{3}")  # the form of every code of ISO 4217
_ILL_FORMED: Final = "is not a code of three capital letters"
# Decimal() itself would also accept full-width digits, "1_000" and "1e9".
_DIGITS: Final = 25

_DECIMAL_TEXT = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,18})?")


def _major(value: Any, currency: str) -> Money:
    if type(value) is str and _DECIMAL_TEXT.fullmatch(value):
        return from_major(value, currency)
    if type(value) is Decimal or type(value) is int:
        return from_major(value, currency)
    raise MoneyError("the amount is not a number or a decimal text")


def _minor(value: Any, currency: str) -> Money:
    return _in_units(value, currency, decimals=exponent_of(currency))


def _in_units(value: Any, currency: str, *, decimals: int) -> Money:
    if type(value) is str and not _DECIMAL_TEXT.fullmatch(value):
        raise MoneyError("the amount is not a whole number of minor units")
    number = Decimal(value)
    if number.adjusted() >= _DIGITS:
        raise MoneyError("the amount does not fit in 64 bits of minor units")
    if number != number.to_integral_value():
        raise InexactAmount("the amount is not a whole number of minor units")
    return from_major(number.scaleb(-decimals), currency)


AMOUNT_UNITS: Final[Mapping[str, AmountUnit]] = {"major": _major, "minor": _minor}


def amount_unit(name: str, decimals: tuple[tuple[str, int], ...]) -> AmountUnit:
    """Return the function that reads amounts in a profile's unit."""
    unit, own = AMOUNT_UNITS[name], dict(decimals)
    if not own:
        return unit

    def read(value: Any, currency: str) -> Money:
        if currency not in own:
            return unit(value, currency)
        return _in_units(value, currency, decimals=own[currency])

    return read


def read_amount(read: AmountUnit, value: Any, currency: Any, *, name: str) -> Money:
    """Return an amount as exact money of zero or more.

    Raise UnclearAmount for an inexact number, and Unreadable for any other fault.
    """
    if currency is None:
        raise Unreadable(f"{name} has no currency")
    if type(currency) is not str:
        raise Unreadable(f"the currency of {name} {_ILL_FORMED}")
    if type(value) not in _NUMBERS:
        raise Unreadable(f"{name} cannot be read exactly: it is not a number or a decimal text")
    try:
        return _remembered(read, value, currency)
    except MoneyError as error:
        if not _CURRENCY.fullmatch(currency):
            raise Unreadable(f"the currency of {name} {_ILL_FORMED}") from None
        kind = UnclearAmount if isinstance(error, InexactAmount) else Unreadable
        raise kind(f"{name} {error}") from None


# Prices repeat, and most events state one amount twice. `typed` keeps 1500 apart from "1500".
@lru_cache(maxsize=AMOUNTS_REMEMBERED, typed=True)
def _remembered(read: AmountUnit, value: Decimal | int | str, currency: str) -> Money:
    if not isinstance(value, str) and value < 0:  # no text with a sign is read
        raise MoneyError("is negative")
    try:
        return read(value, currency)
    except MoneyError as error:
        raise type(error)(f"cannot be read exactly: {error}") from None
