"""Define the formats of the payments journal for commands, API and console."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import dumps
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from app.core.cells import csv_line, safe_cell
from reconcile.documents import Keywords
from reconcile.instants import format_instant
from reconcile.money import Money, major_text, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from app.finance.reports.journal_documents import (
        OwnBalancesDocument,
        PostedDocument,
        TransactionDocument,
    )
    from reconcile.reporting.journal import Posting, Role, Transaction
    from reconcile.reporting.own_currency import Converter
    from reconcile.reporting.report import Scope

    Posted = list[tuple[Posting, str]]
    """Postings with the names of their accounts."""

    class Journal(Protocol):
        """Attributes and methods of a journal that its writers use."""

        scope: Scope
        opened: set[str]
        count: int

        def kind(self) -> str: ...
        def about(self) -> str: ...
        def totals(self) -> Iterator[PostedDocument]: ...
        def own_balances(self) -> tuple[dict[tuple[str, str], int], Converter] | None: ...
        def own_document(self) -> OwnBalancesDocument | None: ...


class DaySum(NamedTuple):
    day: str
    adjusted: str
    """Closed month that the transactions adjust; empty for none."""
    role: Role
    account: str
    tax: str
    money: Money

    def what(self) -> str:
        of = f"Adjustments of {self.adjusted}, posted" if self.adjusted else "Payments of"
        return f"{of} {self.day}"

    def words(self) -> str:
        return self.role.replace("_", " ")


class JournalForm(NamedTuple):
    """Format of a journal."""

    title: str
    ending: str
    purpose: str
    words: str = ""
    media: str = "text/csv; charset=utf-8"
    columns: tuple[str, ...] = ()
    by_day: Callable[[DaySum], tuple[str, ...]] | None = None
    head: Callable[[Journal], str] | None = None
    """Function that writes the text before the first transaction. None means that the format has
    `columns`."""
    each: Callable[[Journal, Transaction, Posted, str], str] | None = None
    foot: Callable[[Journal], str] | None = None


# --- added up by day ------------------------------------------------------------------------------


def _xero(each: DaySum) -> tuple[str, ...]:
    return (
        f"{each.what()} in {each.money.currency}",
        f"{each.day[8:10]}/{each.day[5:7]}/{each.day[:4]}",
        each.words(),
        each.account,
        each.tax,
        major_text(each.money),
        *[""] * 4,
    )


def _quickbooks(each: DaySum) -> tuple[str, ...]:
    minor, currency = each.money.minor, each.money.currency
    amount = major_text(Money(minor=abs(minor), currency=currency))
    of = f"-A{each.adjusted[2:].replace('-', '')}" if each.adjusted else ""
    return (
        f"TH-{each.day.replace('-', '')}-{currency}{of}",
        f"{each.day[5:7]}/{each.day[8:10]}/{each.day[:4]}",
        each.account,
        f"{each.what()}: {each.words()}",
        amount if minor > 0 else "",
        amount if minor < 0 else "",
        "",
        currency,
    )


# --- one transaction at a time --------------------------------------------------------------------

OPENED: Final = "1970-01-01"
"""Opening day of accounts, before every possible transaction."""


def _beancount_head(journal: Journal) -> str:
    scope = journal.scope
    title = f"{scope.merchant or 'Tallyhook'} {scope.environment}, {journal.kind()}"
    opened = [f"{OPENED} open {name}" for name in sorted(journal.opened)]
    return "\n".join([f'option "title" {_quoted(title)}', f"; {journal.about()}", *opened, ""])


def _beancount(journal: Journal, transaction: Transaction, posted: Posted, day: str) -> str:
    new = {name for _, name in posted} - journal.opened
    journal.opened |= new
    opened = "".join(f"\n{OPENED} open {name}\n" for name in sorted(new))
    lines = ["", f"{day} * {_quoted(transaction.what)} {_quoted(transaction.order or '')}"]
    lines += [f"  {name}: {_quoted(text)}" for name, text in _named(transaction) if text]
    lines += [
        f"  {name}  {_major(each.minor, transaction)} {transaction.currency}"
        for each, name in posted
    ]
    return opened + "\n".join([*lines, ""])


def _beancount_foot(journal: Journal) -> str:
    own = journal.own_balances()
    if own is None:
        return ""
    to, used = own[1].rates.own, own[1].used()
    prices = [e for e in used if e.day is not None]
    return "".join(f"\n{e.day} price {e.currency} {e.text} {to}\n" for e in prices)


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


def _csv(journal: Journal, transaction: Transaction, posted: Posted, day: str) -> str:
    names = [safe_cell(text) for _, text in _named(transaction)]
    names += [""] * (len(CSV_COLUMNS) - _POSTING_COLUMNS - len(names))
    return "".join(
        csv_line(
            (
                str(journal.count),
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


def _json_head(journal: Journal) -> str:
    from reconcile.reporting.tables import scope_document

    kind = {"kind": journal.kind(), **scope_document(journal.scope)}
    document = dumps(kind, ensure_ascii=False, indent=2)
    return document.removesuffix("\n}") + ',\n  "transactions": ['


def _json(journal: Journal, transaction: Transaction, posted: Posted, day: str) -> str:
    adjusted = _adjusted(transaction)
    # A lone surrogate becomes an escape when the line is encoded, which JSON reads back.
    document: TransactionDocument = {
        "transaction": journal.count,
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
            posted_document(name, each.role, Money(minor=each.minor, currency=transaction.currency))
            for each, name in posted
        ],
    }
    return ("" if journal.count == 1 else ",") + "\n    " + dumps(document, ensure_ascii=False)


def _json_foot(journal: Journal) -> str:
    lines = ",".join("\n    " + dumps(each) for each in journal.totals())
    own = journal.own_document()
    closing = "\n  ]" if journal.count else "]"
    more = "" if own is None else f',\n  "own": {dumps(own)}'
    counts = f'{closing},\n  "count": {journal.count},\n  "totals": [{lines}'
    return f"{counts}{closing}{more}\n}}\n"


def posted_document(name: str, role: Role, money: Money) -> PostedDocument:
    return {"account": name, "role": role, "minor": money.minor, "money": to_json(money)}


def _named(transaction: Transaction) -> Iterator[tuple[str, str]]:
    yield "order", transaction.order or ""
    yield "payment", transaction.payment or ""
    yield "source", transaction.source or ""
    yield "cites", ", ".join(transaction.cites)
    yield from _adjusted(transaction).items()


def _adjusted(transaction: Transaction) -> dict[str, str]:
    adjusts = transaction.adjusts
    if adjusts is None:
        return {}
    return {
        "original_date": adjusts.original_date,
        "tax_date": adjusts.tax_date,
        "closed_period": adjusts.period,
    }


def _major(minor: int, transaction: Transaction) -> str:
    return major_text(Money(minor=minor, currency=transaction.currency))


_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"'} | {chr(code): f"\\\\x{code:02x}" for code in (*range(32), 127)}
)


def _quoted(text: str) -> str:
    return f'"{text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)}"'


JOURNAL_FORMS: Final[Mapping[str, JournalForm]] = {
    "beancount": JournalForm(
        title="Beancount",
        media="text/plain; charset=utf-8",
        ending="beancount",
        purpose="for beancount and Fava",
        head=_beancount_head,
        each=_beancount,
        foot=_beancount_foot,
    ),
    "csv": JournalForm(
        title="CSV",
        ending="csv",
        words="a line a posting",
        purpose="for a spreadsheet, a line a posting",
        columns=CSV_COLUMNS,
        each=_csv,
    ),
    "json": JournalForm(
        title="JSON",
        media="application/json",
        ending="json",
        words="one document",
        purpose="for programs",
        head=_json_head,
        each=_json,
        foot=_json_foot,
    ),
    # Xero's template for manual journals (help.xero.com, ManualJournalsImport): rows of one
    # narration and date are one journal, dates are dd/mm/yyyy, debits positive, and a tax rate is
    # named by its full name. A file may have 300 lines there, hence one journal a day.
    "xero": JournalForm(
        title="Xero",
        ending="xero.csv",
        purpose="manual journals to import into Xero, one per day",
        columns=(
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
        ),
        by_day=_xero,
    ),
    # An import of journal entries into QuickBooks Online (quickbooks.intuit.com, "Import journal
    # entries"): rows of one number are one entry, dates are mm/dd/yyyy, a subaccount follows its
    # parent after a colon. `Name` is required only for accounts of the types A/R and A/P.
    "quickbooks": JournalForm(
        title="QuickBooks",
        ending="quickbooks.csv",
        purpose="journal entries to import into QuickBooks Online, one per day",
        columns=(
            "Journal No.",
            "Journal Date",
            "Account Name",
            "Description",
            "Debits",
            "Credits",
            "Name",
            "Currency",
        ),
        by_day=_quickbooks,
    ),
}

JOURNAL_FORMATS: Final = tuple(JOURNAL_FORMS)
JournalFormat = Annotated[str, Keywords(enum=JOURNAL_FORMATS)]

_EACH: Final = tuple(name for name, form in JOURNAL_FORMS.items() if form.by_day is None)
_BY_DAY: Final = tuple(name for name, form in JOURNAL_FORMS.items() if form.by_day is not None)
_IMPORTED: Final = "to import into that program, one journal per day and currency."

COMMAND_WORDS: Final = "; ".join(
    [f"{name}: {JOURNAL_FORMS[name].words}".removesuffix(": ") for name in _EACH]
    + [f"{', '.join(_BY_DAY)}: {_IMPORTED}"]
)


def api_words(default: str) -> str:
    """Return the API's description of the journal formats."""
    words = {name: JOURNAL_FORMS[name].words for name in reversed(_EACH)}
    words[default] = "the default"
    said = [f"{name}, {text}".removesuffix(", ") for name, text in words.items()]
    return "; ".join([*said, f"{' and '.join(_BY_DAY)}, {_IMPORTED}"])
