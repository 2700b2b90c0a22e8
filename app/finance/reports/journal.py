"""Write the payments journal in every format."""

import io
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Final

from app.context.context import AppContext
from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.errors import UsageError
from app.core.jobs import silent
from app.core.zones import zone_named
from app.finance import report_period
from app.finance.closed_periods import closing_named
from app.finance.files.rates import merchant_rates
from app.finance.period_store import PrintParts, print_parts
from app.finance.reports import journal_forms
from app.finance.reports.accounts import Accounts, merchant_accounts
from app.finance.reports.journal_documents import OwnBalancesDocument, PostedDocument
from reconcile.money import Money, to_json
from reconcile.periods import IN_UTC, Calendar
from reconcile.reporting.journal import EXCHANGED, ROLES, Role, Transaction
from reconcile.reporting.own_currency import Converter, Rates, with_statements
from reconcile.reporting.report import Scope
from reconcile.reporting.tables import report_of

USUAL: Final = Accounts()


async def write_journal(
    context: AppContext,
    scope: Scope,
    form: journal_forms.JournalFormat,
    *,
    write: Callable[[bytes], object],
    accounts: Accounts | None = None,
    progress: report_period.Progress = silent,
) -> report_period.JournalTotals:
    """Write a period's journal in pieces, and return its totals. Raise UsageError for an invalid
    period, or for a missing exchange rate."""
    if accounts is None:
        accounts = merchant_accounts(context.settings.reports)

    rates = merchant_rates(context.settings.reports)
    put, end = begun(form, scope, write=write, accounts=accounts, rates=rates)
    totals = await report_period.report_journal(
        context, scope, write=put, revenue=accounts.revenue, progress=progress
    )
    end()
    return totals


async def journal_prints(
    context: AppContext, scope: Scope, *, accounts: Accounts, progress: report_period.Progress
) -> dict[str, PrintParts]:
    """Return the files to store for a closed month."""
    kept = PrintParts()
    prints = {form: PrintParts() for form in journal_forms.JOURNAL_FORMATS}
    rates = merchant_rates(context.settings.reports)
    begun_all = {
        form: begun(form, scope, write=made.write, accounts=accounts, rates=rates)
        for form, made in prints.items()
    }

    def write(transaction: Transaction) -> None:
        kept.write(report_period.kept_line(transaction))
        for put, _ in begun_all.values():
            put(transaction)

    await report_period.report_journal(
        context, scope, write=write, revenue=accounts.revenue, progress=progress
    )
    for form, (_, end) in begun_all.items():
        try:
            end()
        except UsageError:  # a rate is missing: this form is made when it is asked for
            del prints[form]
    return {report_period.TRANSACTIONS: kept} | {
        print_name(form): made for form, made in prints.items()
    }


def print_name(form: journal_forms.JournalFormat) -> str:
    """Return the name of a closed month's stored journal."""
    return f"journal.{form}"


async def closed_journal(
    context: AppContext,
    period: str,
    form: journal_forms.JournalFormat,
    *,
    version: int | None = None,
) -> AsyncGenerator[bytes]:
    """Yield the parts of a closed month's journal, rendered anew if needed."""
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
        async for some in report_period.kept_transactions(connection, closing):
            for each in some:
                put(each)
            yield b"".join(written)
            written.clear()
        end()
        yield b"".join(written)


MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of a journal that is made in memory."""


async def journal_in(context: AppContext, scope: Scope, form: journal_forms.JournalFormat) -> bytes:
    """Return a period's journal in one format."""
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


async def journal_page(
    context: AppContext, scope: Scope, *, account: str | None, currency: str | None, most: int
) -> dict[str, Any]:
    """Return a period's balances, and one account's postings."""
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

    totals = await report_period.report_journal(
        context, scope, write=write, revenue=accounts.revenue
    )
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
    """Return balances in the merchant's currency as a document."""
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
    form: journal_forms.JournalFormat,
    scope: Scope,
    *,
    write: Callable[[bytes], object],
    accounts: Accounts,
    rates: Rates | None = None,
) -> tuple[Callable[[Transaction], None], Callable[[], None]]:
    """Write the beginning of a journal. Return a function that writes a transaction, and a function
    that ends the journal."""

    def put(text: str) -> None:
        write(text.encode("utf-8", "backslashreplace"))

    calendar = Calendar(zone_named(scope.zone))
    journal = JournalText(form, scope=scope, accounts=accounts, calendar=calendar, rates=rates)
    put(journal.head())
    return lambda each: put(journal.transaction(each)), lambda: put(journal.foot())


