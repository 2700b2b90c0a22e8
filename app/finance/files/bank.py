"""Bank lines: what the bank booked on the merchant's account, one entry a row; credit positive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any, Final

from app.core.masking import without_phones
from app.core.text import printable
from app.finance.files.amounts import Amounts, read_currencies
from app.finance.files.books import WHOLE_ROW, Attempt, Cells, Columns, with_default
from app.finance.files.mapping import Dates, Fields, FileMapping
from app.finance.files.tables import UnclearCell
from reconcile.instants import Instant, format_instant
from reconcile.money import Money, to_json
from reconcile.periods import Calendar

MAX_TEXT: Final = 4_000
"""Characters kept of one text of a line; CAMT.053 allows 140 a line, and batches have many."""

MAX_NAME: Final = 200
"""Characters of an account or a reference."""


class BankForm:
    """The form of a bank's file. STAGED has no line id: the store gives it."""

    FIELDS = Fields(
        names=(
            "account",
            "booked_at",
            "amount",
            "credit",
            "debit",
            "currency",
            "entry_reference",
            "reference",
            "counterparty",
            "text",
        ),
        words={},
        defaults=("account", "currency"),
        amounts=("amount", "credit", "debit"),
        dates=("booked_at",),
    )
    NAMED_BY: Sequence[str] = ("entry_reference", "reference")
    ADDED_UP: Sequence[str] = ("amount", "credit")
    STAGED: Sequence[str] = (
        "subject",
        "account",
        "currency",
        "minor",
        "booked_at",
        "entry",
        "reference",
        "counterparty",
        "told",
    )

    def __init__(self, mapping: FileMapping) -> None:
        self._has_account = "account" in mapping.defaults
        self._has_currency = "currency" in mapping.defaults
        self._fill_account = with_default(mapping.defaults.get("account"))
        self._fill_currency = with_default(mapping.defaults.get("currency"))
        self._amounts = Amounts(mapping.marks)
        self._dates = Dates(mapping.dates, mapping.zone)
        self._calendar = Calendar(mapping.zone or UTC)

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        """A bank's file needs an account, a day, an amount (or credit and debit) and a currency."""
        if "account" not in places and not self._has_account:
            yield (
                "there is no column 'account', and bookings of two accounts must not be taken for "
                'each other: name it in the heading, or say in a mapping (account = "main" under '
                "[defaults]), or --account NAME"
            )
        if "booked_at" not in places:
            yield (
                "there is no column 'booked_at', the day of the booking: name it in the heading, "
                'or say in a mapping which it is (booked_at = "…" under [columns])'
            )
        if "amount" not in places and not {"credit", "debit"} <= places.keys():
            yield (
                "there is no column 'amount', and not both 'credit' and 'debit': name it in the "
                'heading, or say in a mapping which it is (amount = "…" under [columns])'
            )
        if "currency" not in places and not self._has_currency:
            yield (
                "there is no column 'currency': name it in the heading, or say in a mapping "
                '(currency = "KES" under [defaults])'
            )

    def values(self, cells: Cells, attempt: Attempt) -> Columns:
        """The values of the rows, in the columns of STAGED."""
        accounts = attempt("account", _accounts, self._fill_account(cells["account"]))
        currencies = attempt("currency", read_currencies, self._fill_currency(cells["currency"]))
        amounts, credits, debits = (
            attempt(name, self._amounts.optional, cells[name], currencies)
            for name in ("amount", "credit", "debit")
        )
        minor = attempt(WHOLE_ROW, _signed, amounts, credits, debits)
        booked = attempt("booked_at", self._booked, cells["booked_at"])
        entries = attempt("entry_reference", _references, cells["entry_reference"])
        references = attempt("reference", _references, cells["reference"])
        parties = attempt("counterparty", _texts, cells["counterparty"])
        texts = attempt("text", _texts, cells["text"])
        days = attempt("booked_at", self._days, booked)
        identity = (accounts, currencies, minor, days, entries, references, parties, texts)
        return (
            attempt(WHOLE_ROW, _subjects, *identity),
            accounts,
            currencies,
            minor,
            booked,
            entries,
            references,
            parties,
            texts,
        )

    def _booked(self, cells: Sequence[str]) -> list[Instant]:
        found = [each for each in self._dates.read(cells) if each is not None]
        if len(found) != len(cells):
            raise UnclearCell("is empty: a booking has a day")
        return found

    def _days(self, booked: Sequence[Instant]) -> list[str]:
        """The bank's days: another zone for the same file makes no other lines of them."""
        return [self._calendar.day_of(each) for each in booked]

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        """A staged row, after its number, as people see it."""
        number, _, account, currency, minor, booked, entry, reference, counterparty, words = row
        return {
            "row": number,
            "account": account,
            "booked_at": format_instant(booked),
            "amount": to_json(Money(minor=minor, currency=currency)),
            "entry_reference": entry,
            "reference": reference,
            "counterparty": counterparty,
            "text": words,
        }


def _texts(cells: Sequence[str]) -> list[str]:
    """Texts of others, on one line each."""
    return [printable(" ".join(cell.split()))[:MAX_TEXT] for cell in cells]


def _names(cells: Sequence[str]) -> list[str]:
    """Accounts and references. Raises UnclearCell for one that is longer than any is."""
    found = _texts(cells)
    if max(map(len, found)) > MAX_NAME:
        raise UnclearCell(f"is longer than {MAX_NAME} characters")
    return found


_NO_REFERENCE: Final = frozenset({"NONREF", "NOTPROVIDED"})
"""What SWIFT and ISO 20022 have banks write where there is none; some write the one for the other.
Taken for a name, it would make one booking of all of an amount and a day."""


def reference_in(text: str) -> str:
    """A reference without blanks around it; empty where what stands there says that there is
    none."""
    plain = text.strip()
    return "" if plain.upper() in _NO_REFERENCE else plain


def _references(cells: Sequence[str]) -> list[str]:
    return [reference_in(each) for each in _names(cells)]


def _accounts(cells: Sequence[str]) -> list[str]:
    """Raises UnclearCell for none, too."""
    found = _names(cells)
    if not all(found):
        raise UnclearCell("is empty: say of which account it is, as --account NAME")
    return found


def _signed(
    amounts: Sequence[int | None], credits: Sequence[int | None], debits: Sequence[int | None]
) -> list[int]:
    """The amount with its sign. Raises UnclearCell where a row has none, or two."""
    return [_one(*row) for row in zip(amounts, credits, debits, strict=True)]


def _one(amount: int | None, credit: int | None, debit: int | None) -> int:
    given = [each for each in (amount, credit, debit) if each]
    if len(given) > 1:
        raise UnclearCell("the row has more than one of amount, credit and debit")
    if amount is None and credit is None and debit is None:
        raise UnclearCell("the row has no amount")
    if amount:
        return amount
    if credit is not None and credit < 0:
        raise UnclearCell("a credit is negative: money that leaves is a debit")
    return credit or -abs(debit or 0)


def _subjects(*columns: Sequence[Any]) -> list[str]:
    """What makes a line the same in another file of that bank: account, currency, amount and day,
    with the bank's reference of the entry, else with all that it states. Phone numbers are
    hidden but for their last digits: what is erased cannot be found by trying numbers out."""
    return [_subject(*row) for row in zip(*columns, strict=True)]


def _subject(account: str, currency: str, minor: int, day: str, entry: str, *words: str) -> str:
    names = (f"={entry}",) if entry else words
    return "\x1f".join((account, currency, str(minor), day, *map(without_phones, names)))
