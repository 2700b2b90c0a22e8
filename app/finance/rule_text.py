"""List the settings of matching rules, and change one."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from app.core.errors import UsageError
from app.finance.rule_file import Rules
from reconcile.money import Money, exponent_of, major_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSetting:
    """Setting of the matching rules. `toml` is an example."""

    toml: str
    means: str


def _settings(*pairs: tuple[str, str]) -> tuple[RuleSetting, ...]:
    return tuple(RuleSetting(toml=toml, means=means) for toml, means in pairs)


SETTINGS: Final = _settings(
    (
        'date_window = "2 days"',
        "Lines without a common reference may match if amount and currency agree and their dates "
        "are at most this far apart. Without this setting, such lines do not match.",
    ),
    ('settle_margin = "7 days"', "How long a capture may wait for its statement line."),
    ('book_margin = "1 day"', "How long after a payment the order book may record it."),
    ('money_margin = "1 day"', "How long after the order book says paid the money may arrive."),
    ('refund_margin = "10 days"', "How long a refund in the order book may take to be made."),
    ('bank_margin = "5 days"', "How long a payout may take to appear in the bank."),
    (
        'bank_payers = ["Stripe", "Paystack"]',
        "Texts of bank lines that are payouts. If none is given, any money that arrives at the "
        "bank may be a payout.",
    ),
    ('other_business = ["Landlord Ltd"]', "Texts of bank lines that are not payouts."),
    ('currency = "KES"', "Your own currency, used for zero amounts without a currency."),
    (
        "close_alone = false",
        "Whether one person alone may close a month. Default: true.",
    ),
    (
        '[tolerance]\nKES = "1.00"',
        "Maximum difference between two amounts that still match, in major units. In currencies "
        "that are not listed, amounts must be equal.",
    ),
    (
        '[accept_alone_max]\nKES = "5000.00"',
        "Maximum amount of a break that one person may accept alone. As soon as one currency has "
        "a limit, breaks in currencies without a limit need two people, and so does every change "
        "of the rules.",
    ),
    (
        '[accept_alone_day]\nKES = "5000.00"',
        "Limit on all that one person accepts, assigns and withdraws alone in a day. Default: "
        "accept_alone_max.",
    ),
    (
        '[accept_alone_month]\nKES = "25000.00"',
        "The same limit for a calendar month. Default: five times the limit of a day.",
    ),
    (
        '[adjustment_limit]\nKES = "10000.00"',
        "A change to a closed month becomes a break if it exceeds this amount.",
    ),
    (
        '[[fee]]\nsource = "shop"\ncurrency = "KES"\npercent = "2.9"\nfixed = "0.30"\n'
        'tolerance = "0.01"\nwhere = {card_country = ["US", "CA"]}',
        "The fee that a provider takes of a payment. For each statement line, the first matching "
        "fee is used. where is optional and names columns of the statement: method, scheme, "
        "card_type, card_country, channel. tolerance is at least one minor unit, because "
        "providers round.",
    ),
    (
        '[[exchange]]\ncurrency = "USD"\ninto = "KES"\nrate = "129.50"\ntolerance_percent = "1.5"',
        "Exchange rate of payouts that the bank books in another currency. In this example, one "
        "USD is 129.50 KES.",
    ),
    (
        '[methods]\noutside = ["cash", "cash on delivery"]\nbank = ["bank transfer"]\n'
        'tender = ["gift card", "store credit"]',
        "Payment methods in the order book whose money does not come through a provider: paid to "
        "you directly, to your bank account, or with credit that you owed the customer "
        '("gift card + stripe" is partly credit). A list replaces the built-in list.',
    ),
)
"""All settings in the order of a file of rules."""

MOST_LINES: Final = 200

_HEADER: Final = re.compile(r"\s*\[")
_FEE: Final = re.compile(r"\s*\[\[\s*fee\s*\]\]")
_OF_FEE: Final = re.compile(r"\s*\[\s*fee\s*\.")

_BY_HAND: Final = (
    "a form cannot change the rules as they are written: edit them by hand, with one setting a "
    "line and each [[fee]] with one key a line"
)


def with_setting(text: str, name: str, value: str | Sequence[str] | None) -> str:
    """Return rules with one setting changed, such as `tolerance.KES`; None removes the setting.
    Raise UsageError for rules that cannot be edited."""
    table, _, key = name.rpartition(".")
    wanted = tomllib.loads(text, parse_float=Decimal)
    inner = wanted.setdefault(table, {}) if table else wanted
    if value == inner.get(key):
        return text
    added = [] if value is None else [f"{key} = {_value(value)}"]
    if value is None:
        del inner[key]
    else:
        inner[key] = value if isinstance(value, str) else list(value)
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]\s*(#.*)?")
    first = next((n for n, each in enumerate(lines, 1) if header.fullmatch(each)), None)
    start = first if table else 0
    if start is None:
        changed = [[*lines, "", f"[{table}]", *added]]
    else:
        end = next((n for n in range(start, len(lines)) if _HEADER.match(lines[n])), len(lines))
        begins = re.compile(rf"\s*{re.escape(key)}\s*=")
        place = next((n for n in range(start, end) if begins.match(lines[n])), None)
        changed = (
            [[*lines[:start], *added, *lines[start:]]]
            if place is None
            else [
                [*lines[:place], *added, *lines[last:]]
                for last in range(place + 1, min(place + MOST_LINES, len(lines)) + 1)
            ]
        )
    for each in changed:
        whole = "\n".join(each).strip("\n") + "\n"
        with suppress(ValueError):
            if tomllib.loads(whole, parse_float=Decimal) == wanted:
                return whole
    raise UsageError(_BY_HAND)


def with_names(text: str, name: str, *added: str) -> str:
    """Return rules with names added to a list."""
    known = tomllib.loads(text).get(name, [])
    return with_setting(text, name, [*added, *known])


def known_currency(typed: str) -> str:
    """Return the code of the currency that a person typed. Raise UsageError for an unknown
    currency."""
    code = typed.strip().upper()
    try:
        exponent_of(code)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return code


def with_fees(text: str, blocks: str, *, replaced: Callable[[Mapping[str, Any]], bool]) -> str:
    """Return rules with new fee blocks in place of the replaced blocks. Raise UsageError for rules
    that cannot be edited."""
    wanted = tomllib.loads(text, parse_float=Decimal)
    wanted["fee"] = [each for each in wanted.get("fee", []) if not replaced(each)]
    wanted["fee"] += tomllib.loads(blocks, parse_float=Decimal)["fee"]
    kept: list[str] = []
    block: list[str] | None = None
    for line in [*text.splitlines(), "["]:  # the last one ends a block
        if block is not None and _HEADER.match(line) and not _OF_FEE.match(line):
            try:
                (fee,) = tomllib.loads("\n".join(block), parse_float=Decimal)["fee"]
            except (ValueError, KeyError):
                raise UsageError(_BY_HAND) from None
            if not replaced(fee):
                kept += block
            block = None
        if _FEE.match(line):
            block = []
        (kept if block is None else block).append(line)
    whole = "\n".join(kept[:-1]).rstrip()
    whole = f"{whole}\n\n{blocks}" if whole else blocks
    with suppress(ValueError):
        if tomllib.loads(whole, parse_float=Decimal) == wanted:
            return whole
    raise UsageError(_BY_HAND)


def fee_block(
    *,
    source: str,
    currency: str,
    percent: str,
    fixed: str,
    where: Iterable[tuple[str, Sequence[str]]] = (),
) -> str:
    """Return a fee rule as TOML."""
    values = {"source": source, "currency": currency, "percent": percent, "fixed": fixed}
    lines = ["[[fee]]", *(f"{name} = {_value(value)}" for name, value in values.items())]
    stated = [f"{name} = {_value(some)}" for name, some in where]
    if stated:
        lines.append(f"where = {{{', '.join(stated)}}}")
    return "\n".join(lines) + "\n"


def _value(value: str | Sequence[str]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


LIMITS: Final[Mapping[str, str]] = {
    "accept_alone_max": "At once",
    "accept_alone_day": "In a day",
    "accept_alone_month": "In a calendar month",
}


def limits_of(rules: Rules) -> list[dict[str, str]]:
    """Return the effective limits in major units, by currency."""
    found = []
    for currency, minor in sorted(rules.alone_max.items()):
        most = (minor, rules.limit("day", currency), rules.limit("month", currency))
        amounts = [major_text(Money(minor=each or 0, currency=currency)) for each in most]
        found.append({"currency": currency, **dict(zip(LIMITS, amounts, strict=True))})
    return found
