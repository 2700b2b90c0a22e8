"""Read a provider's statements. Outgoing money is negative, and gross - fee = net."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.finance.files import amounts, line_forms, shaping, tables
from app.finance.files.dates import Dates
from app.finance.files.mapping import Fields, FileMapping, Signs, SumOf
from app.providers.identifiers import phone_digits
from reconcile.canonical import canonical_json
from reconcile.instants import format_known
from reconcile.matching.books import OF_WALLET, STATEMENT_KINDS, TO_BANK
from reconcile.money import Money, to_json

Minor = Sequence[int | None]
DETAILS: Final = ("method", "scheme", "card_type", "card_country", "channel")
"""Columns on which fees can depend."""

MAX_DETAIL: Final = 100

_REFUNDS: Final = frozenset({"refund", "returned"})

_OF_ORIGINAL: Final = frozenset({"refund", "dispute", "returned", "release"})

_OF_PAYOUTS: Final = OF_WALLET | {"fee", "carried"}


TYPES: Final = (*STATEMENT_KINDS, "payment_reversal")
"""Types of rows."""


class StatementForm:
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
            "wallet",
            "movement",
            "balance",
            "recipient",
            *DETAILS,
        ),
        words={"type": TYPES},
        defaults=("type", "currency", "payout", "wallet"),
        amounts=("gross", "fee", "net", "balance"),
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
        "wallet",
        "refund",
        "details",
        "balance",
        "recipient",
    )

    def __init__(self, mapping: FileMapping, *, source: str, own_orders: bool = False) -> None:
        """Set up the form. With `own_orders`, orders are stored with the source's prefix, as in
        `@till:1001`."""
        self._source = source
        self._before = f"@{source}:" if own_orders else ""
        self._has_currency = "currency" in mapping.defaults
        self._fill_currency = line_forms.with_default(mapping.defaults.get("currency"))
        self._fill_wallet = line_forms.with_default(mapping.defaults.get("wallet"))
        self._fill_payout = line_forms.with_default(mapping.defaults.get("payout"))
        self._types = line_forms.Vocabulary("type", TYPES, mapping=mapping, default="payment")
        self._fee_signed = mapping.preset is not None or "fee" in mapping.made
        self._fee_added_up = isinstance(mapping.made.get("fee"), SumOf)
        # The amounts themselves show the direction of money, or else the types do.
        self._signed = mapping.signs in ("minus", "sum") or not mapping.made.keys().isdisjoint(
            ("gross", "net")
        )
        self._by_type = None if self._signed else mapping.signs
        self._refunds_signed = self._by_type is None and (self._signed or mapping.names("type"))
        self._country = mapping.phone_country
        self._amounts = amounts.Amounts(mapping.marks)
        self._dates = Dates(mapping.dates, mapping.zone, mapping.zones)

    def missing(self, places: Mapping[str, int]) -> Iterator[str]:
        if not {"payment_reference", "order_reference"} & places.keys():
            yield (
                "there is neither a column 'payment_reference' nor 'order_reference': name one in "
                'the heading, or in a mapping (payment_reference = "…" under '
                "[columns])"
            )
        if "gross" not in places and not {"fee", "net"} <= places.keys():
            yield (
                "there is neither a column 'gross' nor both 'net' and 'fee': name it in the "
                'heading, or in a mapping (gross = "…" under [columns])'
            )
        if "currency" not in places and not self._has_currency:
            yield f"{line_forms.NO_CURRENCY}, or with --currency KES"

    def values(self, cells: line_forms.Cells, attempt: line_forms.Attempt) -> line_forms.Columns:
        filled = self._fill_currency(cells["currency"])
        currencies = attempt("currency", amounts.read_currencies, filled)
        gross, fee, net = (
            attempt(name, self._amounts.optional, cells[name], currencies)
            for name in ("gross", "fee", "net")
        )
        types = attempt("type", self._types.read, cells["type"])
        if self._by_type is not None:
            gross, net = (
                attempt(name, _directed, types, minors, self._by_type)
                for name, minors in (("gross", gross), ("net", net))
            )
        attempt("type", self._check_signs, types, gross, net)
        kinds = attempt("type", _kinds, types, gross, net)
        own = attempt(
            "payment_reference", line_forms.read_optional_references, cells["payment_reference"]
        )
        originals = attempt(
            "original_payment", line_forms.read_optional_references, cells["original_payment"]
        )
        orders = attempt("order_reference", self._orders, cells["order_reference"])
        payouts = attempt(
            "payout", line_forms.read_optional_references, self._fill_payout(cells["payout"])
        )
        movements = attempt("movement", line_forms.read_optional_references, cells["movement"])
        payouts = attempt("payout", _transfers, kinds, payouts, movements, own, originals)
        payments = attempt("payment_reference", _payments, kinds, own, originals, movements)
        wallets = attempt(
            "wallet", line_forms.read_optional_references, self._fill_wallet(cells["wallet"])
        )
        attempt(line_forms.WHOLE_ROW, _of_wallets, kinds, wallets)
        balances = attempt("balance", self._amounts.optional, cells["balance"], currencies)
        details = attempt(line_forms.WHOLE_ROW, _details, [cells[name] for name in DETAILS])
        money = attempt(line_forms.WHOLE_ROW, self._complete, kinds, gross, fee, net)
        keys = attempt("order_reference", line_forms.optional_match_keys, orders)
        return (
            attempt(line_forms.WHOLE_ROW, _subjects, kinds, payments, keys, payouts),
            kinds,
            None if kinds is None else [self._source] * len(kinds),
            keys,
            payments,
            orders,
            currencies,
            *(money or (None, None, None)),
            attempt("settled_at", self._dates.read, cells["settled_at"]),
            payouts,
            wallets,
            attempt("movement", _refunds, kinds, movements, own, payments),
            details,
            balances,
            None if kinds is None else self._recipients(kinds, cells["recipient"]),
        )

    def _recipients(self, kinds: Sequence[str], cells: Sequence[str]) -> Sequence[str | None]:
        if "disbursement" not in kinds or not any(cells):
            return (None,) * len(kinds)
        return [
            phone_digits(number, self._country)
            if kind == "disbursement" and (number := cell.partition(" - ")[0].strip())
            else None
            for kind, cell in zip(kinds, cells, strict=True)
        ]

    def _check_signs(self, types: Sequence[str], gross: Minor, net: Minor) -> None:
        if types.count("payment") == len(types) and not any(map(_is_negative, gross)):
            return
        for kind, g, n in zip(types, gross, net, strict=True):
            minor = (n if g is None else g) or 0
            if kind == "payment" and minor < 0:
                raise tables.UnclearCell(
                    "is a payment, but its sign says that money left: use the type refund or "
                    "dispute for money that went back, and disbursement for what you paid "
                    "yourself"
                )
            if kind == "refund" and minor > 0 and self._refunds_signed:
                raise tables.UnclearCell(
                    "is a refund, but its sign says that money came in: use the type returned "
                    "for a refund that failed; if every refund is written without a minus "
                    'sign, set signs = "none" in the mapping'
                )
            if (kind == "returned" and minor < 0) or (kind == "payment_reversal" and minor > 0):
                way = "left" if minor < 0 else "came"
                raise tables.UnclearCell(f"is of type {kind}, but its sign says that money {way}")

    def _complete(
        self, kinds: Sequence[str], gross: Minor, fee: Minor, net: Minor
    ) -> tuple[list[int], list[int], list[int]]:
        if self._fee_added_up:  # a fee whose parts are all empty is zero
            fee = [0 if f is None and g is None else f for f, g in zip(fee, gross, strict=True)]
        given = list(zip(kinds, gross, fee, net, strict=True))
        # Many files write a cost as negative, so a payment's negative fee must be confirmed.
        if not self._fee_signed and any(
            kind == "payment" and f is not None and f < 0 and None in (g, n)
            for kind, g, f, n in given
        ):
            raise tables.UnclearCell(
                "the fee is negative, and its sign cannot be checked without both gross and net: "
                "write a fee that you pay as positive, or reverse the sign in a mapping (subtract "
                '= ["Fee"] under [amounts.fee])'
            )
        rows = [_complete_row(*row) for row in given]
        if not self._signed and any(
            kind == "fee" and row[1] < 0 and not written
            for kind, row, written in zip(kinds, rows, fee, strict=True)
        ):
            raise tables.UnclearCell(
                "the row is a fee with a positive amount, so it may be a cost or a fee given "
                "back: write a cost as a negative amount. Write a fee given back as a negative "
                "fee in the column 'fee', with a gross of 0. If the file already uses these "
                'signs, state that in a mapping (add = ["Gross"] under [amounts.gross])'
            )
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]

    def _orders(self, cells: Any) -> Any:
        found, before = line_forms.read_optional_references(cells), self._before
        if not before or found is None:
            return found
        return [
            each if each is None or each.startswith(before) else before + each for each in found
        ]

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        number, _, kind, _, _, payment, order, currency, gross, fee, net, *rest = row
        settled_at, payout, wallet, refund, details, balance, _ = rest
        gross, fee, net, balance = (
            None if each is None else to_json(Money(minor=each, currency=currency))
            for each in (gross, fee, net, balance)
        )
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
            "wallet": wallet,
            "balance": balance,
            "refund": refund,
            "details": None if details is None else json.loads(details),
        }


def _payments(
    kinds: Sequence[str],
    own: Sequence[str | None],
    originals: Sequence[str | None],
    movements: Sequence[str | None],
) -> Sequence[str | None]:
    if _PAIR_OF.keys().isdisjoint(kinds) and not any(originals):
        return own
    return [
        original
        if original is not None and kind in _OF_ORIGINAL
        else (movement or payment if kind in ("hold", "release") else payment)
        for kind, payment, original, movement in zip(kinds, own, originals, movements, strict=True)
    ]


def _of_wallets(kinds: Sequence[str], wallets: Sequence[str | None]) -> None:
    if OF_WALLET.isdisjoint(kinds):
        return
    for kind, wallet in zip(kinds, wallets, strict=True):
        if wallet is None and kind in OF_WALLET:
            raise tables.UnclearCell(
                f"the row is of type {kind}, but names no account at the provider: add a "
                'column wallet, or set wallet = "Balance" under [defaults] in a mapping'
            )


def _refunds(
    kinds: Sequence[str],
    stated: Sequence[str | None],
    own: Sequence[str | None],
    payments: Sequence[str | None],
) -> Sequence[str | None]:
    if _REFUNDS.isdisjoint(kinds):
        return (None,) * len(kinds)
    return [
        None
        if kind not in _REFUNDS
        else given or (name if kind == "refund" and name != payment else None)
        for kind, given, name, payment in zip(kinds, stated, own, payments, strict=True)
    ]


def _details(columns: Sequence[Sequence[str]]) -> Sequence[str | None]:
    if not any(map(any, columns)):
        return (None,) * len(columns[0])
    known: dict[tuple[str, ...], str | None] = {}
    found = []
    for row in zip(*columns, strict=True):
        if row not in known:
            stated = {
                name: cell.strip()[:MAX_DETAIL]
                for name, cell in zip(DETAILS, row, strict=True)
                if cell.strip()
            }
            known[row] = canonical_json(stated).decode() if stated else None
        found.append(known[row])
    return found


def _is_negative(minor: int | None) -> bool:
    return minor is not None and minor < 0


def _directed(types: Sequence[str], minors: Minor, signs: Signs) -> Minor:
    if signs == "none" and any(map(_is_negative, minors)):
        raise tables.UnclearCell(shaping.CONTRADICTS_NONE)
    found = list[int | None]()
    for kind, minor in zip(types, minors, strict=True):
        if minor and kind not in _OUTGOING and kind not in _INCOMING:
            raise tables.UnclearCell(
                f"is of type {kind}, which can be money in or money out, and no sign says which"
            )
        found.append(minor and (-abs(minor) if kind in _OUTGOING else abs(minor)))
    return found


_OUTGOING: Final = frozenset(
    {"refund", "dispute", "fee", "withdrawal", "hold", "disbursement", "payment_reversal"}
)
_INCOMING: Final = frozenset({"payment", "returned", "withdrawal_failed", "deposit", "release"})


def _kinds(types: Sequence[str], gross: Minor, net: Minor) -> Sequence[str]:
    kinds = types
    if "payment_reversal" in kinds:
        kinds = ["payment" if each == "payment_reversal" else each for each in kinds]
    if _PAIR_OF.keys().isdisjoint(kinds):
        return kinds
    return [
        kind
        if kind not in _PAIR_OF or not (minor := n if g is None else g)
        else _PAIR_OF[kind][minor > 0]
        for kind, g, n in zip(kinds, gross, net, strict=True)
    ]


_OPPOSITE_KINDS: Final = (("withdrawal", "withdrawal_failed"), ("hold", "release"))
_PAIR_OF: Final = {kind: pair for pair in _OPPOSITE_KINDS for kind in pair}


def _transfers(
    kinds: Sequence[str],
    payouts: Sequence[str | None],
    movements: Sequence[str | None],
    own: Sequence[str | None],
    originals: Sequence[str | None],
) -> Sequence[str | None]:
    if TO_BANK.isdisjoint(kinds):
        return payouts
    return [
        payout
        if kind not in TO_BANK
        else payout or movement or (kind != "withdrawal" and original) or name
        for kind, payout, movement, name, original in zip(
            kinds, payouts, movements, own, originals, strict=True
        )
    ]


def _subjects(
    kinds: Sequence[str],
    payments: Sequence[str | None],
    keys: Sequence[str | None],
    payouts: Sequence[str | None],
) -> list[str]:
    if all(payments):
        return [f"p:{payment}" for payment in payments]
    subjects = []
    for kind, payment, key, payout in zip(kinds, payments, keys, payouts, strict=True):
        if payment is not None:
            subjects.append(f"p:{payment}")
        elif key is not None:
            subjects.append(f"o:{key}")
        elif kind in _OF_PAYOUTS and payout is not None:
            subjects.append(f"x:{payout}")
        else:
            raise tables.UnclearCell("the row names neither a payment nor an order")
    return subjects


def _complete_row(
    kind: str, gross: int | None, fee: int | None, net: int | None
) -> tuple[int, int, int]:
    if kind in _OF_PAYOUTS and gross is None and fee is None:
        fee = 0
    if gross is None:
        if net is None or fee is None:
            raise tables.UnclearCell("the row has neither a gross amount nor both net and fee")
        gross = net + fee
    if kind == "refund" and gross > 0:
        gross, net = -gross, None if net is None else -abs(net)
    if fee is None:
        fee = 0 if net is None else gross - net
    if net is None:
        net = gross - fee
    if gross - fee != net:
        raise tables.UnclearCell(
            "gross - fee is not net: one of the three is wrong or belongs to another row"
        )
    if kind == "fee" and not fee:  # many files write it as outgoing money
        return 0, -gross, gross
    return gross, fee, net
