"""Define the merchant's accounts in the journal."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field, PlainValidator, create_model

from app.config.settings import ReportsSettings
from app.core.errors import ConfigurationError
from app.core.toml_file import EMPTY, TomlMistake, TomlTable, Values, read_toml
from reconcile.money import exponent_of
from reconcile.reporting.journal import Posting, Revenue, Role, Transaction

DEFAULTS: Final[Mapping[Role, str]] = {
    "clearing": "Assets:Clearing:Provider",
    "in_transit": "Assets:Clearing:InTransit",
    "bank": "Assets:Bank",
    "wallet": "Assets:Wallets",
    "transfers": "Assets:Clearing:Transfers",
    "openings": "Equity:OpeningBalances",
    "receivable": "Assets:Receivable",
    "deposits": "Liabilities:CustomerDeposits",
    "sales": "Income:Sales",
    "refunds": "Income:Refunds",
    "disputes": "Expenses:Disputes",
    "fees": "Expenses:Fees:Payments",
    "write_offs": "Expenses:WriteOffs",
    "exchange": "Equity:Exchange",
    "exchange_gains": "Income:ExchangeGains",
    "unallocated": "Liabilities:Unallocated",
    "other_business": "Income:OtherBusiness",
    "other_shops": "Liabilities:OtherShops",
    "tips": "Liabilities:Tips",
    "donations": "Liabilities:Donations",
    "surcharges": "Income:Surcharges",
    "fees_from_customers": "Income:FeesFromCustomers",
    "shipping": "Income:Shipping",
    "taxes": "Liabilities:Taxes",
    "rounding": "Expenses:Rounding",
}

FILE: Final = "\n".join(
    [
        "# Post sales as well, when the shop fulfils an order. By default, only payments are "
        "posted.",
        '#revenue_at = "fulfilment"',
        "",
        "[accounts]",
        *[f'{role} = "{name}"' for role, name in DEFAULTS.items()],
        "",
        "# Other accounts for a source, currency or payment method. The first match is used.",
        "#[[override]]",
        '#source = "mpesa"',
        '#currency = "KES"',
        '#method = "card"',
        '#clearing = "Assets:Clearing:Mpesa"',
        "",
        "# The account in your accounting program: its code in Xero, its name in QuickBooks. Xero "
        "has",
        "# system accounts that manual journals can't use: name accounts of your own.",
        "#[codes]",
        '#"Assets:Bank" = "090"',
        "",
        "# The tax rate's full name in Xero. default names the rate without tax, such as No GST.",
        "# With revenue_at, also state the percentage of tax that sales and refunds contain.",
        "#[tax_codes]",
        '#default = "No VAT"',
        '#sales = "16% VAT on Income"',
        "#[tax_percent]",
        '#"16% VAT on Income" = "16"',
        "",
    ]
)

_NAME: Final = re.compile(r"(Assets|Liabilities|Equity|Income|Expenses)(:[A-Z0-9][A-Za-z0-9-]*)+")
"""Pattern of account names that beancount accepts."""

NAME_MAX: Final = 200

OVERRIDES_MAX: Final = 200

MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Account names for certain transactions. None matches any value."""

    source: str | None
    currency: str | None
    method: str | None
    names: Mapping[Role, str]

    def fits(self, transaction: Transaction) -> bool:
        return (
            self.source in (None, transaction.source)
            and self.currency in (None, transaction.currency)
            and self.method in (None, transaction.method)
        )


NO_TAX: Final = "Tax Exempt"
"""Name of Xero's tax rate without tax."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Names and codes of all accounts. The first fitting override counts."""

    names: Mapping[Role, str] = field(default_factory=lambda: DEFAULTS)
    overrides: tuple[Override, ...] = ()
    codes: Mapping[str, str] = field(default_factory=dict)
    tax_codes: Mapping[Role, str] = field(default_factory=dict)
    no_tax: str = NO_TAX
    revenue: Revenue | None = None

    def name_of(self, posting: Posting, transaction: Transaction) -> str:
        """Return the account's name, such as `Assets:Wallets:Mpesa:Utility`."""
        if posting.account is not None:
            return posting.account
        fitting = [each.names for each in self.overrides if each.fits(transaction)]
        name = next((each[posting.role] for each in fitting if posting.role in each), None)
        found = self.names[posting.role] if name is None else name
        if posting.sub_account is None:
            return found
        parts = [each for each in (transaction.source, posting.sub_account) if each]
        return ":".join([found, *map(_segment, parts)])

    def all_names(self) -> list[str]:
        """Return all account names that depend on no transaction, sorted."""
        return sorted(
            {*self.names.values(), *(n for o in self.overrides for n in o.names.values())}
        )


