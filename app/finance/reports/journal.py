"""The journal as beancount, CSV or JSON, one transaction at a time.

Foreign texts (orders, payments, ids) stand only in quoted strings, or in cells that no spreadsheet
takes for a formula.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from json import dumps
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import PlainValidator, create_model

from app.context.context import AppContext
from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.jobs import silent
from app.core.toml_file import EMPTY, TomlTable, read_toml
from app.core.zones import zone_named
from app.finance.report_period import JournalTotals, Progress, report_journal
from reconcile.instants import format_instant
from reconcile.money import Money, major_text, to_json
from reconcile.periods import IN_UTC, Calendar
from reconcile.reporting.journal import ROLES, Role, Transaction
from reconcile.reporting.report import Scope
from reconcile.reporting.tables import scope_document

DEFAULTS: Final[Mapping[Role, str]] = {
    "clearing": "Assets:Clearing:Provider",
    "in_transit": "Assets:Clearing:InTransit",
    "bank": "Assets:Bank",
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
}

_NAME = re.compile(r"(Assets|Liabilities|Equity|Income|Expenses)(:[A-Z0-9][A-Za-z0-9-]*)+")
"""Account names that beancount accepts."""

NAME_MAX: Final = 200
"""Characters of an account's name."""

MAX_BYTES: Final = 16 * 1024
"""Bytes of a mapping of accounts; it has a line for each role."""


