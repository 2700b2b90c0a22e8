"""The payments journal as beancount, CSV or JSON, one transaction at a time; and for Xero and
QuickBooks, one journal a day and currency.

It has payments, and sales only if `revenue_at` says when they are posted. Texts from outside
(orders, payments, ids) appear only in quoted strings, or in cells that no spreadsheet takes for a
formula.
"""

import io
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from json import dumps
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, get_args

from app.context.context import AppContext
from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.errors import UsageError
from app.core.jobs import silent
from app.core.zones import zone_named
from app.finance.closed_periods import closing_named
from app.finance.files.rates import merchant_rates
from app.finance.period_store import PrintParts, print_parts
from app.finance.report_period import (
    TRANSACTIONS,
    JournalTotals,
    Progress,
    kept_line,
    kept_transactions,
    report_journal,
)
from app.finance.reports.accounts import Accounts, merchant_accounts
from reconcile.documents import Cites, Count, DayText, InstantText, Keywords, MoneyDocument
from reconcile.instants import format_instant
from reconcile.money import Money, major_text, to_json
from reconcile.periods import IN_UTC, Calendar
from reconcile.reporting.journal import EXCHANGED, ROLES, Posting, Role, Transaction
from reconcile.reporting.own_currency import Converter, Rates, with_statements
from reconcile.reporting.report import Scope
from reconcile.reporting.tables import report_of, scope_document

JournalFormat = Literal["beancount", "csv", "json", "xero", "quickbooks"]
JOURNAL_FORMATS: Final[tuple[JournalFormat, ...]] = get_args(JournalFormat)
"""Formats of a journal. All are stored when a month is closed."""

JOURNAL_TYPES: Final[Mapping[JournalFormat, tuple[str, str]]] = {
    "beancount": ("text/plain; charset=utf-8", "beancount"),
    "csv": ("text/csv; charset=utf-8", "csv"),
    "json": ("application/json", "json"),
    "xero": ("text/csv; charset=utf-8", "xero.csv"),
    "quickbooks": ("text/csv; charset=utf-8", "quickbooks.csv"),
}
"""Media type and file name suffix of each format."""

USUAL: Final = Accounts()
"""The default accounts."""

_OPENED: Final = "1970-01-01"
"""A day before every possible transaction, on which accounts are opened."""

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


Posted = list[tuple[Posting, str]]
"""Postings with the names of their accounts."""

XERO_COLUMNS: Final = (
    "*Narration",
    "*Date",
    "Description",
    "*AccountCode",
    "*TaxRate",
    "*Amount",
    "TrackingName1",
    "TrackingOption1",
    "TrackingName2",
    "TrackingOption2",
)
"""Columns of Xero's template for manual journals (help.xero.com, ManualJournalsImport): rows of one
narration and date are one journal, dates are dd/mm/yyyy, debits positive, and a tax rate is named
by its full name. A file may have 300 lines there, hence one journal a day."""

QUICKBOOKS_COLUMNS: Final = (
    "Journal No.",
    "Journal Date",
    "Account Name",
    "Description",
    "Debits",
    "Credits",
    "Name",
    "Currency",
)
"""Columns of an import of journal entries into QuickBooks Online (quickbooks.intuit.com, "Import
journal entries"): rows of one number are one entry, dates are mm/dd/yyyy, a subaccount follows its
parent after a colon. `Name` is required only for accounts of the types A/R and A/P."""


async def write_journal(
    context: AppContext,
    scope: Scope,
    form: JournalFormat,
    *,
    write: Callable[[bytes], object],
    accounts: Accounts | None = None,
    progress: Progress = silent,
) -> JournalTotals:
    """Write a period's journal piece by piece: it is as long as the period.

    accounts: None for the merchant's (`merchant_accounts`). Raises UsageError for an invalid
    period, and for Xero and QuickBooks where a rate is missing.
    """
    if accounts is None:
        accounts = merchant_accounts(context.settings.reports)

    rates = merchant_rates(context.settings.reports)
    put, end = begun(form, scope, write=write, accounts=accounts, rates=rates)
    totals = await report_journal(
        context, scope, write=put, revenue=accounts.revenue, progress=progress
    )
    end()
    return totals


