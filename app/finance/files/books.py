"""Order books: what the merchant's shop, invoices, member list or accounting say is owed and paid.

A line of a book is compared with what was received. It is no statement of the shop about an
order's price: it makes no such record, and no ledger rests on it. Only what an order was paid by is
taken as the shop's word: the payment or session that leads the provider's events to the order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from app.core.masking import masked_phone
from app.finance.files.amounts import Amounts, read_currencies
from app.finance.files.dates import Dates
from app.finance.files.forms import Attempt, Cells, Columns, with_default
from app.finance.files.mapping import Fields, FileMapping
from app.finance.files.tables import Unclear
from app.finance.files.words import Phones, Words, read_optional_references, read_references
from reconcile.instants import format_instant
from reconcile.matching.books import BOOK_KINDS, BOOK_STATUSES, match_keys
from reconcile.money import Money, to_json

_STATUSES: Final = {"cancelled": "canceled"}


REFERENCES: Final = ("source", "session", "payment")
"""What a row says that its order was paid by: the last columns of STAGED, which are no part of a
line."""


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
            "source",
            "session_reference",
            "payment_reference",
        ),
        words={"kind": BOOK_KINDS, "status": BOOK_STATUSES},
        defaults=("kind", "currency", "status", "source"),
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
        *REFERENCES,
    )

    def __init__(self, mapping: FileMapping, *, sources: Collection[str] | None = None) -> None:
        """sources: the names that a source may have; None: any.

        Raises UsageError for defaults that are no words or currency.
        """
        self._references = References(mapping.defaults.get("source", ""), sources)
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
            *(
                attempt(
                    "source",
                    self._references.read,
                    kinds,
                    cells["source"],
                    cells["session_reference"],
                    cells["payment_reference"],
                )
                or (None, None, None)
            ),
        )

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        """A staged row, after its number, as people see it: the phone masked."""
        number, _, kind, reference, minor, currency, placed_at, status, _, group, phone = row[:11]
        named = zip(REFERENCES, row[11:], strict=True)
        return {
            "row": number,
            "reference": reference,
            "kind": kind,
            "amount": to_json(Money(minor=minor, currency=currency)),
            "placed_at": None if placed_at is None else format_instant(placed_at),
            "status": status,
            "phone": None if phone is None else masked_phone(phone),
            "group": group,
            **{name: said for name, said in named if said is not None},
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


class References:
    """Reads what orders were paid by: a source, and a session or a payment of it."""

    def __init__(self, default: str, sources: Collection[str] | None) -> None:
        self._default, self._sources = default, sources

    def read(
        self,
        kinds: Sequence[str],
        sources: Sequence[str],
        sessions: Sequence[str],
        payments: Sequence[str],
    ) -> tuple[Sequence[str | None], Sequence[str | None], Sequence[str | None]]:
        """Sources, sessions and payments; all None where a row names nothing. Raises Unclear."""
        if not any(sessions) and not any(payments):
            nothing = (None,) * len(kinds)
            return nothing, nothing, nothing
        sessions_, payments_ = (
            read_optional_references(sessions),
            read_optional_references(payments),
        )
        named = [s is not None or p is not None for s, p in zip(sessions_, payments_, strict=True)]
        return (
            [
                self._source(cell, kind) if each else None
                for cell, kind, each in zip(sources, kinds, named, strict=True)
            ],
            sessions_,
            payments_,
        )

    def _source(self, cell: str, kind: str) -> str:
        source = (cell.strip() or self._default).lower()
        if kind != "order":
            raise Unclear(f"is of {kind} lines nothing: what was paid by, only order lines say")
        if not source:
            raise Unclear(
                "is missing beside a session or payment: say whose it is, in a column or in a "
                'mapping (source = "…" under [defaults]), or leave the references out '
                '(payment_reference = "" under [columns])'
            )
        if self._sources is not None and source not in self._sources:
            known = ", ".join(sorted(self._sources)) or "(none)"
            raise Unclear(f"is none of the sources there are: {known}")
        return source
