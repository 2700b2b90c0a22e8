"""Reads a file of matching rules: TOML, strict, and all mistakes at once.

date_window = "2 days"                # off unless it is given
settle_margin = "7 days"
[tolerance]
KES = "1.00"                          # major units
[accept_alone_max]
KES = "5000.00"                       # above it, accepting a break takes two people; once there
                                      # is a limit, so does every change of the rules
[[fee]]
source = "shop"
currency = "KES"
percent = "2.9"
fixed = "0.30"
tolerance = "0.01"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from app.core.errors import ConfigurationError
from reconcile.instants import DAY, HOUR, Duration
from reconcile.matching.rules import ExpectedFee, MatchRules, Tolerance
from reconcile.money import MoneyError, exponent_of, from_major

MAX_BYTES: Final = 64 * 1024
"""A file of rules has some dozens of lines; one much larger is another file."""

DURATIONS: Final = (
    "date_window",
    "settle_margin",
    "book_margin",
    "money_margin",
    "refund_margin",
)

_DURATION: Final = re.compile(r"([0-9]{1,4}) ?(day|days|hour|hours)", re.ASCII)
_FEE_KEYS: Final = ("source", "currency", "percent", "fixed", "tolerance")
_MILLION: Final = 10_000
"""Parts of a million in one per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The merchant's choices.

    match      what the matcher is given
    alone_max  minor units by currency up to which one person may accept a break; a currency that
               is not named has no such limit
    """

    match: MatchRules = field(default_factory=MatchRules)
    alone_max: Mapping[str, int] = field(default_factory=dict)


def read_rules(text: str) -> Rules:
    """The rules of a file. Raises ConfigurationError with a line for every mistake."""
    return _Reader(text).rules()


class _Reader:
    """One file being read; every mistake is noted, and reading goes on."""

    def __init__(self, text: str) -> None:
        self._problems: list[str] = []
        self._given = self._parsed(text)

    def _parsed(self, text: str) -> dict[str, Any]:
        if len(text.encode()) > MAX_BYTES:
            raise ConfigurationError([f"the rules are larger than {MAX_BYTES} bytes"])
        try:
            return tomllib.loads(text, parse_float=Decimal)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigurationError([f"the rules are not TOML: {error}"]) from None

    def rules(self) -> Rules:
        known = {*DURATIONS, "currency", "tolerance", "accept_alone_max", "fee"}
        self._unknown(self._given, known, "")
        tolerances = self._amounts("tolerance")
        chosen: dict[str, Any] = {
            name: self._duration(name) for name in DURATIONS if name in self._given
        }
        if "currency" in self._given:
            chosen["currency"] = self._currency()
        chosen["fees"] = tuple(self._fees())
        chosen["tolerances"] = tuple(
            Tolerance(currency=currency, minor=tolerances[currency])
            for currency in sorted(tolerances)
        )
        rules = Rules(match=MatchRules(**chosen), alone_max=self._amounts("accept_alone_max"))
        if self._problems:
            raise ConfigurationError(self._problems)
        return rules

    def _unknown(self, given: Mapping[str, Any], known: set[str], where: str) -> None:
        for name in sorted(given.keys() - known):
            self._problems.append(f"{where}{name}: no such rule; known: {', '.join(sorted(known))}")

    def _duration(self, name: str) -> Duration:
        value = self._given[name]
        found = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            self._problems.append(f'{name}: write a length of time such as "2 days" or "36 hours"')
            return 0
        return int(found[1]) * (DAY if found[2].startswith("day") else HOUR)

    def _currency(self) -> str:
        code = self._given["currency"]
        try:
            exponent_of(code if isinstance(code, str) else "")
        except MoneyError as error:
            self._problems.append(f"currency: {error}")
        return str(code)

    def _table(self, name: str) -> Mapping[str, Any]:
        table = self._given.get(name, {})
        if not isinstance(table, dict):
            self._problems.append(f'{name}: write a table, such as [{name}] KES = "1.00"')
            return {}
        return table

    def _amounts(self, name: str) -> dict[str, int]:
        return {
            currency: self._amount(f"{name}.{currency}", amount, currency)
            for currency, amount in self._table(name).items()
        }

    def _amount(self, where: str, amount: object, currency: str) -> int:
        """Minor units of an amount in major units."""
        try:
            minor = from_major(_number(amount), currency).minor
        except (MoneyError, ValueError) as error:
            self._problems.append(f"{where}: {error}")
            return 0
        if minor < 0:
            self._problems.append(f"{where}: an amount is not negative")
        return minor

    def _fees(self) -> Iterator[ExpectedFee]:
        fees = self._given.get("fee", [])
        if not isinstance(fees, list) or not all(isinstance(each, dict) for each in fees):
            self._problems.append("fee: write each fee as a table [[fee]]")
            return
        seen = set[tuple[str, str]]()
        for place, each in enumerate(fees, 1):
            where = f"fee {place}: "
            self._unknown(each, set(_FEE_KEYS), where)
            fee = self._fee(each, where)
            if fee is not None:
                if (fee.source, fee.currency) in seen:
                    self._problems.append(f"{where}there is one for this source and currency")
                seen.add((fee.source, fee.currency))
                yield fee

    def _fee(self, given: Mapping[str, Any], where: str) -> ExpectedFee | None:
        source, currency = given.get("source"), given.get("currency")
        if not isinstance(source, str) or not isinstance(currency, str):
            self._problems.append(f"{where}name its source and currency")
            return None
        return ExpectedFee(
            source=source,
            currency=currency,
            per_million=self._per_million(given.get("percent", 0), where),
            fixed=self._amount(f"{where}fixed", given.get("fixed", 0), currency),
            **(
                {"tolerance": self._amount(f"{where}tolerance", given["tolerance"], currency)}
                if "tolerance" in given
                else {}
            ),
        )

    def _per_million(self, percent: object, where: str) -> int:
        try:
            parts = _number(percent) * _MILLION
        except ValueError as error:
            self._problems.append(f"{where}percent: {error}")
            return 0
        if parts != int(parts) or not 0 <= parts <= 1_000_000:
            self._problems.append(
                f"{where}percent: a number from 0 to 100 with at most four decimals"
            )
            return 0
        return int(parts)


_DECIMAL: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,6})?", re.ASCII)


def _number(value: object) -> Decimal:
    """A decimal of a string or number. Raises ValueError with a sentence."""
    text = str(value) if isinstance(value, str | int | Decimal) else ""
    if isinstance(value, bool) or _DECIMAL.fullmatch(text) is None:
        raise ValueError('write a decimal number such as "1.00"')
    return Decimal(text)
