"""Read lines of bank accounts, one row for each booked entry."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import Any, Final

from app.core.masking import without_phones
from app.core.text import printable
from app.finance.files import line_forms
from app.finance.files.amounts import Amounts, read_currencies
from app.finance.files.dates import Dates
from app.finance.files.mapping import Fields, FileMapping, Signs
from app.finance.files.tables import UnclearCell
from reconcile.instants import Instant, format_instant
from reconcile.money import Money, to_json
from reconcile.periods import Calendar

MAX_TEXT: Final = 4_000
"""Maximum characters in the text of a bank line."""

MAX_NAME: Final = 200


class BankForm:
    """Rules for reading the rows of a bank file."""

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
        self._fill_account = line_forms.with_default(mapping.defaults.get("account"))
        self._fill_currency = line_forms.with_default(mapping.defaults.get("currency"))
        self._amounts = Amounts(mapping.marks)
        self._dates = Dates(mapping.dates, mapping.zone, mapping.zones)
        self._calendar = Calendar(mapping.zone or UTC)
        self._signed = partial(_signed, signs=mapping.signs)

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        if "account" not in places and not self._has_account:
            yield (
                "there is no column 'account', so bookings of two accounts could be confused: name "
                'it in the heading, or in a mapping (account = "main" under [defaults]), or give '
                "--account NAME"
            )
        if "booked_at" not in places:
            yield (
                "there is no column 'booked_at', the day of the booking: name it in the heading, "
                'or in a mapping (booked_at = "…" under [columns])'
            )
        if "amount" not in places and not {"credit", "debit"} <= places.keys():
            yield (
                "there is neither a column 'amount' nor both 'credit' and 'debit': name it in the "
                'heading, or in a mapping (amount = "…" under [columns])'
            )
        if "currency" not in places and not self._has_currency:
            yield line_forms.NO_CURRENCY

    def values(self, cells: line_forms.Cells, attempt: line_forms.Attempt) -> line_forms.Columns:
        accounts = attempt("account", _accounts, self._fill_account(cells["account"]))
        currencies = attempt("currency", read_currencies, self._fill_currency(cells["currency"]))
        amounts, credits, debits = (
            attempt(name, self._amounts.optional, cells[name], currencies)
            for name in ("amount", "credit", "debit")
        )
        minor = attempt(line_forms.WHOLE_ROW, self._signed, amounts, credits, debits)
        booked = attempt("booked_at", self._booked, cells["booked_at"])
        entries = attempt("entry_reference", _references, cells["entry_reference"])
        references = attempt("reference", _references, cells["reference"])
        parties = attempt("counterparty", _texts, cells["counterparty"])
        texts = attempt("text", _texts, cells["text"])
        # Days by the bank's calendar: the file read in another zone gives equal lines.
        days = attempt("booked_at", lambda found: [*map(self._calendar.day_of, found)], booked)
        identity = (accounts, currencies, minor, days, entries, references, parties, texts)
        return (
            attempt(line_forms.WHOLE_ROW, _subjects, *identity),
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
            raise UnclearCell("is empty: every booking needs a day")
        return found

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
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
    return [printable(" ".join(cell.split()))[:MAX_TEXT] for cell in cells]


def _names(cells: Sequence[str]) -> list[str]:
    found = _texts(cells)
    if max(map(len, found)) > MAX_NAME:
        raise UnclearCell(f"is longer than {MAX_NAME} characters")
    return found


_NO_REFERENCE: Final = frozenset({"NONREF", "NOTPROVIDED"})
"""Placeholders for a missing reference, from SWIFT and ISO 20022."""


def reference_in(text: str) -> str:
    """Return a reference without blanks; empty for a placeholder."""
    plain = text.strip()
    return "" if plain.upper() in _NO_REFERENCE else plain


def _references(cells: Sequence[str]) -> list[str]:
    return [reference_in(each) for each in _names(cells)]


_WITH_BLANKS: Final = re.compile(r"[A-Z]{2}\d\d(?: [A-Z0-9]{1,4})+|\d+(?: \d+)+")


def account_name(text: str) -> str:
    """Return an account number without blanks."""
    plain = printable(" ".join(text.split()))
    return plain.replace(" ", "") if _WITH_BLANKS.fullmatch(plain) else plain


def _accounts(cells: Sequence[str]) -> list[str]:
    found = _names(cells)
    if not all(found):
        raise UnclearCell("is empty: give the account with --account NAME")
    return [*map(account_name, found)]


def _signed(
    amounts: Sequence[int | None],
    credits: Sequence[int | None],
    debits: Sequence[int | None],
    *,
    signs: Signs | None,
) -> list[int]:
    signed = []
    for amount, credit, debit in zip(amounts, credits, debits, strict=True):
        if sum(1 for each in (amount, credit, debit) if each) > 1:
            raise UnclearCell("the row has more than one of amount, credit and debit")
        if amount is None and credit is None and debit is None:
            raise UnclearCell("the row has no amount")
        if not amount and credit is not None and credit < 0:
            raise UnclearCell(
                "a credit is negative: write money that leaves the account as a debit"
            )
        if debit and signs not in ("any", "sum") and (debit < 0) != (signs == "minus"):
            raise UnclearCell(
                f"a debit is written {'with' if debit < 0 else 'without'} a minus sign: correct "
                'the row, or state in a mapping how the file writes debits: signs = "minus", '
                '"none" or "any"'
            )
        left = debit or 0 if signs == "sum" else abs(debit or 0)
        signed.append(amount or credit or -left)
    return signed


def _subjects(*columns: Sequence[Any]) -> list[str]:
    """Return a digest of each bank line. The digest covers few digits of phone numbers, which stay
    secret after erasure."""
    subjects = []
    for account, currency, minor, day, entry, *words in zip(*columns, strict=True):
        names = [f"={entry}"] if entry else words
        subject = "\x1f".join((account, currency, str(minor), day, *map(without_phones, names)))
        # A digest rather than text: names in a key could not be erased.
        subjects.append(hashlib.blake2b(subject.encode(), digest_size=16).hexdigest())
    return subjects