class JournalText:
    """Text of a journal in one format: its head, each transaction, and its foot."""

    def __init__(
        self,
        form: journal_forms.JournalFormat,
        *,
        scope: Scope,
        accounts: Accounts = USUAL,
        calendar: Calendar = IN_UTC,
        rates: Rates | None = None,
    ) -> None:
        self._form, self._calendar = journal_forms.JOURNAL_FORMS[form], calendar
        self.scope, self.accounts = scope, accounts
        self._rates = rates
        self._settled: list[tuple[Money, Money]] = []
        self._leg: Transaction | None = None
        self.opened = set(accounts.all_names())
        self.count = 0
        self._sums: Counter[tuple[str, str, str, Role, str]] = Counter()
        """Debit minus credit by day, adjusted closed month, currency, role and account."""

    def head(self) -> str:
        if self._form.head is not None:
            return self._form.head(self)
        return BYTE_ORDER_MARK + csv_line(self._form.columns)

    def kind(self) -> str:
        return "payments journal" if self.accounts.revenue is None else "payments and sales"

    def about(self) -> str:
        """Return a sentence on the accounts of payments."""
        if self.accounts.revenue is None:
            return (
                "This journal has payments, but no sales. Payments are posted against "
                f"{self.accounts.names['receivable']}, the account to which you post your sales, "
                "too."
            )
        return (
            "Payments are posted against deposits; sales are posted when the shop fulfils an order."
        )

    def transaction(self, transaction: Transaction) -> str:
        """Return a transaction's text; empty in formats by day."""
        self.count += 1
        day = self._calendar.day_of(transaction.at)
        adjusted = "" if transaction.adjusts is None else transaction.adjusts.period
        posted = [(each, self.accounts.name_of(each, transaction)) for each in transaction.postings]
        for each, name in posted:
            self._sums[day, adjusted, transaction.currency, each.role, name] += each.minor
        if transaction.what == EXCHANGED:
            self._exchanged(transaction)
        return "" if self._form.each is None else self._form.each(self, transaction, posted, day)

    def _exchanged(self, transaction: Transaction) -> None:
        leg, self._leg = self._leg, transaction
        if leg is not None and leg.cites == transaction.cites:
            came, arrived = (
                Money(minor=abs(each.postings[0].minor), currency=each.currency)
                for each in (leg, transaction)
            )
            self._settled.append((came, arrived))
            self._leg = None

    def foot(self) -> str:
        """Return the text after the last transaction."""
        if self._form.by_day is not None:
            rows = map(self._form.by_day, self._days())
            return "".join(map(csv_line, rows))
        return "" if self._form.foot is None else self._form.foot(self)

    def totals(self) -> Iterator[PostedDocument]:
        """Yield the sum of each account and currency."""
        sums: Counter[tuple[Role, str, str]] = Counter()
        for (_, _, currency, role, name), minor in self._sums.items():
            sums[role, name, currency] += minor
        for role, name, currency in sorted(sums, key=lambda key: (ROLES.index(key[0]), *key[1:])):
            money = Money(minor=sums[role, name, currency], currency=currency)
            yield journal_forms.posted_document(name, role, money)

    def own_document(self) -> OwnBalancesDocument | None:
        own = self.own_balances()
        return None if own is None else own_document(*own)

    def balances(self) -> dict[tuple[str, str], int]:
        """Return debit minus credit in minor units, by account and currency."""
        found: Counter[tuple[str, str]] = Counter()
        for (_, _, currency, _, name), minor in self._sums.items():
            found[name, currency] += minor
        return dict(sorted(found.items()))

    def own_balances(self) -> tuple[dict[tuple[str, str], int], Converter] | None:
        """Return balances in the merchant's currency, or None."""
        if self._rates is None:
            return None
        converter = Converter(with_statements(self._rates, self._settled))
        found: Counter[tuple[str, str]] = Counter()
        for (day, _, currency, _, name), minor in sorted(self._sums.items()):
            converted = converter.converted(Money(minor=minor, currency=currency), day)
            if converted is not None:
                found[name, currency] += converted
        return dict(found), converter

    def _days(self) -> Iterator[journal_forms.DaySum]:
        sums = self._sums if self._rates is None else self._own_days(self._rates)
        accounts = self.accounts
        for key in sorted(sums, key=lambda key: (*key[:3], ROLES.index(key[3]), key[4])):
            day, adjusted, currency, role, name = key
            if sums[key]:
                yield journal_forms.DaySum(
                    day=day,
                    adjusted=adjusted,
                    role=role,
                    account=safe_cell(accounts.codes.get(name, name)),
                    tax=safe_cell(accounts.tax_codes.get(role, accounts.no_tax)),
                    money=Money(minor=sums[key], currency=currency),
                )

    def _own_days(self, rates: Rates) -> Counter[tuple[str, str, str, Role, str]]:
        converter = Converter(with_statements(rates, self._settled))
        found: Counter[tuple[str, str, str, Role, str]] = Counter()
        left: Counter[tuple[str, str]] = Counter()
        for (day, adjusted, currency, role, name), minor in self._sums.items():
            money = Money(minor=minor, currency=currency)
            converted = converter.converted(money, day)
            if converted is None:
                raise UsageError(
                    f"there is no exchange rate of {currency} for {day}: add it to the file of "
                    "TALLYHOOK_REPORTS__RATES"
                )
            found[day, adjusted, rates.own, role, name] += converted
            left[day, adjusted] -= converted
        for (day, adjusted), minor in left.items():
            found[day, adjusted, rates.own, "rounding", self.accounts.names["rounding"]] += minor
        return found