def _account(usual: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > NAME_MAX or not _NAME.fullmatch(value):
            raise ValueError(f"an account is written like {usual}")
        return value

    return read


_ROLES: Final[dict[str, Any]] = {
    role: (Annotated[str, PlainValidator(_account(usual))], usual)
    for role, usual in DEFAULTS.items()
}
_ACCOUNTS: Final = create_model("_ACCOUNTS", __base__=TomlTable, **_ROLES)


class _AccountFile(TomlTable):
    accounts: _ACCOUNTS = EMPTY


def accounts_of(text: str, *, name: str = "the mapping of accounts") -> Mapping[Role, str]:
    """Return the accounts in a mapping, and the defaults of the others.

    Raises ConfigurationError with every mistake.
    """
    values = read_toml(text, _AccountFile, name=name, most_bytes=MAX_BYTES)
    return values["accounts"]  # type: ignore[no-any-return]


JournalFormat = Literal["beancount", "csv", "json"]
JOURNAL_FORMATS: Final[tuple[JournalFormat, ...]] = get_args(JournalFormat)
"""Every form in which a journal is written, and kept when its month is closed."""

Accounts = Mapping[Role, str]

Writer = Callable[[Transaction], str]
"""Returns the lines of one transaction."""

_OPENED: Final = "1970-01-01"
"""A day before every possible transaction."""

CSV_COLUMNS: Final = (
    "transaction",
    "date",
    "what",
    "account",
    "amount",
    "currency",
    "order",
    "payment",
    "source",
    "cites",
    "original_date",
    "tax_date",
    "closed_period",
)

_POSTING_COLUMNS: Final = CSV_COLUMNS.index("order")


async def write_journal(
    context: AppContext,
    scope: Scope,
    form: JournalFormat,
    *,
    write: Callable[[bytes], object],
    accounts: Accounts = DEFAULTS,
    progress: Progress = silent,
) -> JournalTotals:
    """Write a period's journal piece by piece: it is as long as the period.

    Raises UsageError for an invalid period.
    """

    put = begun(form, scope, write=write, accounts=accounts)
    totals = await report_journal(context, scope, write=put, progress=progress)
    write(foot(form, accounts=accounts, totals=totals).encode())
    return totals


def begun(
    form: JournalFormat, scope: Scope, *, write: Callable[[bytes], object], accounts: Accounts
) -> Callable[[Transaction], None]:
    """Write a journal's head. Return a function that writes a transaction."""

    def put(text: str) -> None:
        write(text.encode("utf-8", "backslashreplace"))

    put(head(form, accounts=accounts, scope=scope))
    lines = writer(form, accounts=accounts, calendar=Calendar(zone_named(scope.zone)))
    return lambda each: put(lines(each))


def head(form: JournalFormat, *, accounts: Accounts, scope: Scope) -> str:
    if form == "json":
        document = dumps(scope_document(scope), ensure_ascii=False, indent=2)
        return document.removesuffix("\n}") + ',\n  "transactions": ['
    if form == "csv":
        return BYTE_ORDER_MARK + csv_line(CSV_COLUMNS)
    title = f"{scope.merchant or 'Tallyhook'} {scope.environment}"
    opened = [f"{_OPENED} open {name}" for name in sorted(set(accounts.values()))]
    return "\n".join([f'option "title" {_quoted(title)}', "", *opened, ""])


def writer(form: JournalFormat, *, accounts: Accounts, calendar: Calendar = IN_UTC) -> Writer:
    """Return a writer of transactions, dated by the calendar; CSV and JSON number them."""
    if form == "beancount":
        opened = {*accounts.values()}
        return lambda each: (
            _opening(each, opened) + _beancount(each, accounts, day=calendar.day_of(each.at))
        )
    one, numbers = _csv if form == "csv" else _json, iter(range(1, 2**63))
    return lambda each: one(each, accounts, number=next(numbers), day=calendar.day_of(each.at))


def foot(form: JournalFormat, *, accounts: Accounts, totals: JournalTotals) -> str:
    """Return the text after the last transaction: in JSON a count, and the sum of each account."""
    if form != "json":
        return ""
    keys = sorted(totals.sums, key=lambda key: (ROLES.index(key[0]), key[1]))
    sums = [
        _posted(accounts, role, Money(minor=totals.sums[role, currency], currency=currency))
        for role, currency in keys
    ]
    sums += [
        {
            "account": account,
            "role": "other_business",
            "minor": totals.named[account, currency],
            "money": to_json(Money(minor=totals.named[account, currency], currency=currency)),
        }
        for account, currency in sorted(totals.named)
    ]
    lines = ",".join("\n    " + dumps(each) for each in sums)
    closing = "\n  ]" if totals.transactions else "]"
    return f'{closing},\n  "count": {totals.transactions},\n  "totals": [{lines}{closing}\n}}\n'


def _json(transaction: Transaction, accounts: Accounts, *, number: int, day: str) -> str:
    # A lone surrogate becomes an escape when the line is encoded, which JSON reads back.
    postings = [
        _posted(accounts, each.role, Money(minor=each.minor, currency=transaction.currency))
        | ({} if each.account is None else {"account": each.account})
        for each in transaction.postings
    ]
    document = {
        "transaction": number,
        "date": day,
        "at": format_instant(transaction.at),
        "what": transaction.what,
        "order": transaction.order,
        "payment": transaction.payment,
        "source": transaction.source,
        "cites": list(transaction.cites),
        **dict.fromkeys(("original_date", "tax_date", "closed_period")),
        **_adjusted(transaction),
        "postings": postings,
    }
    return ("" if number == 1 else ",") + "\n    " + dumps(document, ensure_ascii=False)


def _posted(accounts: Accounts, role: Role, money: Money) -> dict[str, Any]:
    return {"account": accounts[role], "role": role, "minor": money.minor, "money": to_json(money)}


def _opening(transaction: Transaction, opened: set[str]) -> str:
    """Open accounts that people named and that no transaction had yet."""
    named = {each.account for each in transaction.postings if each.account is not None} - opened
    opened |= named
    return "".join(f"\n{_OPENED} open {name}\n" for name in sorted(named))


def _beancount(transaction: Transaction, accounts: Accounts, *, day: str) -> str:
    lines = ["", f"{day} * {_quoted(transaction.what)} {_quoted(transaction.order or '')}"]
    lines += [f"  {name}: {_quoted(text)}" for name, text in _named(transaction) if text]
    lines += [
        f"  {each.account or accounts[each.role]}  {_major(each.minor, transaction)} "
        f"{transaction.currency}"
        for each in transaction.postings
    ]
    return "\n".join([*lines, ""])


def _named(transaction: Transaction) -> Iterator[tuple[str, str]]:
    yield "order", transaction.order or ""
    yield "payment", transaction.payment or ""
    yield "source", transaction.source or ""
    yield "cites", ", ".join(transaction.cites)
    yield from _adjusted(transaction).items()


def _adjusted(transaction: Transaction) -> dict[str, str]:
    """Return the closed month that a transaction adjusts, and its dates then, if any."""
    adjusts = transaction.adjusts
    if adjusts is None:
        return {}
    return {
        "original_date": adjusts.original_date,
        "tax_date": adjusts.tax_date,
        "closed_period": adjusts.period,
    }


def _csv(transaction: Transaction, accounts: Accounts, *, number: int, day: str) -> str:
    names = [safe_cell(text) for _, text in _named(transaction)]
    names += [""] * (len(CSV_COLUMNS) - _POSTING_COLUMNS - len(names))
    return "".join(
        csv_line(
            (
                str(number),
                day,
                transaction.what,
                posting.account or accounts[posting.role],
                _major(posting.minor, transaction),
                transaction.currency,
                *names,
            )
        )
        for posting in transaction.postings
    )


def _major(minor: int, transaction: Transaction) -> str:
    return major_text(Money(minor=minor, currency=transaction.currency))


_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"'} | {chr(code): f"\\\\x{code:02x}" for code in (*range(32), 127)}
)


def _quoted(text: str) -> str:
    """Quote a string safely. Control characters are shown as `\\x0a`."""
    return f'"{text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)}"'
