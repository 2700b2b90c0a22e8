"""Parse a file of matching rules. `rule_text.py` lists the settings."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, PlainValidator

from app.core.toml_file import TomlMistake, TomlTable, Values, read_toml, yes_or_no
from app.finance.files.statements import DETAILS, MAX_DETAIL
from reconcile.instants import DAY, HOUR, Duration
from reconcile.matching.books import Methods
from reconcile.matching.exchange import MICROS
from reconcile.matching.rules import ExpectedFee, ExpectedRate, MatchRules, Tolerance
from reconcile.money import Money, MoneyError, exponent_of, from_major

MAX_BYTES: Final = 64 * 1024
"""Maximum number of bytes of a file of rules."""

DURATIONS: Final = (
    "date_window",
    "settle_margin",
    "book_margin",
    "money_margin",
    "refund_margin",
    "bank_margin",
)

_DURATION: Final = re.compile(r"([0-9]{1,4}) ?(day|days|hour|hours)", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,6})?", re.ASCII)
_MILLION: Final = 10_000


Period = Literal["day", "month"]
PERIODS: Final[tuple[Period, ...]] = ("day", "month")

DAYS_IN_A_MONTH: Final = 5
"""Factor between a day's limit and a month's default limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Matching rules of the merchant. Amounts are in minor units, by currency."""

    match: MatchRules = field(default_factory=MatchRules)
    alone_max: Mapping[str, int] = field(default_factory=dict)
    """Largest break that one person may accept. Empty for no limit, and 0 for missing
    currencies."""
    alone: Mapping[Period, Mapping[str, int]] = field(default_factory=dict)
    """Limits of one person for a day or a month."""
    close_alone: bool = True
    """True if one person may close a month."""
    adjustment_limit: Mapping[str, int] = field(default_factory=dict)
    """Largest change of a closed month without a break; 0 for no limit."""

    @property
    def limits(self) -> bool:
        return bool(self.alone_max) or not self.close_alone

    def limit(self, period: Period, currency: str) -> int | None:
        """Return one person's limit in minor units, or None."""
        stated = self.alone.get(period, {}).get(currency)
        if stated is not None or currency not in self.alone_max:
            return stated
        if period == "day":
            return self.alone_max[currency]
        return (self.limit("day", currency) or 0) * DAYS_IN_A_MONTH

    def above(self, money: Money) -> str | None:
        """Return why one person may not accept an amount, or None."""
        if not self.alone_max or not money.minor:
            return None
        limit = self.alone_max.get(money.currency)
        if limit is None:
            return (
                f"no rule says how much {money.currency} one person may accept "
                "(accept_alone_max), although one does for other currencies"
            )
        most = Money(minor=limit, currency=money.currency)
        return (
            f"{money} is more than the {most} that one person may accept"
            if money.minor > limit
            else None
        )


def _duration(value: Any) -> Duration:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('write a length of time such as "2 days" or "36 hours"')
    return int(found[1]) * (DAY if found[2].startswith("day") else HOUR)


def _currency(code: str) -> str:
    exponent_of(code)  # raises for an unknown one
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


MOST_PAYERS: Final = 100
"""Maximum number of payers' names."""

MOST_METHODS: Final = 100

_Duration = Annotated[int, PlainValidator(_duration)]
_Currency = Annotated[str, AfterValidator(_currency)]
_Number = Annotated[Decimal, PlainValidator(_number)]


MOST_WHERE: Final = 300
"""Maximum number of values in one condition."""


def _where(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict) or not value.keys() <= set(DETAILS):
        raise ValueError(f"must be a table with one or more of these details: {', '.join(DETAILS)}")
    found = {name: [one] if isinstance(one, str) else one for name, one in value.items()}
    for values in found.values():
        good = isinstance(values, list) and 0 < len(values) <= MOST_WHERE
        if not good or not all(isinstance(e, str) and len(e) <= MAX_DETAIL for e in values):
            raise ValueError(
                'must be a text, or a list of texts such as ["US", "CA"]; "" means that no value '
                "is stated"
            )
    return tuple((name, tuple(values)) for name, values in sorted(found.items()))


class _FeeTable(TomlTable):
    source: str
    currency: _Currency
    percent: Annotated[int, PlainValidator(_per_million)] = 0
    fixed: _Number = Decimal(0)
    tolerance: _Number | None = None
    where: Annotated[Any, PlainValidator(_where)] | None = None


def _rate(value: Any) -> int:
    micros = _number(value) * MICROS
    if not 0 < micros <= MICROS**2:
        raise ValueError("write a rate above 0 and at most 1,000,000")
    return int(micros)


def _payers(value: Any) -> list[str]:
    good = isinstance(value, list) and len(value) <= MOST_PAYERS
    if not good or not all(isinstance(e, str) and 3 <= len(e.strip()) <= 80 for e in value):
        raise ValueError(
            f"at most {MOST_PAYERS} texts of 3 to 80 characters, such as the name in the bank line"
        )
    return [each.strip() for each in value]


def _method_names(value: Any) -> list[str]:
    good = isinstance(value, list) and len(value) <= MOST_METHODS
    if not good or not all(isinstance(e, str) and 0 < len(e.strip()) <= 80 for e in value):
        raise ValueError(
            f"at most {MOST_METHODS} names of at most 80 characters, as in the order book"
        )
    return [each.strip() for each in value]


