"""Recognize payments settled in another currency, with exchange rates."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind
from reconcile.matching.rules import ExpectedRate
from reconcile.money import Money, exponent_of

MICROS: Final = 1_000_000
"""Multiplier of exchange rates: 1250000 stands for the rate 1.25."""


def exchanged(amount: Money, rate: ExpectedRate) -> int:
    """Convert an amount into the other currency, rounded half away from zero."""
    above = abs(amount.minor) * rate.micros * 10 ** exponent_of(rate.into)
    below = MICROS * 10 ** exponent_of(amount.currency)
    found = (2 * above + below) // (2 * below)
    return int(found if amount.minor >= 0 else -found)


def expected_of(came: Money, arrived: Money, rates: Iterable[ExpectedRate]) -> tuple[Money, bool]:
    """Return the amount that should arrive, and whether the arrived amount fits.

    Without a rule for the currencies, every amount fits.
    """
    pair = (came.currency, arrived.currency)
    rate = next((each for each in rates if (each.currency, each.into) == pair), None)
    if rate is None:
        return arrived, True
    due = exchanged(came, rate)
    most = abs(due) * rate.tolerance_per_million // 1_000_000
    return Money(minor=due, currency=arrived.currency), abs(due - arrived.minor) <= most


def implied_rate(came: Money, arrived: Money) -> str:
    """Return the price of one unit of `came`, with six decimals.

    The amount `came` must not be 0.
    """
    above = abs(arrived.minor) * MICROS * 10 ** exponent_of(came.currency)
    below = abs(came.minor) * 10 ** exponent_of(arrived.currency)
    micros = (2 * above + below) // (2 * below)
    return f"{micros // MICROS}.{micros % MICROS:06}"


class CaptureLike(Protocol):
    """Object with the fields of a capture, from a ledger line or from a match."""

    @property
    def source(self) -> str: ...
    @property
    def payment(self) -> str: ...
    @property
    def minor(self) -> int: ...
    @property
    def currency(self) -> str: ...


class LineLike(Protocol):
    """Object with the fields of a statement line: a parsed value or a stored row."""

    @property
    def line_id(self) -> str: ...
    @property
    def payment(self) -> str | None: ...
    @property
    def kind(self) -> StatementKind: ...
    @property
    def source(self) -> str: ...
    @property
    def currency(self) -> str: ...
    @property
    def gross(self) -> int: ...
    @property
    def settled_at(self) -> Instant | None: ...


class ReturnLike(CaptureLike, Protocol):
    """Amount that went back to the customer, of either sign."""

    @property
    def kind(self) -> EntryKind: ...
    @property
    def at(self) -> Instant: ...
    @property
    def cites(self) -> tuple[str, ...]: ...


AnyCapture = TypeVar("AnyCapture", bound=CaptureLike)
AnyReturn = TypeVar("AnyReturn", bound=ReturnLike)
AnyLine = TypeVar("AnyLine", bound=LineLike)


def exchanges(
    captures: Sequence[AnyCapture], lines: Iterable[AnyLine]
) -> Iterator[tuple[AnyCapture, list[AnyLine]]]:
    """Yield captures settled in another currency, with their lines."""
    currencies = {each.currency for each in captures}
    strange: dict[str, list[AnyLine]] = defaultdict(list)
    others = False
    for line in lines:
        if line.kind == "payment" and line.payment is not None:
            strange[line.payment].append(line)
            others = others or line.currency not in currencies or len(currencies) > 1
    if not others:
        return
    for payment in sorted(strange):
        of_it = [each for each in captures if each.payment == payment]
        if len(of_it) == 1 and _is_exchange(of_it[0], strange[payment]):
            yield of_it[0], sorted(strange[payment], key=lambda line: line.line_id)


def _is_exchange(came: CaptureLike, lines: Sequence[LineLike]) -> bool:
    (currency, *more) = sorted({each.currency for each in lines})
    if more or currency == came.currency or not came.minor:
        return False
    if not all(
        each.gross > 0 and each.settled_at is not None and each.source in ("", came.source)
        for each in lines
    ):
        return False
    arrived = sum([each.gross for each in lines]) * 10 ** exponent_of(came.currency)
    return bool(arrived != came.minor * 10 ** exponent_of(currency))


def exchanges_back(
    returns: Sequence[AnyReturn], lines: Iterable[AnyLine]
) -> Iterator[tuple[list[AnyReturn], list[AnyLine]]]:
    """Yield returned money settled in another currency, with its lines."""
    by_payment: dict[tuple[str, bool], list[AnyLine]] = defaultdict(list)
    for line in lines:
        if line.kind in ("refund", "dispute") and line.payment is not None:
            by_payment[line.payment, line.kind == "dispute"].append(line)
    for payment, disputed in sorted(by_payment):
        of_it = sorted(by_payment[payment, disputed], key=lambda line: line.line_id)
        dates = [line.settled_at for line in of_it if line.settled_at is not None]
        parts = [
            each
            for each in returns
            if each.payment == payment
            and (each.kind == "dispute_lost") == disputed
            and each.at <= max(dates, default=each.at)
        ]
        several = len(parts) == len(of_it) or (len(parts) > len(of_it) and _are_rises(parts))
        if several and len(of_it) == len(dates) and _is_exchange_back(parts, of_it):
            yield parts, of_it


def _are_rises(parts: Sequence[ReturnLike]) -> bool:
    own = frozenset[str]()
    before = frozenset[str]()
    for each in sorted(parts, key=lambda each: each.at):
        cites = frozenset(each.cites)
        # A reversal also rests on refunds, because it takes the rest that they left.
        if each.kind != "refunded" or not own <= cites:
            return False
        own, before = cites - before, cites
        if not own:
            return False
    return True


def _is_exchange_back(parts: Sequence[ReturnLike], lines: Sequence[LineLike]) -> bool:
    ((source, came), *others) = sorted({(each.source, each.currency) for each in parts})
    (currency, *more) = sorted({each.currency for each in lines})
    went = sum([abs(each.minor) for each in parts])
    if others or more or currency == came or not went:
        return False
    if not all(
        each.gross and (each.kind == "refund" or each.gross < 0) and each.source in ("", source)
        for each in lines
    ):
        return False
    taken = sum([abs(each.gross) for each in lines]) * 10 ** exponent_of(came)
    return bool(taken != went * 10 ** exponent_of(currency))
