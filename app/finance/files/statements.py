"""Statements: the provider's settlement or transaction file, one movement of money a row.

What leaves the merchant is negative: a refund of 500 has gross -500, however its file writes it,
and a fee is positive where it costs. gross - fee = net holds for every row that is taken. A fee in
a row of its own is known by its sign: what is negative costs, what is positive was given back,
where a preset or a mapping says that signs of the file mean that; else a positive one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.finance.files import amounts, books, tables
from app.finance.files.mapping import Dates, Fields, FileMapping, SumOf
from reconcile.instants import format_known
from reconcile.matching.books import STATEMENT_KINDS, match_keys
from reconcile.money import Money, to_json

Minor = Sequence[int | None]


class StatementForm:
    """The form of a statement."""

    FIELDS = Fields(
        names=(
            "payment_reference",
            "original_payment",
            "order_reference",
            "gross",
            "fee",
            "net",
            "currency",
            "settled_at",
            "payout",
            "type",
        ),
        words={"type": STATEMENT_KINDS},
        defaults=("type", "currency", "payout"),
        amounts=("gross", "fee", "net"),
        dates=("settled_at",),
    )
    NAMED_BY: Sequence[str] = ("payment_reference", "order_reference")
    ADDED_UP: Sequence[str] = ("gross", "net")
    STAGED: Sequence[str] = (
        "subject",
        "kind",
        "source",
        "match_key",
        "payment",
        "order_ref",
        "currency",
        "gross",
        "fee",
        "net",
        "settled_at",
        "payout",
    )

    def __init__(self, mapping: FileMapping, *, source: str, own_orders: bool = False) -> None:
        """source: the provider account whose statement it is; "" where that is not known.
        own_orders: whether its orders are named with it, `@till:1001`; the provider names them
        without."""
        self._source = source
        self._before = f"@{source}:" if own_orders else ""
        self._has_currency = "currency" in mapping.defaults
        self._fill_currency = books.with_default(mapping.defaults.get("currency"))
        self._fill_payout = books.with_default(mapping.defaults.get("payout"))
        self._kinds = books.Vocabulary(
            STATEMENT_KINDS,
            meant=mapping.words.get("type", {}),
            default=mapping.defaults.get("type", "payment"),
        )
        self._of_preset = mapping.signed
        self._fee_signed = mapping.signed or "fee" in mapping.made
        self._fee_added_up = isinstance(mapping.made.get("fee"), SumOf)
        self._signed = mapping.signed or not mapping.made.keys().isdisjoint(("gross", "net"))
        self._amounts = amounts.Amounts(mapping.marks)
        self._dates = Dates(mapping.dates, mapping.zone)

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        """A statement needs a reference, a gross amount (or net and fee) and a currency."""
        if not {"payment_reference", "order_reference"} & places.keys():
            yield (
                "there is no column 'payment_reference' and none 'order_reference': name one in "
                'the heading, or say in a mapping which it is (payment_reference = "…" under '
                "[columns])"
            )
        if "gross" not in places and not {"fee", "net"} <= places.keys():
            yield (
                "there is no column 'gross', and not both 'net' and 'fee': name it in the heading, "
                'or say in a mapping which it is (gross = "…" under [columns])'
            )
        if "currency" not in places and not self._has_currency:
            yield (
                "there is no column 'currency': name it in the heading, or say in a mapping "
                '(currency = "KES" under [defaults]), or with --currency KES'
            )

    def values(self, cells: books.Cells, attempt: books.Attempt) -> books.Columns:
        """The values of the rows, in the columns of STAGED."""
        own = attempt(
            "payment_reference", books.read_optional_references, cells["payment_reference"]
        )
        originals = attempt(
            "original_payment", books.read_optional_references, cells["original_payment"]
        )
        orders = attempt("order_reference", self._orders, cells["order_reference"])
        payouts = attempt(
            "payout", books.read_optional_references, self._fill_payout(cells["payout"])
        )
        kinds = attempt("type", self._kinds.read, cells["type"])
        payments = attempt("payment_reference", _payments, kinds, own, originals)
        filled = self._fill_currency(cells["currency"])
        currencies = attempt("currency", amounts.read_currencies, filled)
        gross, fee, net = (
            attempt(name, self._amounts.optional, cells[name], currencies)
            for name in ("gross", "fee", "net")
        )
        money = attempt(books.WHOLE_ROW, self._complete, kinds, gross, fee, net)
        keys = attempt("order_reference", _keys, orders)
        return (
            attempt(books.WHOLE_ROW, _subjects, kinds, payments, keys, payouts),
            kinds,
            None if kinds is None else [self._source] * len(kinds),
            keys,
            payments,
            orders,
            currencies,
            *(money or (None, None, None)),
            attempt("settled_at", self._dates.read, cells["settled_at"]),
            payouts,
        )

    def _complete(
        self, kinds: Sequence[str], gross: Minor, fee: Minor, net: Minor
    ) -> tuple[list[int], list[int], list[int]]:
        """Gross, fee and net, none of them missing. Raises UnclearCell."""
        if self._of_preset and any(map(_brings, kinds, gross, net)):
            raise tables.UnclearCell(
                "the row is a refund, and by its sign money came, as of one that failed, or of "
                "something that you bought: leave such rows out with a copy of the preset (under "
                "[ignore]), or say there what they are (under [words.type])"
            )
        if self._fee_added_up:  # parts of a fee of which none says anything come to nothing
            fee = [0 if f is None and g is None else f for f, g in zip(fee, gross, strict=True)]
        given = list(zip(kinds, gross, fee, net, strict=True))
        if not self._fee_signed and any(_gives_more(*row) for row in given):
            raise tables.UnclearCell(
                "the fee is negative and not both gross and net are given, so that more would be "
                "paid out than came: write a fee that costs as positive, or turn the sign round "
                'in a mapping (subtract = ["Fee"] under [amounts.fee])'
            )
        rows = [_row(*row) for row in given]
        if not self._signed and any(
            kind == "fee" and row[1] < 0 and not written
            for kind, row, written in zip(kinds, rows, fee, strict=True)
        ):
            raise tables.UnclearCell(
                "the row is a fee with a positive amount, and it is not stated whether it costs or "
                "was given back: write one that costs as negative, and one that was given back as "
                "a negative fee in the column 'fee' beside a gross of 0; or say in a mapping that "
                'the signs of the file mean that (add = ["Gross"] under [amounts.gross])'
            )
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]

    def _orders(self, cells: Any) -> Any:
        """The order of each row as this instance names it."""
        found, before = books.read_optional_references(cells), self._before
        if not before or found is None:
            return found
        return [
            each if each is None or each.startswith(before) else before + each for each in found
        ]

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        """A staged row, after its number, as people see it."""
        number, _, kind, _, _, payment, order, currency, *minor, settled_at, payout = row
        gross, fee, net = (to_json(Money(minor=each, currency=currency)) for each in minor)
        return {
            "row": number,
            "payment_reference": payment,
            "order_reference": order,
            "type": kind,
            "gross": gross,
            "fee": fee,
            "net": net,
            "settled_at": format_known(settled_at),
            "payout": payout,
        }


def _payments(
    kinds: Sequence[str], own: Sequence[str | None], originals: Sequence[str | None]
) -> Sequence[str | None]:
    """The payment of each row: of what goes back the one that it is of, where the row names it."""
    if not any(originals):
        return own
    return [
        original if original is not None and kind in ("refund", "dispute") else payment
        for kind, payment, original in zip(kinds, own, originals, strict=True)
    ]


def _keys(orders: Sequence[str | None]) -> Sequence[str | None]:
    given = iter(match_keys([order for order in orders if order is not None]))
    return [None if order is None else next(given) for order in orders]


_OF_PAYOUTS: Final = frozenset({"fee", "carried"})


def _subjects(
    kinds: Sequence[str],
    payments: Sequence[str | None],
    keys: Sequence[str | None],
    payouts: Sequence[str | None],
) -> list[str]:
    """What each row is about: its payment, else its order; a fee, or what is carried, may be about
    a payout alone."""
    if all(payments):
        return [f"p:{payment}" for payment in payments]
    return [_subject(*row) for row in zip(kinds, payments, keys, payouts, strict=True)]


def _subject(kind: str, payment: str | None, key: str | None, payout: str | None) -> str:
    if payment is not None:
        return f"p:{payment}"
    if key is not None:
        return f"o:{key}"
    if kind in _OF_PAYOUTS and payout is not None:
        return f"x:{payout}"
    raise tables.UnclearCell("the row names neither a payment nor an order")


def _brings(kind: str, gross: int | None, net: int | None) -> bool:
    """Whether a refund is positive: money that comes, where the signs of a file mean something."""
    return kind == "refund" and ((net if gross is None else gross) or 0) > 0


def _gives_more(kind: str, gross: int | None, fee: int | None, net: int | None) -> bool:
    """Whether a payment's fee is negative, and nothing else in the row says that it is meant so:
    many files write what costs as negative."""
    return kind == "payment" and fee is not None and fee < 0 and None in (gross, net)


def _row(kind: str, gross: int | None, fee: int | None, net: int | None) -> tuple[int, int, int]:
    if kind in _OF_PAYOUTS and gross is None and fee is None:
        fee = 0
    if gross is None:
        if net is None or fee is None:
            raise tables.UnclearCell("the row has no gross amount, and not both net and fee")
        gross = net + fee
    if kind == "payment" and gross < 0:
        raise tables.UnclearCell(
            "a payment is negative: money that goes back is of type refund or dispute"
        )
    if kind == "refund" and gross > 0:
        gross, net = -gross, None if net is None else -abs(net)
    if fee is None:
        fee = 0 if net is None else gross - net
    if net is None:
        net = gross - fee
    if gross - fee != net:
        raise tables.UnclearCell(
            "gross - fee is not net: one of the three is wrong or of another row"
        )
    if kind == "fee" and not fee:  # many files write it as money that left
        return 0, -gross, gross
    return gross, fee, net
