"""Money that arrives in another currency than it left in: which it is, and at which rate.

Leaves out: what becomes of it. The rate is what the two sums imply; a rule may say which one was
expected. A payment is exchanged by its statement only where nothing else is said of it there: one
capture, and lines of it alone, all in one other currency. So is what went back of a payment: as
many movements as lines, of its refunds and reversals or of its lost disputes; of refunds that were
only told as a sum, fewer lines may be of several of its rises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind
from reconcile.matching.rules import ExpectedRate
from reconcile.money import Money, exponent_of

MICROS: Final = 1_000_000
"""A rate is so many millionths of one major unit for one major unit."""


def rate_for(rates: Iterable[ExpectedRate], currency: str, into: str) -> ExpectedRate | None:
    """The rule for two currencies, if there is one."""
    return next((each for each in rates if (each.currency, each.into) == (currency, into)), None)


def exchanged(amount: Money, rate: ExpectedRate) -> int:
    """Minor units of the other currency at this rate, rounded half away from zero."""
    above = abs(amount.minor) * rate.micros * 10 ** exponent_of(rate.into)
    below = MICROS * 10 ** exponent_of(amount.currency)
    found = (2 * above + below) // (2 * below)
    return int(found if amount.minor >= 0 else -found)


def expected_of(came: Money, arrived: Money, rates: Iterable[ExpectedRate]) -> tuple[Money, bool]:
    """What should have arrived, and whether what did is as near to it as the rule tolerates. By no
    rule it is what arrived."""
    rate = rate_for(rates, came.currency, arrived.currency)
    if rate is None:
        return arrived, True
    due = exchanged(came, rate)
    most = abs(due) * rate.tolerance_per_million // 1_000_000
    return Money(minor=due, currency=arrived.currency), abs(due - arrived.minor) <= most


def implied_rate(came: Money, arrived: Money) -> str:
    """What one major unit of the one came to in the other, with six decimals. came: not 0."""
    above = abs(arrived.minor) * MICROS * 10 ** exponent_of(came.currency)
    below = abs(came.minor) * 10 ** exponent_of(arrived.currency)
    micros = (2 * above + below) // (2 * below)
    return f"{micros // MICROS}.{micros % MICROS:06}"


# --- payments that a statement settles in another currency ----------------------------------------


class CaptureLike(Protocol):
    """A capture: of the ledger, or as a match looks at it."""

    @property
    def source(self) -> str: ...
    @property
    def payment(self) -> str: ...
    @property
    def minor(self) -> int: ...
    @property
    def currency(self) -> str: ...


class LineLike(Protocol):
    """A statement line, as a value or as a row."""

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
    """What went back once; of either sign."""

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
    """The captures of one order that its statement lines settle in another currency, each with its
    lines in the order of their ids: a break and the journal name the same first."""
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
    """The same number in another currency is none: somebody wrote the wrong currency. Nor is what
    another source says, also where `Terms.settles` would let it share a statement: of the amount
    nothing agrees, so that the reference alone would have to, and it may be another's by chance.
    For nothing there is no rate."""
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


# --- what went back, which a statement takes in another currency ----------------------------------


def exchanges_back(
    returns: Sequence[AnyReturn], lines: Iterable[AnyLine]
) -> Iterator[tuple[list[AnyReturn], list[AnyLine]]]:
    """What went back of each payment of one order that its lines take in another currency, with
    them, in the order of their ids. What went back after the last of them is not of them."""
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
    """Whether they are the rises of one sum: each rests on what stated the one before. Where the
    provider divides them is its own matter, so that its statement may have them in one."""
    own = frozenset[str]()
    before = frozenset[str]()
    for each in sorted(parts, key=lambda each: each.at):
        cites = frozenset(each.cites)
        # A reversal rests on refunds, too: it takes what they left.
        if each.kind != "refunded" or not own <= cites:
            return False
        own, before = cites - before, cites
        if not own:
            return False
    return True


def _is_exchange_back(parts: Sequence[ReturnLike], lines: Sequence[LineLike]) -> bool:
    """As `_is_exchange`; a refund takes, whichever sign its file gives it, a dispute by its own."""
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
