"""Convert money to the merchant's own currency at daily rates."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Final

from reconcile.money import Money, exponent_of
from reconcile.reporting import report as r

DAYS_BACK: Final = 7
"""Number of days for which an older rate is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedRate:
    """Exchange rate that was used in a report."""

    currency: str
    day: str | None
    rate: Fraction
    origin: r.RateFrom

    @property
    def text(self) -> str:
        """Return the rate as text, cut to ten decimals."""
        parts = self.rate.numerator * 10**10 // self.rate.denominator
        return f"{parts // 10**10}.{parts % 10**10:010}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Exchange rates to the merchant's own currency."""

    own: str
    by_day: Mapping[str, tuple[tuple[str, Fraction], ...]]
    statements: Mapping[str, Fraction]

    def on(self, currency: str, day: str) -> UsedRate | None:
        """Return the exchange rate for a day, or None."""
        known = self.by_day.get(currency, ())
        place = bisect_right(known, day, key=lambda each: each[0]) - 1
        if place >= 0:
            of, rate = known[place]
            if (date.fromisoformat(day) - date.fromisoformat(of)).days <= DAYS_BACK:
                return UsedRate(currency=currency, day=of, rate=rate, origin="file")
        if currency in self.statements:
            rate = self.statements[currency]
            return UsedRate(currency=currency, day=None, rate=rate, origin="statement")
        return None


class Converter:
    """Converter of money, with a record of its rates."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self._used: dict[tuple[str, str], UsedRate] = {}
        self._missing: Counter[str] = Counter()

    def converted(self, money: Money, day: str) -> int | None:
        """Convert money to the own currency's minor units. Halves are rounded away from zero; None
        means no rate."""
        own = self.rates.own
        if money.currency == own or not money.minor:
            return money.minor
        used = self.rates.on(money.currency, day)
        if used is None:
            self._missing[money.currency] += 1
            return None
        self._used[money.currency, used.day or ""] = used
        above = abs(money.minor) * used.rate.numerator * 10 ** exponent_of(own)
        below = used.rate.denominator * 10 ** exponent_of(money.currency)
        rounded: int = (2 * above + below) // (2 * below)
        return rounded if money.minor >= 0 else -rounded

    def used(self) -> Iterator[UsedRate]:
        """Yield each used rate, sorted by currency and day."""
        yield from (self._used[key] for key in sorted(self._used))

    def missing(self) -> tuple[str, ...]:
        """Return the currencies without a rate."""
        return tuple(sorted(self._missing))


Sums = Mapping[tuple[str, str, str], int]
"""Sums in minor units by day, currency and kind."""


def converted_sums(sums: Sums, converter: Converter) -> dict[tuple[str, str], int]:
    """Return the converted sums of all days."""
    found: Counter[tuple[str, str]] = Counter()
    for (day, currency, what), minor in sorted(sums.items()):
        converted = converter.converted(Money(minor=minor, currency=currency), day)
        if converted is not None:
            found[currency, what] += converted
    return dict(found)


def settled_at(pairs: Iterable[tuple[Money, Money]], own: str) -> dict[str, Fraction]:
    """Return the rates at which statements settled other currencies."""
    came: Counter[str] = Counter()
    arrived: Counter[str] = Counter()
    for captured, settled in pairs:
        if settled.currency == own != captured.currency:
            came[captured.currency] += captured.minor
            arrived[captured.currency] += settled.minor
    places = 10 ** exponent_of(own)
    return {
        currency: Fraction(arrived[currency] * 10 ** exponent_of(currency), minor * places)
        for currency, minor in came.items()
        if minor > 0 and arrived[currency] > 0
    }


def with_statements(rates: Rates, pairs: Iterable[tuple[Money, Money]]) -> Rates:
    """Return the rates, extended by the rates that statements imply."""
    return replace(rates, statements={**settled_at(pairs, rates.own), **rates.statements})


_FLOWS: Final = [flow for flow in r.FLOWS if flow not in r.BANK_FLOWS]
_ALWAYS: Final[frozenset[r.OwnFlow]] = frozenset({"captured", "net", "settled", "residual"})
_NET: Final[Mapping[r.Flow, int]] = {
    "captured": 1,
    "refunded": -1,
    "lost_in_disputes": -1,
    "fees": -1,
}
_AFTER_NET: Final[Mapping[r.Flow, int]] = {
    "settled": 1,
    "not_settled": 1,
    "differs": 1,
    "other_currency": 1,
    "not_notified": -1,
    "no_movement": -1,
}


def in_own_currency(
    flows: Sums, rates: Rates | None, *, settled: Iterable[r.SettledInRow]
) -> tuple[tuple[r.OwnRow, ...], tuple[r.RateRow, ...], tuple[str, ...]]:
    """Return converted money flows, used rates, and remarks."""
    if rates is None:
        return (), (), ()
    own = rates.own
    pairs = [
        (
            Money(minor=row.captured, currency=row.captured_in),
            Money(minor=row.settled, currency=row.settled_in),
        )
        for row in settled
        if row.settled_in is not None and row.settled is not None
    ]
    converter = Converter(with_statements(rates, pairs))
    sums = converted_sums(flows, converter)
    rows: list[r.OwnRow] = []
    for of in (*sorted({currency for currency, _ in sums}), None):
        found: Counter[str] = Counter()
        for (currency, flow), minor in sums.items():
            if of in (None, currency):
                found[flow] += minor
        found["net"] = sum([sign * found[flow] for flow, sign in _NET.items()])
        after = sum([sign * found[flow] for flow, sign in _AFTER_NET.items()])
        found["residual"] = found["net"] - after
        named: tuple[r.OwnFlow, ...] = (*_FLOWS, "residual")
        rows += [
            r.OwnRow(currency=own, of=of, flow=flow, sum=found[flow])
            for flow in named
            if found[flow] or flow in _ALWAYS
        ]
    used = tuple(
        r.RateRow(of=each.currency, day=each.day, rate=each.text, origin=each.origin)
        for each in converter.used()
    )
    missing = ", ".join(converter.missing())
    remark = (
        f"Money in {missing} is not in the totals in {own}: neither the file of exchange rates "
        "nor a statement has a rate for that day."
    )
    return tuple(rows), used, (remark,) if missing else ()