async def journal_prints(
    context: AppContext, scope: Scope, *, accounts: Accounts, progress: Progress
) -> dict[str, PrintParts]:
    """Return a closed month's journal in every format, and its transactions, by name of the
    format."""
    kept = PrintParts()
    prints = {form: PrintParts() for form in JOURNAL_FORMATS}
    rates = merchant_rates(context.settings.reports)
    begun_all = {
        form: begun(form, scope, write=made.write, accounts=accounts, rates=rates)
        for form, made in prints.items()
    }

    def write(transaction: Transaction) -> None:
        kept.write(kept_line(transaction))
        for put, _ in begun_all.values():
            put(transaction)

    await report_journal(context, scope, write=write, revenue=accounts.revenue, progress=progress)
    for form, (_, end) in begun_all.items():
        try:
            end()
        except UsageError:  # a rate is missing: this form is made when it is asked for
            del prints[form]
    return {TRANSACTIONS: kept} | {print_name(form): made for form, made in prints.items()}


def print_name(form: JournalFormat) -> str:
    """Return the name under which a closed month's journal in this format is stored."""
    return f"journal.{form}"


async def closed_journal(
    context: AppContext, period: str, form: JournalFormat, *, version: int | None = None
) -> AsyncGenerator[bytes]:
    """Yield a closed month's journal: the one stored at its closing in this format, else a new one
    from the stored transactions.

    version  of the closing; None: the one in force

    Raises NotFoundError for a month that is not closed.
    """
    async with context.database.reading() as connection:
        closing = await closing_named(connection, period, version=version)
        kept = print_parts(connection, period, print_name(form), version=closing.version)
        found = False
        async for part in kept:
            found = True
            yield part
        if found:
            return
        written = list[bytes]()
        scope = report_of(dict(closing.report)).scope
        accounts = merchant_accounts(context.settings.reports)
        rates = merchant_rates(context.settings.reports)
        put, end = begun(form, scope, write=written.append, accounts=accounts, rates=rates)
        async for some in kept_transactions(connection, closing):
            for each in some:
                put(each)
            yield b"".join(written)
            written.clear()
        end()
        yield b"".join(written)


MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of a journal made in memory: some 100,000 transactions."""


async def journal_in(context: AppContext, scope: Scope, form: JournalFormat) -> bytes:
    """Make a period's journal as the command writes it. Raises as `write_journal` does, and
    UsageError for a journal that is too long."""
    file = io.BytesIO()

    def write(part: bytes) -> None:
        if file.tell() + len(part) > MAX_BYTES:
            raise UsageError(
                f"the journal is longer than {MAX_BYTES // 1024 // 1024} MiB: choose a shorter "
                "period, or let `tallyhook report journal` write it"
            )
        file.write(part)

    await write_journal(context, scope, form, write=write)
    return file.getvalue()


# --- a journal as JSON ----------------------------------------------------------------------------


class PostedDocument(TypedDict):
    account: Annotated[str, Keywords(examples=["Assets:Clearing:Provider"])]
    role: Annotated[
        str, "What the account is for, whatever its name is.", Keywords(examples=["clearing"])
    ]
    minor: Annotated[int, "Minor units: debit is positive, credit negative."]
    money: Annotated[MoneyDocument, "The same in major units."]


class TransactionDocument(TypedDict):
    transaction: Annotated[Count, "Its number in this journal, from 1."]
    date: DayText
    at: InstantText
    what: Annotated[str, Keywords(examples=["captured"])]
    order: str | None
    payment: str | None
    source: str | None
    cites: Cites
    original_date: Annotated[DayText | None, "Of an adjusting entry: its day in closed_period."]
    tax_date: DayText | None
    closed_period: Annotated[
        str | None, "The closed month of which it became known later; null: none."
    ]
    postings: Annotated[
        list[PostedDocument], "Of one currency; they add up to nothing.", Keywords(minItems=1)
    ]


class OwnTotalDocument(TypedDict):
    account: str
    of: str
    money: MoneyDocument


class RateDocument(TypedDict):
    currency: str
    day: DayText | None
    rate: str
    origin: Literal["file", "statement"]


class OwnBalancesDocument(TypedDict):
    currency: Annotated[str, Keywords(examples=["EUR"])]
    totals: list[OwnTotalDocument]
    residual: Annotated[MoneyDocument, "Left of all totals by rounding."]
    missing: Annotated[list[str], "Currencies of money without a rate."]
    rates: list[RateDocument]


_Span = TypedDict("_Span", {"from": InstantText, "to": InstantText})


class JournalDocument(_Span):
    kind: Annotated[str, Keywords(examples=["payments journal"])]
    as_of: InstantText
    basis: Annotated[str, Keywords(examples=["captured"])]
    environment: Annotated[str, Keywords(examples=["live"])]
    zone: NotRequired[
        Annotated[
            str,
            "In which days are counted; without it UTC.",
            Keywords(examples=["Africa/Nairobi"]),
        ]
    ]
    merchant: NotRequired[str]
    closed_by: NotRequired[Annotated[str, "Of a closed month: who closed it."]]
    closed_at: NotRequired[InstantText]
    version: NotRequired[Annotated[Count, "Of the closing."]]
    approved_by: NotRequired[Annotated[str, "Who approved the closing, where it took two people."]]
    proposed_at: NotRequired[InstantText]
    transactions: list[TransactionDocument]
    count: Count
    totals: Annotated[list[PostedDocument], "What was posted in all, by account and currency."]
    own: NotRequired[
        Annotated[
            OwnBalancesDocument,
            "The totals in TALLYHOOK_REPORTS__CURRENCY, at the rates of their days.",
        ]
    ]


async def journal_page(
    context: AppContext, scope: Scope, *, account: str | None, currency: str | None, most: int
) -> dict[str, Any]:
    """Return the content of a page about a period's journal: the balance of each account, and the
    postings of one account.

    account, currency  of the postings; without an account there are none
    most               postings that are returned; `more` says how many there are beside them

    Raises as `write_journal`.
    """
    accounts, rates = (
        merchant_accounts(context.settings.reports),
        merchant_rates(context.settings.reports),
    )
    calendar = Calendar(zone_named(scope.zone))
    text = JournalText("csv", scope=scope, accounts=accounts, calendar=calendar, rates=rates)
    rows: list[dict[str, Any]] = []
    debits: Counter[tuple[str, str]] = Counter()
    posted = 0

    def write(each: Transaction) -> None:
        nonlocal posted
        text.transaction(each)
        for posting in each.postings:
            name = accounts.name_of(posting, each)
            debits[name, each.currency] += max(posting.minor, 0)
            if name != account or currency not in (None, each.currency):
                continue
            posted += 1
            if len(rows) < most:
                rows.append(
                    {
                        "date": calendar.day_of(each.at),
                        "what": each.what,
                        "amount": to_json(Money(minor=posting.minor, currency=each.currency)),
                        "order": each.order,
                        "payment": each.payment,
                        "source": each.source,
                        "original_date": each.adjusts and each.adjusts.original_date,
                        "closed_period": each.adjusts and each.adjusts.period,
                        "cites": list(each.cites),
                    }
                )

    totals = await report_journal(context, scope, write=write, revenue=accounts.revenue)
    own = text.own_balances()
    balances = [
        {
            "account": name,
            "debit": to_json(Money(minor=debits[name, code], currency=code)),
            "credit": to_json(Money(minor=debits[name, code] - minor, currency=code)),
            "balance": to_json(Money(minor=minor, currency=code)),
            "own": None
            if own is None or (name, code) not in own[0]
            else to_json(Money(minor=own[0][name, code], currency=own[1].rates.own)),
        }
        for (name, code), minor in text.balances().items()
    ]
    return {
        "about": text.about(),
        "count": totals.transactions,
        "balances": balances,
        "own": None if own is None else own_document(*own),
        "postings": rows,
        "more": posted - len(rows),
    }


def own_document(
    balances: Mapping[tuple[str, str], int], converter: Converter
) -> OwnBalancesDocument:
    """Return balances in the merchant's own currency by account and currency, the remainder from
    rounding, and the rates."""
    own = converter.rates.own
    return {
        "currency": own,
        "totals": [
            {"account": name, "of": of, "money": to_json(Money(minor=minor, currency=own))}
            for (name, of), minor in sorted(balances.items())
        ],
        "residual": to_json(Money(minor=sum(balances.values()), currency=own)),
        "missing": list(converter.missing()),
        "rates": [
            {"currency": each.currency, "day": each.day, "rate": each.text, "origin": each.origin}
            for each in converter.used()
        ],
    }


def begun(
    form: JournalFormat,
    scope: Scope,
    *,
    write: Callable[[bytes], object],
    accounts: Accounts,
    rates: Rates | None = None,
) -> tuple[Callable[[Transaction], None], Callable[[], None]]:
    """Write a journal's head. Return two functions: one writes a transaction, one ends the
    journal."""

    def put(text: str) -> None:
        write(text.encode("utf-8", "backslashreplace"))

    calendar = Calendar(zone_named(scope.zone))
    journal = JournalText(form, scope=scope, accounts=accounts, calendar=calendar, rates=rates)
    put(journal.head())
    return lambda each: put(journal.transaction(each)), lambda: put(journal.foot())


class JournalText:
    """A journal in one format: its head, then the text of each transaction in order, then its foot.

    Transactions are dated by the calendar; CSV and JSON number them. For Xero and QuickBooks they
    are summed up, and the foot has the whole text.

    rates  of the merchant's own currency: Xero's manual journals have no other, and QuickBooks
           then gets it, too. None: amounts stay in their currencies
    """

    def __init__(
        self,
        form: JournalFormat,
        *,
        scope: Scope,
        accounts: Accounts = USUAL,
        calendar: Calendar = IN_UTC,
        rates: Rates | None = None,
    ) -> None:
        self._form, self._scope, self._accounts, self._calendar = form, scope, accounts, calendar
        self._rates = rates
        self._settled: list[tuple[Money, Money]] = []
        self._leg: Transaction | None = None
        self._opened = set(accounts.all_names())
        self._count = 0
        self._sums: Counter[tuple[str, str, str, Role, str]] = Counter()
        """Debit less credit by day, adjusted closed month, currency, role and account."""

    def head(self) -> str:
        if self._form == "json":
            kind = {"kind": self._kind(), **scope_document(self._scope)}
            document = dumps(kind, ensure_ascii=False, indent=2)
            return document.removesuffix("\n}") + ',\n  "transactions": ['
        if self._form == "csv":
            return BYTE_ORDER_MARK + csv_line(CSV_COLUMNS)
        if self._form == "xero":
            return BYTE_ORDER_MARK + csv_line(XERO_COLUMNS)
        if self._form == "quickbooks":
            return BYTE_ORDER_MARK + csv_line(QUICKBOOKS_COLUMNS)
        title = f"{self._scope.merchant or 'Tallyhook'} {self._scope.environment}, {self._kind()}"
        opened = [f"{_OPENED} open {name}" for name in sorted(self._opened)]
        return "\n".join([f'option "title" {_quoted(title)}', f"; {self.about()}", *opened, ""])

    def _kind(self) -> str:
        return "payments journal" if self._accounts.revenue is None else "payments and sales"

    def about(self) -> str:
        """Name the accounts that payments are posted against."""
        if self._accounts.revenue is None:
            return (
                "A journal of payments, not of sales: payments are posted against "
                f"{self._accounts.names['receivable']}, where your sales are posted as well."
            )
        return (
            "Payments are posted against deposits; sales are posted when the shop fulfils an order."
        )

    def transaction(self, transaction: Transaction) -> str:
        """Return the lines of a transaction; none in formats that sum up."""
        self._count += 1
        day = self._calendar.day_of(transaction.at)
        adjusted = "" if transaction.adjusts is None else transaction.adjusts.period
        posted = [
            (each, self._accounts.name_of(each, transaction)) for each in transaction.postings
        ]
        for each, name in posted:
            self._sums[day, adjusted, transaction.currency, each.role, name] += each.minor
        if transaction.what == EXCHANGED:
            self._exchanged(transaction)
        if self._form == "beancount":
            return self._opening(posted) + _beancount(transaction, posted, day=day)
        if self._form == "csv":
            return _csv(transaction, posted, number=self._count, day=day)
        if self._form == "json":
            return _json(transaction, posted, number=self._count, day=day)
        return ""

    def _exchanged(self, transaction: Transaction) -> None:
        """Store the amount captured and the amount settled of a payment in two currencies. Its two
        legs follow each other."""
        leg, self._leg = self._leg, transaction
        if leg is not None and leg.cites == transaction.cites:
            came, arrived = (
                Money(minor=abs(each.postings[0].minor), currency=each.currency)
                for each in (leg, transaction)
            )
            self._settled.append((came, arrived))
            self._leg = None

    def _opening(self, posted: Posted) -> str:
        """Return the lines that open accounts used for the first time."""
        new = {name for _, name in posted} - self._opened
        self._opened |= new
        return "".join(f"\n{_OPENED} open {name}\n" for name in sorted(new))

    def foot(self) -> str:
        """Return the text after the last transaction. For beancount it has the rates of the
        merchant's own currency. In JSON it has a count, the sum of each account, and the sums in
        the own currency. For Xero and QuickBooks it has the journals of all days."""
        if self._form == "xero":
            return "".join(self._xero())
        if self._form == "quickbooks":
            return "".join(self._quickbooks())
        own = self.own_balances()
        if self._form == "beancount" and own is not None:
            to = own[1].rates.own
            prices = [e for e in own[1].used() if e.day is not None]
            return "".join(f"\n{e.day} price {e.currency} {e.text} {to}\n" for e in prices)
        if self._form != "json":
            return ""
        sums: Counter[tuple[Role, str, str]] = Counter()
        for (_, _, currency, role, name), minor in self._sums.items():
            sums[role, name, currency] += minor
        lines = ",".join(
            "\n    " + dumps(_posted(name, role, Money(minor=sums[key], currency=currency)))
            for key in sorted(sums, key=lambda key: (ROLES.index(key[0]), *key[1:]))
            for role, name, currency in [key]
        )
        closing = "\n  ]" if self._count else "]"
        more = "" if own is None else f',\n  "own": {dumps(own_document(*own))}'
        counts = f'{closing},\n  "count": {self._count},\n  "totals": [{lines}'
        return f"{counts}{closing}{more}\n}}\n"

    def balances(self) -> dict[tuple[str, str], int]:
        """Return debit less credit by account and currency."""
        found: Counter[tuple[str, str]] = Counter()
        for (_, _, currency, _, name), minor in self._sums.items():
            found[name, currency] += minor
        return dict(sorted(found.items()))

    def own_balances(self) -> tuple[dict[tuple[str, str], int], Converter] | None:
        """Return the balances in the merchant's own currency, at the rates of their days, with the
        converter; None without one."""
        if self._rates is None:
            return None
        converter = Converter(with_statements(self._rates, self._settled))
        found: Counter[tuple[str, str]] = Counter()
        for (day, _, currency, _, name), minor in sorted(self._sums.items()):
            converted = converter.converted(Money(minor=minor, currency=currency), day)
            if converted is not None:
                found[name, currency] += converted
        return dict(found), converter

    def _days(self) -> Iterator[tuple[str, str, Role, str, Money]]:
        """Yield each account's sum by day and currency, without zeros, in order: (day, adjusted
        closed month, role, account, sum). In the merchant's own currency, the remainder from
        rounding is a separate line."""
        sums = self._sums if self._rates is None else self._own_days(self._rates)
        for key in sorted(sums, key=lambda key: (*key[:3], ROLES.index(key[3]), key[4])):
            day, adjusted, currency, role, name = key
            if sums[key]:
                yield day, adjusted, role, name, Money(minor=sums[key], currency=currency)

    def _own_days(self, rates: Rates) -> Counter[tuple[str, str, str, Role, str]]:
        converter = Converter(with_statements(rates, self._settled))
        found: Counter[tuple[str, str, str, Role, str]] = Counter()
        left: Counter[tuple[str, str]] = Counter()
        for (day, adjusted, currency, role, name), minor in self._sums.items():
            money = Money(minor=minor, currency=currency)
            converted = converter.converted(money, day)
            if converted is None:
                raise UsageError(
                    f"there is no rate of {currency} for {day}: add it to the file of "
                    "TALLYHOOK_REPORTS__RATES"
                )
            found[day, adjusted, rates.own, role, name] += converted
            left[day, adjusted] -= converted
        for (day, adjusted), minor in left.items():
            found[day, adjusted, rates.own, "rounding", self._accounts.names["rounding"]] += minor
        return found

    def _xero(self) -> Iterator[str]:
        for day, adjusted, role, name, money in self._days():
            what = f"Adjustments of {adjusted}, posted" if adjusted else "Payments of"
            yield csv_line(
                (
                    f"{what} {day} in {money.currency}",
                    f"{day[8:10]}/{day[5:7]}/{day[:4]}",
                    role.replace("_", " "),
                    safe_cell(self._accounts.codes.get(name, name)),
                    safe_cell(self._accounts.tax_codes.get(role, self._accounts.no_tax)),
                    major_text(money),
                    *[""] * 4,
                )
            )

    def _quickbooks(self) -> Iterator[str]:
        for day, adjusted, role, name, money in self._days():
            amount = major_text(Money(minor=abs(money.minor), currency=money.currency))
            of = f"-A{adjusted[2:].replace('-', '')}" if adjusted else ""
            what = f"Adjustments of {adjusted}, posted" if adjusted else "Payments of"
            yield csv_line(
                (
                    f"TH-{day.replace('-', '')}-{money.currency}{of}",
                    f"{day[5:7]}/{day[8:10]}/{day[:4]}",
                    safe_cell(self._accounts.codes.get(name, name)),
                    f"{what} {day}: {role.replace('_', ' ')}",
                    amount if money.minor > 0 else "",
                    amount if money.minor < 0 else "",
                    "",
                    money.currency,
                )
            )


def _json(transaction: Transaction, posted: Posted, *, number: int, day: str) -> str:
    adjusted = _adjusted(transaction)
    # A lone surrogate becomes an escape when the line is encoded, which JSON reads back.
    document: TransactionDocument = {
        "transaction": number,
        "date": day,
        "at": format_instant(transaction.at),
        "what": transaction.what,
        "order": transaction.order,
        "payment": transaction.payment,
        "source": transaction.source,
        "cites": list(transaction.cites),
        "original_date": adjusted.get("original_date"),
        "tax_date": adjusted.get("tax_date"),
        "closed_period": adjusted.get("closed_period"),
        "postings": [
            _posted(name, each.role, Money(minor=each.minor, currency=transaction.currency))
            for each, name in posted
        ],
    }
    return ("" if number == 1 else ",") + "\n    " + dumps(document, ensure_ascii=False)


def _posted(name: str, role: Role, money: Money) -> PostedDocument:
    return {"account": name, "role": role, "minor": money.minor, "money": to_json(money)}


def _beancount(transaction: Transaction, posted: Posted, *, day: str) -> str:
    lines = ["", f"{day} * {_quoted(transaction.what)} {_quoted(transaction.order or '')}"]
    lines += [f"  {name}: {_quoted(text)}" for name, text in _named(transaction) if text]
    lines += [
        f"  {name}  {_major(each.minor, transaction)} {transaction.currency}"
        for each, name in posted
    ]
    return "\n".join([*lines, ""])


def _named(transaction: Transaction) -> Iterator[tuple[str, str]]:
    yield "order", transaction.order or ""
    yield "payment", transaction.payment or ""
    yield "source", transaction.source or ""
    yield "cites", ", ".join(transaction.cites)
    yield from _adjusted(transaction).items()


def _adjusted(transaction: Transaction) -> dict[str, str]:
    """Return the closed month that a transaction adjusts and its original dates, if any."""
    adjusts = transaction.adjusts
    if adjusts is None:
        return {}
    return {
        "original_date": adjusts.original_date,
        "tax_date": adjusts.tax_date,
        "closed_period": adjusts.period,
    }


def _csv(transaction: Transaction, posted: Posted, *, number: int, day: str) -> str:
    names = [safe_cell(text) for _, text in _named(transaction)]
    names += [""] * (len(CSV_COLUMNS) - _POSTING_COLUMNS - len(names))
    return "".join(
        csv_line(
            (
                str(number),
                day,
                transaction.what,
                name,
                _major(posting.minor, transaction),
                transaction.currency,
                *names,
            )
        )
        for posting, name in posted
    )


def _major(minor: int, transaction: Transaction) -> str:
    return major_text(Money(minor=minor, currency=transaction.currency))


_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"'} | {chr(code): f"\\\\x{code:02x}" for code in (*range(32), 127)}
)


def _quoted(text: str) -> str:
    """Quote a string safely. Control characters are shown as `\\x0a`."""
    return f'"{text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)}"'
