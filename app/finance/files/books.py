"""Read order books, which state amounts owed and paid."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from app.core.masking import masked_phone
from app.finance.files import line_forms, tables
from app.finance.files.amounts import Amounts, read_currencies
from app.finance.files.dates import Dates
from app.finance.files.mapping import Fields, FileMapping
from reconcile.documents import MoneyDocument
from reconcile.instants import format_instant, format_known
from reconcile.matching.books import BOOK_KINDS, BOOK_STATUSES, match_keys
from reconcile.money import Money, to_json

_STATUSES: Final = {
    "cancelled": "canceled",
    # The refund has its own column; the payment still counts as paid.
    "partially_refunded": "paid",
    "partially refunded": "paid",
}


REFERENCES: Final = ("source", "session", "payment")


class BookForm:
    """Rules for reading the rows of an order book."""

    FIELDS = Fields(
        names=(
            "reference",
            "kind",
            "amount",
            "currency",
            "placed_at",
            "status",
            "refunded_amount",
            "refunded_at",
            "method",
            "phone",
            "group",
            "source",
            "session_reference",
            "payment_reference",
        ),
        words={"kind": BOOK_KINDS, "status": BOOK_STATUSES},
        defaults=("kind", "currency", "status", "source"),
        amounts=("amount", "refunded_amount"),
        dates=("placed_at", "refunded_at"),
    )
    NAMED_BY: Sequence[str] = ("reference",)
    ADDED_UP: Sequence[str] = ("amount",)
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
        "refunded",
        "refunded_at",
        "method",
        "phone",
        *REFERENCES,
    )

    def __init__(self, mapping: FileMapping, *, sources: Collection[str] | None = None) -> None:
        """Set up the form. Raise UsageError for an invalid default."""
        self._source, self._sources = mapping.defaults.get("source", ""), sources
        defaults = mapping.defaults
        self._has_currency = "currency" in defaults
        self._fill_currency = line_forms.with_default(defaults.get("currency"))
        self._kinds = line_forms.Vocabulary("kind", BOOK_KINDS, mapping=mapping, default="order")
        self._statuses = line_forms.Vocabulary(
            "status", BOOK_STATUSES, mapping=mapping, also=_STATUSES, default=None
        )
        self._amounts = Amounts(mapping.marks)
        self._dates = Dates(mapping.dates, mapping.zone, mapping.zones)
        self._phones = line_forms.Phones(mapping.phone_country)

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        for name in ("reference", "amount"):
            if name not in places:
                yield (
                    f"there is no column {name!r}: name it in the heading, or in a mapping "
                    f'({name} = "…" under [columns])'
                )
        if "currency" not in places and not self._has_currency:
            yield f"{line_forms.NO_CURRENCY}, or with --currency KES"

    def values(self, cells: line_forms.Cells, attempt: line_forms.Attempt) -> line_forms.Columns:
        references = attempt("reference", line_forms.read_references, cells["reference"])
        kinds = attempt("kind", self._kinds.read, cells["kind"])
        filled = self._fill_currency(cells["currency"])
        currencies = attempt("currency", read_currencies, filled)
        amounts = attempt("amount", self._amounts.read, cells["amount"], currencies)
        statuses = attempt("status", self._statuses.read, cells["status"])
        attempt("amount", _check_signs, amounts, kinds, statuses)
        refunded = attempt("refunded_amount", self._refunds, cells["refunded_amount"], currencies)
        attempt("refunded_amount", _check_refunds, refunded, amounts)
        placed_at = attempt("placed_at", self._dates.read, cells["placed_at"])
        groups = attempt("group", line_forms.read_optional_references, cells["group"])
        return (
            attempt("reference", match_keys, references),
            kinds,
            references,
            amounts,
            currencies,
            placed_at,
            statuses,
            attempt("group", line_forms.optional_match_keys, groups),
            groups,
            refunded,
            attempt("refunded_at", self._dates.read, cells["refunded_at"]),
            attempt("method", line_forms.read_optional_references, cells["method"]),
            attempt("phone", self._phones.read, cells["phone"]),
            *(
                attempt(
                    "source",
                    self._paid_by,
                    kinds,
                    cells["source"],
                    cells["session_reference"],
                    cells["payment_reference"],
                )
                or (None, None, None)
            ),
        )

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        staged = dict(zip(self.STAGED, row[1:], strict=True))
        currency, phone, refunded = staged["currency"], staged["phone"], staged["refunded"]
        back: dict[str, Any] = {}
        if refunded is not None:
            back["refunded_amount"] = _shown_money(refunded, currency)
        if staged["refunded_at"] is not None:
            back["refunded_at"] = format_instant(staged["refunded_at"])
        if staged["method"] is not None:
            back["method"] = staged["method"]
        placed_at = staged["placed_at"]
        return {
            "row": row[0],
            "reference": staged["reference"],
            "kind": staged["kind"],
            "amount": _shown_money(staged["minor"], currency),
            "placed_at": format_known(placed_at),
            "status": staged["status"],
            **back,
            "phone": None if phone is None else masked_phone(phone),
            "group": staged["group_name"],
            **{name: staged[name] for name in REFERENCES if staged[name] is not None},
        }

    def _refunds(self, cells: Sequence[str], currencies: Sequence[str]) -> Sequence[int | None]:
        if not any(cells):
            return (None,) * len(cells)
        read = self._amounts.optional(cells, currencies)
        return [None if minor is None else abs(minor) for minor in read]

    def _paid_by(
        self,
        kinds: Sequence[str],
        cells: Sequence[str],
        session_cells: Sequence[str],
        payment_cells: Sequence[str],
    ) -> tuple[Sequence[str | None], Sequence[str | None], Sequence[str | None]]:
        if not any(session_cells) and not any(payment_cells):
            nothing = (None,) * len(kinds)
            return nothing, nothing, nothing
        sessions = line_forms.read_optional_references(session_cells)
        payments = line_forms.read_optional_references(payment_cells)
        sources = list[str | None]()
        for kind, cell, session, payment in zip(kinds, cells, sessions, payments, strict=True):
            if session is None and payment is None:
                sources.append(None)
                continue
            source = (cell.strip() or self._source).lower()
            if kind != "order":
                raise tables.UnclearCell(
                    f"must be empty on {kind} lines: only order lines name a session or payment"
                )
            if not source:
                raise tables.UnclearCell(
                    "is missing, but the row has a session or payment: name the source in a "
                    'column, or in a mapping (source = "…" under [defaults]). Otherwise, leave '
                    'the references out (payment_reference = "" under [columns])'
                )
            if self._sources is not None and source not in self._sources:
                known = ", ".join(sorted(self._sources)) or "(none)"
                raise tables.UnclearCell(f"is not a source; the sources are: {known}")
            sources.append(source)
        return sources, sessions, payments


def _shown_money(minor: int, currency: str) -> MoneyDocument:
    return to_json(Money(minor=minor, currency=currency))


def _check_refunds(refunded: Sequence[int | None], amounts: Sequence[int]) -> None:
    for back, amount in zip(refunded, amounts, strict=True):
        if back and amount < 0:
            raise tables.UnclearCell(
                "must be empty, because the line's amount is negative, which already means a refund"
            )


def _check_signs(
    amounts: Sequence[int], kinds: Sequence[str], statuses: Sequence[str | None]
) -> None:
    if min(amounts) < 0:
        for amount, kind, status in zip(amounts, kinds, statuses, strict=True):
            if amount < 0 and kind != "entry" and status != "refunded":
                raise tables.UnclearCell(
                    "is negative: only accounting entries and refunds may have a negative amount"
                )


_PLACE: Final = {name: place for place, name in enumerate(BookForm.STAGED, 1)}

REFUND_ALONE: Final = (
    "is a refund of an order that is not in the file: put both rows into one file, or mark the "
    "row as an accounting entry (kind)"
)


def story_of(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...] | None:
    """Join the staged rows of one order; None for contradictory rows."""
    paid = [row for row in rows if row[_PLACE["status"]] == "paid"]
    back = [row for row in rows if row[_PLACE["status"]] == "refunded"]
    if len(paid) != 1 or not back or len(back) + 1 != len(rows):
        return None
    if len({row[_PLACE["currency"]] for row in rows}) > 1:
        return None
    story = list(paid[0])
    charged = story[_PLACE["minor"]]
    refunded = story[_PLACE["refunded"]] or 0
    refunded += sum(row[_PLACE["refunded"]] or abs(row[_PLACE["minor"]]) for row in back)
    if charged < 0 or refunded > charged:
        return None
    for row in back:
        story = [own if own is not None else other for own, other in zip(story, row, strict=True)]
    refund_dates = [paid[0][_PLACE["refunded_at"]]]
    for row in back:
        given = row[_PLACE["refunded_at"]]
        refund_dates.append(row[_PLACE["placed_at"]] if given is None else given)
    story[_PLACE["placed_at"]] = paid[0][_PLACE["placed_at"]]
    story[_PLACE["refunded"]] = refunded
    dated = [at for at in refund_dates if at is not None]
    story[_PLACE["refunded_at"]] = max(dated, default=None)
    story[_PLACE["status"]] = "refunded" if refunded == charged else "paid"
    return tuple(story)
