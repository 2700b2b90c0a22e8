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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, PlainValidator

from app.core.toml_file import Mistake, Table, Values, read_toml
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
_DECIMAL: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,6})?", re.ASCII)
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


def _duration(value: Any) -> Duration:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('write a length of time such as "2 days" or "36 hours"')
    return int(found[1]) * (DAY if found[2].startswith("day") else HOUR)


def _currency(code: str) -> str:
    exponent_of(code)  # raises for what is none
    return code


def _number(value: Any) -> Decimal:
    text = str(value) if isinstance(value, str | int | Decimal) else ""
    if isinstance(value, bool) or _DECIMAL.fullmatch(text) is None:
        raise ValueError('write a decimal number such as "1.00"')
    return Decimal(text)


def _per_million(value: Any) -> int:
    parts = _number(value) * _MILLION
    if parts != int(parts) or not 0 <= parts <= 1_000_000:
        raise ValueError("a number from 0 to 100 with at most four decimals")
    return int(parts)


_Duration = Annotated[int, PlainValidator(_duration)]
_Currency = Annotated[str, AfterValidator(_currency)]
_Number = Annotated[Decimal, PlainValidator(_number)]


class _Fee(Table):
    source: str
    currency: _Currency
    percent: Annotated[int, PlainValidator(_per_million)] = 0
    fixed: _Number = Decimal(0)
    tolerance: _Number | None = None


class _RuleFile(Table):
    date_window: _Duration | None = None
    settle_margin: _Duration | None = None
    book_margin: _Duration | None = None
    money_margin: _Duration | None = None
    refund_margin: _Duration | None = None
    currency: _Currency | None = None
    tolerance: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "1.00"'])
    accept_alone_max: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "5.00"'])
    fee: list[_Fee] = Field(default_factory=list)


def read_rules(text: str, *, name: str = "the rules") -> Rules:
    """The rules of a file. Raises ConfigurationError with a line for every mistake."""
    values = read_toml(
        text, _RuleFile, name=name, most_bytes=MAX_BYTES, together=lambda read: [*_amounts(read)]
    )
    chosen = {key: values[key] for key in (*DURATIONS, "currency") if values[key] is not None}
    tolerances = values["tolerance"]
    match = MatchRules(
        **chosen,
        tolerances=tuple(
            Tolerance(currency=currency, minor=tolerances[currency])
            for currency in sorted(tolerances)
        ),
        fees=tuple(_expected(each) for each in values["fee"]),
    )
    return Rules(match=match, alone_max=values["accept_alone_max"])


def _expected(fee: Values) -> ExpectedFee:
    tolerance = {} if fee["tolerance"] is None else {"tolerance": fee["tolerance"]}
    return ExpectedFee(
        source=fee["source"],
        currency=fee["currency"],
        per_million=fee["percent"],
        fixed=fee["fixed"],
        **tolerance,
    )


def _amounts(values: Values) -> Iterator[Mistake]:
    """Put minor units in the place of amounts in major units; two fees for one thing are wrong."""
    for name in ("tolerance", "accept_alone_max"):
        amounts = values.get(name, {})
        for currency in amounts:
            yield from _to_minor(amounts, currency, currency, f"{name}.")
    seen = set[tuple[str, str]]()
    for place, fee in enumerate(values.get("fee", []), 1):
        where = f"fee.{place}"
        if "currency" in fee:
            yield from _to_minor(fee, "fixed", fee["currency"], f"{where}.")
            yield from _to_minor(fee, "tolerance", fee["currency"], f"{where}.")
        if "source" in fee and "currency" in fee:
            if (fee["source"], fee["currency"]) in seen:
                yield Mistake(where, "there is one for this source and currency")
            seen.add((fee["source"], fee["currency"]))


def _to_minor(given: Values, key: str, currency: str, where: str) -> Iterator[Mistake]:
    amount = given.get(key)
    if amount is None:
        return
    try:
        given[key] = from_major(amount, currency).minor
    except MoneyError as error:
        yield Mistake(f"{where}{key}", str(error))
    else:
        if given[key] < 0:
            yield Mistake(f"{where}{key}", "an amount is not negative")
