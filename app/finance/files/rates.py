"""Read files of exchange rates: rows of `date,currency,rate`, or the European Central Bank's
history."""

import csv
import re
from collections.abc import Iterator, Mapping
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Final

from app.config.settings import ReportsSettings
from app.core.errors import ConfigurationError
from reconcile.money import is_currency
from reconcile.reporting.own_currency import Rates

MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum number of bytes in a file of rates."""

_EURO: Final = "EUR"
_RATE: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?", re.ASCII)
_NONE: Final = frozenset({"", "N/A"})

Table = Mapping[str, tuple[tuple[str, Fraction], ...]]


def merchant_rates(settings: ReportsSettings) -> Rates | None:
    """Return the rates to the merchant's currency, if set. Raise ConfigurationError for an invalid
    file of rates."""
    if settings.currency is None:
        return None
    by_day = {} if settings.rates is None else read_rates(settings.rates, settings.currency)
    return Rates(own=settings.currency, by_day=by_day, statements={})


def read_rates(path: Path, own: str) -> Table:
    """Return each currency's rates to the currency `own`, sorted by day. Raise ConfigurationError
    for an invalid file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigurationError([f"{path}: is larger than {MAX_BYTES // 1024 // 1024} MiB"])
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path}: cannot be read as text: {error}"]) from None
    return rates_of(text, own, name=str(path))


def rates_of(text: str, own: str, *, name: str = "the file of rates") -> Table:
    """Parse the text of a file of rates. Raise ConfigurationError that names the mistakes."""
    found: dict[str, dict[str, Fraction]] = {}
    rows = csv.reader(text.splitlines())
    try:
        heading = [each.strip() for each in next(rows, [])]
        plain = [each.casefold() for each in heading] == ["date", "currency", "rate"]
        if not plain and heading[:1] != ["Date"]:
            raise ValueError(
                "the heading must be date,currency,rate, or the heading of eurofxref-hist.csv"
            )
        if not plain and own != _EURO and own not in heading:
            raise ValueError(
                f"these are exchange rates of the euro, but the column {own} is missing"
            )
        for cells in rows:
            row = [each.strip() for each in cells]
            for currency, day, rate in _plain(row) if plain else _of_euro(heading, row, own):
                if found.setdefault(currency, {}).setdefault(day, rate) != rate:
                    raise ValueError(f"{currency} has two rates on {day}")
    except (ValueError, csv.Error) as error:
        raise ConfigurationError([f"{name}:{max(rows.line_num, 1)}: {error}"]) from None
    return {currency: tuple(sorted(days.items())) for currency, days in found.items()}


def _plain(row: list[str]) -> Iterator[tuple[str, str, Fraction]]:
    if not any(row):
        return
    if len(row) != 3:
        raise ValueError("a line must have a date, a currency and a rate")
    if not is_currency(row[1]):
        raise ValueError(f"{row[1][:20]!r} is not a currency code such as KES")
    yield row[1], _day(row[0]), _rate(row[2])


def _of_euro(heading: list[str], row: list[str], own: str) -> Iterator[tuple[str, str, Fraction]]:
    if not any(row):
        return
    rates = {_EURO: Fraction(1)} | {
        currency: _rate(cell)
        for currency, cell in zip(heading[1:], row[1:], strict=False)
        if is_currency(currency) and cell not in _NONE
    }
    if own not in rates:
        return
    for currency, rate in rates.items():
        if currency != own:
            yield currency, _day(row[0]), rates[own] / rate


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError(f"{text[:20]!r} is not a day such as 2026-10-31") from None


def _rate(text: str) -> Fraction:
    if not _RATE.fullmatch(text) or not (rate := Fraction(text)):
        raise ValueError(f"{text[:20]!r} is not a rate such as 0.0067")
    return rate