def _segment(text: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") or "Other"
    return plain[0].upper() + plain[1:]


def _account(usual: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > NAME_MAX or not _NAME.fullmatch(value):
            raise ValueError(f"write an account like {usual}")
        return value

    return read


def _word(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_MAX or not value.isprintable():
        raise ValueError(f"write 1 to {NAME_MAX} characters on one line")
    return value


def _currency(value: Any) -> str:
    exponent_of(_word(value))  # raises for an unknown one
    return cast(str, value)


def _percent(value: Any) -> int:
    text = str(value) if isinstance(value, str | int | Decimal) else ""
    found = re.fullmatch(r"([0-9]{1,2})(?:\.([0-9]{1,4}))?", text)
    if isinstance(value, bool) or found is None:
        raise ValueError('write a number from 0 to 99.9999, such as "16" or "7.5"')
    return int(found[1]) * 10_000 + int((found[2] or "").ljust(4, "0"))


_Word = Annotated[str, PlainValidator(_word)]
_NAMED: Final[Any] = create_model(
    "_NAMED",
    __base__=TomlTable,
    **cast(
        "dict[str, Any]",
        {r: (Annotated[str, PlainValidator(_account(u))], u) for r, u in DEFAULTS.items()},
    ),
)
_OVERRIDE: Final[Any] = create_model(
    "_OVERRIDE",
    __base__=TomlTable,
    source=(_Word | None, None),
    currency=(Annotated[str, PlainValidator(_currency)] | None, None),
    method=(_Word | None, None),
    **cast(
        "dict[str, Any]",
        {
            r: (Annotated[str, PlainValidator(_account(u))] | None, None)
            for r, u in DEFAULTS.items()
        },
    ),
)
_TAX_CODES: Final[Any] = create_model(
    "_TAX_CODES",
    __base__=TomlTable,
    **cast("dict[str, Any]", dict.fromkeys(("default", *DEFAULTS), (_Word | None, None))),
)


class _AccountFile(TomlTable):
    revenue_at: Literal["fulfilment"] | None = None
    accounts: _NAMED = EMPTY
    override: list[_OVERRIDE] = Field(default_factory=list, max_length=OVERRIDES_MAX)
    codes: dict[str, _Word] = Field(default_factory=dict)
    tax_codes: _TAX_CODES = EMPTY
    tax_percent: dict[str, Annotated[int, PlainValidator(_percent)]] = Field(default_factory=dict)


def _between(values: Values) -> Iterator[TomlMistake]:
    for number, each in enumerate(values.get("override", ()), 1):
        given = {name for name, value in each.items() if value is not None}
        if not given & _CONDITIONS:
            yield TomlMistake(
                f"override.{number}", "must name the source, currency or method that it applies to"
            )
        elif not given - _CONDITIONS:
            yield TomlMistake(f"override.{number}", "must name an account, such as clearing")
    used = {code for code in values.get("tax_codes", {}).values() if code is not None}
    for code in values.get("tax_percent", {}):
        if code not in used:
            yield TomlMistake(
                "tax_percent",
                f"{code[:80]!r} is not a tax code in [tax_codes]; write it as in that table",
            )
    if values.get("tax_percent") and values.get("revenue_at", "fulfilment") is None:
        yield TomlMistake(
            "tax_percent",
            'a journal of payments posts no taxes; also write revenue_at = "fulfilment"',
        )


_CONDITIONS: Final = {"source", "currency", "method"}


def accounts_of(text: str, *, name: str = "the file of accounts") -> Accounts:
    """Parse a file of accounts, with default names for missing accounts. Raise ConfigurationError
    that lists all mistakes."""
    values = read_toml(text, _AccountFile, name=name, most_bytes=MAX_BYTES, together=_between)
    codes = {role: code for role, code in values["tax_codes"].items() if code is not None}
    no_tax, rates = codes.pop("default", NO_TAX), values["tax_percent"]
    taxes = {role: rates[codes[role]] for role in _SOLD if codes.get(role) in rates}
    return Accounts(
        names=values["accounts"],
        overrides=tuple(
            Override(
                **{name: each[name] for name in _CONDITIONS},
                names={
                    role: account
                    for role, account in each.items()
                    if role not in _CONDITIONS and account is not None
                },
            )
            for each in values["override"]
        ),
        codes=values["codes"],
        tax_codes=codes,
        no_tax=no_tax,
        revenue=None if values["revenue_at"] is None else Revenue(taxes=taxes),
    )


def merchant_accounts(settings: ReportsSettings, path: Path | None = None) -> Accounts:
    """Return the accounts of a file, or the default accounts. Raise ConfigurationError that lists
    all mistakes."""
    path = settings.accounts if path is None else path
    if path is None:
        return Accounts()
    try:
        return accounts_of(path.read_text(encoding="utf-8"), name=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path}: cannot be read as text: {error}"]) from None


_SOLD: Final[tuple[Role, ...]] = ("sales", "refunds")