_MethodNames = Annotated[list[str], PlainValidator(_method_names)]


class _MethodsTable(TomlTable):
    outside: _MethodNames | None = None
    bank: _MethodNames | None = None
    tender: _MethodNames | None = None


class _ExchangeTable(TomlTable):
    currency: _Currency
    into: _Currency
    rate: Annotated[int, PlainValidator(_rate)]
    tolerance_percent: Annotated[int, PlainValidator(_per_million)] = 0


class _RuleFile(TomlTable):
    date_window: _Duration | None = None
    settle_margin: _Duration | None = None
    book_margin: _Duration | None = None
    money_margin: _Duration | None = None
    refund_margin: _Duration | None = None
    bank_margin: _Duration | None = None
    bank_payers: Annotated[list[str], PlainValidator(_payers)] | None = None
    other_business: Annotated[list[str], PlainValidator(_payers)] | None = None
    currency: _Currency | None = None
    close_alone: Annotated[bool, PlainValidator(yes_or_no)] = True
    tolerance: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "1.00"'])
    accept_alone_max: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "5.00"'])
    accept_alone_day: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "9.00"'])
    accept_alone_month: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "9.00"'])
    adjustment_limit: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "9.00"'])
    methods: _MethodsTable = Field(default_factory=_MethodsTable)
    fee: list[_FeeTable] = Field(default_factory=list)
    exchange: list[_ExchangeTable] = Field(default_factory=list)


def read_rules(text: str, *, name: str = "the rules") -> Rules:
    """Parse a file of rules. Raise ConfigurationError with a line for every mistake."""
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
        fees=tuple(
            ExpectedFee(
                source=fee["source"],
                currency=fee["currency"],
                per_million=fee["percent"],
                fixed=fee["fixed"],
                tolerance=max(1, fee["tolerance"] or 0),
                where=fee["where"] or (),
            )
            for fee in values["fee"]
        ),
        bank_payers=tuple(values["bank_payers"] or ()),
        other_business=tuple(values["other_business"] or ()),
        rates=tuple(
            ExpectedRate(
                currency=rate["currency"],
                into=rate["into"],
                micros=rate["rate"],
                tolerance_per_million=rate["tolerance_percent"],
            )
            for rate in values["exchange"]
        ),
        methods=Methods(
            **{name: tuple(given) for name, given in values["methods"].items() if given is not None}
        ),
    )
    return Rules(
        match=match,
        alone_max=values["accept_alone_max"],
        alone={period: values[f"accept_alone_{period}"] for period in PERIODS},
        close_alone=values["close_alone"],
        adjustment_limit=values["adjustment_limit"],
    )


def _amounts(values: Values) -> Iterator[TomlMistake]:
    for name in (
        "tolerance",
        "accept_alone_max",
        "accept_alone_day",
        "accept_alone_month",
        "adjustment_limit",
    ):
        amounts = values.get(name, {})
        for currency in amounts:
            yield from _to_minor(amounts, currency, currency, f"{name}.")
    yield from _limits_apart(values)
    ended = dict[tuple[str, str], int]()
    for place, fee in enumerate(values.get("fee", []), 1):
        where = f"fee.{place}"
        if "currency" in fee:
            yield from _to_minor(fee, "fixed", fee["currency"], f"{where}.")
            yield from _to_minor(fee, "tolerance", fee["currency"], f"{where}.")
        if "source" in fee and "currency" in fee:
            pair = fee["source"], fee["currency"]
            if pair in ended:
                yield TomlMistake(
                    where,
                    f"this fee is never used: fee.{ended[pair]} comes first, and matches all of "
                    "these lines",
                )
            elif not fee.get("where"):
                ended[pair] = place
    pairs = set[tuple[str, str]]()
    for place, rate in enumerate(values.get("exchange", []), 1):
        if "currency" not in rate or "into" not in rate:
            continue
        pair = (rate["currency"], rate["into"])
        if pair[0] == pair[1]:
            yield TomlMistake(f"exchange.{place}", "currency and into are the same")
        if pair in pairs:
            yield TomlMistake(
                f"exchange.{place}", "there is already a rate for these two currencies"
            )
        pairs.add(pair)


def _limits_apart(values: Values) -> Iterator[TomlMistake]:
    names = ("accept_alone_max", "accept_alone_day", "accept_alone_month")
    for place, name in enumerate(names[1:], 1):
        for currency, minor in values.get(name, {}).items():
            if currency not in values.get(names[0], {}):
                yield TomlMistake(f"{name}.{currency}", f"{names[0]}.{currency} must also be given")
            for below in names[:place]:
                if values.get(below, {}).get(currency, minor) > minor:
                    yield TomlMistake(f"{name}.{currency}", f"it is less than {below}.{currency}")
                    break


def _to_minor(given: Values, key: str, currency: str, where: str) -> Iterator[TomlMistake]:
    amount = given.get(key)
    if amount is None:
        return
    try:
        given[key] = from_major(amount, currency).minor
    except MoneyError as error:
        yield TomlMistake(f"{where}{key}", str(error))
    else:
        if given[key] < 0:
            yield TomlMistake(f"{where}{key}", "an amount must not be negative")
