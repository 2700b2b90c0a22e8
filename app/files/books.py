"""Order books: what the merchant's shop, invoices, member list or accounting say is owed and paid.

A line of a book is compared with what was received. It is no statement of the shop about an
order: it makes no record, and no ledger rests on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.files.amounts import Amounts, read_currencies
from app.files.dates import Dates
from app.files.forms import Attempt, Cells, Columns, with_default
from app.files.mapping import Fields, FileMapping
from app.files.problems import Unclear
from app.files.words import Phones, Words, read_optional_references, read_references
from app.masking import masked_phone
from reconcile.books import BOOK_KINDS, BOOK_STATUSES, match_keys
from reconcile.instants import format_instant
from reconcile.money import Money, to_json

_STATUSES: Final = {"cancelled": "canceled"}


class BookForm:
    """The form of an order book. STAGED has no line id: the store gives it."""

    FIELDS = Fields(
        names=(
            "reference",
            "kind",
            "amount",
            "currency",
            "placed_at",
            "status",
            "phone",
            "group",
        ),
        words={"kind": BOOK_KINDS, "status": BOOK_STATUSES},
        defaults=("kind", "currency", "status"),
    )
    STAGED: Sequence[str] = (
        "match_key",
        "kind",
        "reference",
        "minor",
        "currency",
        "placed_at",
        "status",
        "group_key",
        "group_name",
        "phone",
    )

    def __init__(self, mapping: FileMapping) -> None:
        """Raises UsageError for defaults that are no words or currency."""
        words, defaults = mapping.words, mapping.defaults
        self._has_currency = "currency" in defaults
        self._fill_currency = with_default(defaults.get("currency"))
        self._kinds = Words(
            BOOK_KINDS, meant=words.get("kind", {}), default=defaults.get("kind", "order")
        )
        self._statuses = Words(
            BOOK_STATUSES,
            meant=_STATUSES | dict(words.get("status", {})),
            default=defaults.get("status"),
        )
        self._amounts = Amounts(mapping.marks)
        self._dates = Dates(mapping.dates, mapping.zone)
        self._phones = Phones(mapping.phone_country)

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        """A book needs references, amounts and a currency."""
        for name in ("reference", "amount"):
            if name not in places:
                yield (
                    f"there is no column {name!r}: name it in the heading, or say in a mapping "
                    f'which one it is ({name} = "…" under [columns])'
                )
        if "currency" not in places and not self._has_currency:
            yield (
                "there is no column 'currency': name it in the heading, or say in a mapping "
                '(currency = "KES" under [defaults])'
            )

    def values(self, cells: Cells, attempt: Attempt) -> Columns:
        """The values of the rows, in the columns of STAGED."""
        references = attempt("reference", read_references, cells["reference"])
        kinds = attempt("kind", self._kinds.read, cells["kind"])
        filled = self._fill_currency(cells["currency"])
        currencies = attempt("currency", read_currencies, filled)
        amounts = attempt("amount", self._amounts.read, cells["amount"], currencies)
        attempt("amount", _check_signs, amounts, kinds)
        return (
            attempt("reference", match_keys, references),
            kinds,
            references,
            amounts,
            currencies,
            attempt("placed_at", self._dates.read, cells["placed_at"]),
            attempt("status", self._statuses.read, cells["status"]),
            *(attempt("group", _groups, cells["group"]) or (None, None)),
            attempt("phone", self._phones.read, cells["phone"]),
        )

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        """A staged row, after its number, as people see it: the phone masked."""
        number, _, kind, reference, minor, currency, placed_at, status, _, group, phone = row
        return {
            "row": number,
            "reference": reference,
            "kind": kind,
            "amount": to_json(Money(minor=minor, currency=currency)),
            "placed_at": None if placed_at is None else format_instant(placed_at),
            "status": status,
            "phone": None if phone is None else masked_phone(phone),
            "group": group,
        }


def _check_signs(amounts: Sequence[int], kinds: Sequence[str]) -> None:
    """Only an accounting entry may be negative. Raises Unclear."""
    if min(amounts) < 0:
        for amount, kind in zip(amounts, kinds, strict=True):
            if amount < 0 and kind != "entry":
                raise Unclear(f"is negative: of {kind} lines only what is owed stands in a book")


def _groups(cells: Sequence[str]) -> tuple[Sequence[str | None], Sequence[str | None]]:
    """Keys and names."""
    names = read_optional_references(cells)
    keys = iter(match_keys([name for name in names if name is not None]))
    return [None if name is None else next(keys) for name in names], names
