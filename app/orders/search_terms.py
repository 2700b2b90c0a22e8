"""What a person who looks for an order may type, and what it may mean.

    TEXT    := DAY | AMOUNT | AMOUNT DAY | DAY AMOUNT | PHONE | NAME
    DAY     := 2026-11-20                        a day of UTC on which something was received
    AMOUNT  := 1500.00 | KES 1500 | 1,500.00 KES   in major units, with or without its currency
    PHONE   := +254 700 000 001 | 00254… | 0700 000 001    as profiles read it; national only where
                                                 a configured source names the country
    NAME    := anything printable                an order's reference or how it begins, a payment,
                                                 a session, an event's id, a delivery's id; where
                                                 none is, in capitals or small letters

One text may mean several of these; all that it may mean is looked for, and told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final

from app.core.errors import UsageError
from app.core.masking import masked_phone
from app.providers.phones import phone_digits
from reconcile.currencies import EXPONENTS
from reconcile.instants import DAY, SECOND, Instant
from reconcile.money import MoneyError, from_major

MAX_TEXT: Final = 256
"""Characters: longer than any reference of a provider's."""

GRAMMAR: Final = (
    "type a reference, a payment, a session, an event id, a phone number (+254 700 000 001), "
    "an amount (KES 1500.00), a day (2026-11-20), or an amount and a day"
)

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NUMBER: Final = re.compile(
    r"\d{1,15}(?:\.\d{1,4})?|\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,4})?", re.ASCII
)
_PHONE: Final = re.compile(r"\+?[\d\s().-]{7,30}", re.ASCII)
_KINDS: Final = frozenset(EXPONENTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What a text may mean; what it cannot mean is empty or None.

    name     a reference or an id, or the beginning of an order's reference
    phones   E.164 digits
    amounts  minor units, by the number of decimals of the currencies in which they are that amount
    day      its first instant
    national whether it may be a phone number without its country, which nothing here tells
    """

    name: str | None = None
    phones: tuple[str, ...] = ()
    amounts: dict[int, int] | None = None
    currency: str | None = None
    day: Instant | None = None
    national: bool = False

    def sentences(self) -> list[str]:
        """What is looked for, one sentence each; a phone number masked."""
        told = []
        if self.name is not None:
            told.append("an order's reference, a payment, a session, an event or a delivery")
        told += [f"the phone number {masked_phone(digits)}" for digits in self.phones]
        if self.amounts is not None:
            told.append(f"an amount in {self.currency or 'any currency'}")
        if self.day is not None:
            told.append("what was received on that day (UTC)")
        return told


def understood(text: str, *, countries: Iterable[str] = ()) -> Sought:
    """What a text may mean. Raises UsageError where it can mean nothing.

    countries  calling codes of the sources' customers, for numbers written in the national way
    """
    text = text.strip()
    if not (0 < len(text) <= MAX_TEXT) or not text.isprintable():
        raise UsageError(f"nothing can be looked for by that: {GRAMMAR}")
    words = text.split()
    days = [word for word in words if _DAY.fullmatch(word)]
    rest = [word for word in words if word not in days]
    day = _day(days[0]) if len(days) == 1 else None
    currency, amounts = _amount(rest)
    if day is not None and (not rest or amounts is not None):
        return Sought(day=day, amounts=amounts, currency=currency, name=text if not rest else None)
    phones = _phones(text, countries)
    return Sought(
        name=text,
        phones=phones,
        amounts=amounts,
        currency=currency,
        national=not phones and text.startswith(("0", "(0")) and _PHONE.fullmatch(text) is not None,
    )


def _day(word: str) -> Instant | None:
    try:
        found = date.fromisoformat(word)
    except ValueError:
        return None
    moment = datetime(found.year, found.month, found.day, tzinfo=UTC)
    return int(moment.timestamp()) * SECOND


def _amount(words: list[str]) -> tuple[str | None, dict[int, int] | None]:
    codes = [word.upper() for word in words if word.upper() in EXPONENTS]
    numbers = [word for word in words if _NUMBER.fullmatch(word)]
    if len(numbers) != 1 or len(codes) > 1 or len(codes) + 1 != len(words):
        return None, None
    amount = Decimal(numbers[0].replace(",", ""))
    currency = codes[0] if codes else None
    wanted = _KINDS if currency is None else {EXPONENTS[currency]}
    amounts = {exponent: minor for exponent in wanted if (minor := _minor(amount, exponent))}
    return currency, amounts or None


def _minor(amount: Decimal, exponent: int) -> int | None:
    """None where no currency of so many decimals can state it, and for nothing at all."""
    code = next(code for code, decimals in EXPONENTS.items() if decimals == exponent)
    try:
        return from_major(amount, code).minor or None
    except MoneyError:
        return None


def _phones(text: str, countries: Iterable[str]) -> tuple[str, ...]:
    if not _PHONE.fullmatch(text):
        return ()
    found = [phone_digits(text, country) for country in (None, *sorted(set(countries)))]
    return tuple(dict.fromkeys([digits for digits in found if digits is not None]))


def end_of(day: Instant) -> Instant:
    """The first instant of the next day."""
    return day + DAY
