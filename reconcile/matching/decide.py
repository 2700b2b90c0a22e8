"""One order's money against what the book says of it: where both stand, and what differs.

Leaves out: statements, and the search for partners. The decision table is in the README; each
step here is one of its rows, and the first that has something to say decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from reconcile.canonical import fingerprint
from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.ledger import Facts
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.breaks import Break, BreakCause
from reconcile.matching.control import Bucket
from reconcile.matching.funds import Funds
from reconcile.matching.rows import Lines
from reconcile.matching.rules import Terms, factor_between
from reconcile.money import Money
from reconcile.values import frozen

# --- what a matching reports ----------------------------------------------------------------------


MatchKind = Literal[
    "by_payment", "by_group", "by_tolerance", "by_date_window", "by_hand", "by_exchange"
]
MATCH_KINDS: Final[tuple[MatchKind, ...]] = get_args(MatchKind)
"""How lines came together whose match is not plain."""


@frozen
class Match:
    """Lines that belong together though reference or amount alone does not say so.

    order   the order's reference, where a ledger is part of it
    lines   ids of the book, statement and bank lines and of the payouts that it claims, sorted
    money   what was captured, or paid out, or where no ledger is part of it the sum of the lines
    facts   what was different and was let pass: `difference`, `rate`, …
    """

    kind: MatchKind
    order: str | None
    payment: str | None
    lines: tuple[str, ...]
    money: Money
    facts: Facts = ()

    @property
    def identity(self) -> str:
        """The same for the same match in every run: `mat_` and 20 hex digits."""
        digest = fingerprint([self.kind, self.order, self.payment, list(self.lines)])
        return "mat_" + digest.removeprefix("sha256:")[:20]


Decision = Match | Break


# --- one order's money against what the book says of it -------------------------------------------


_AMOUNTS: Final[frozenset[FindingCode]] = frozenset(
    {"amount_mismatch", "amount_off_by_minor_unit", "currency_mismatch"}
)
_CONTRADICTIONS: Final[frozenset[FindingCode]] = frozenset(
    {"same_id_different_body", "conflicting_amounts"}
)


@dataclass(slots=True)
class Verdict:
    """Where the order and its book lines stand, and what there is to report of them."""

    orders: Bucket
    lines: Bucket
    decisions: tuple[Decision, ...] = ()


@dataclass(slots=True)
class Pair:
    """An order and the lines it is compared with. `kind`: how they came together if not plainly."""

    funds: Funds
    lines: Lines
    terms: Terms
    kind: MatchKind | None = None


# --- without a book line -------------------------------------------------------------------------


def decide_alone(funds: Funds, terms: Terms) -> Verdict:
    """An order that no book line was found for."""
    if not funds.moved:
        return Verdict("nothing_due", "nothing_due")
    if funds.unresolved:
        only = _one(_unresolved(funds, None, terms))
        return replace(only, decisions=_with_beside(only.decisions, funds))
    found = _missing(funds, terms)
    decisions = (*_apart(funds), *([found] if isinstance(found, Break) else []))
    bucket = decisions[0].cause if decisions else found
    assert not isinstance(bucket, Break)
    return Verdict(bucket, bucket, _with_beside(decisions, funds))


def _missing(funds: Funds, terms: Terms) -> Break | Bucket:
    kept = funds.kept
    if kept <= 0:
        return "returned"
    if funds.late and not funds.over:
        return _late(funds, None)
    waits = terms.waits_for_book(funds.at, opened_at=min([row.opened_at for row in funds.rows]))
    if waits is not None:
        return waits
    facts: Facts = (("captured", funds.money(kept)),)
    return _break("paid_not_in_book", funds, None, money=kept, since=funds.at, facts=facts)


def decide_unpaid(lines: Lines, terms: Terms) -> Verdict:
    """Book lines that no money was found for."""
    if not lines.claims or not (lines.charge or lines.credit):
        return Verdict("nothing_due", "nothing_due")
    waits = terms.waits_for_money(lines.placed_at)
    if waits is not None:
        return Verdict(waits, waits)
    cause: BreakCause = "book_paid_not_received" if lines.charge else "refund_not_received"
    found = Break(
        cause=cause,
        order=lines.reference,
        payment=None,
        subject=lines.subject,
        money=lines.money,
        since=terms.as_of if lines.placed_at is None else lines.placed_at,
        cites=lines.ids,
        facts=(("booked", lines.money), ("status", lines.status)),
    )
    return _one(found)


# --- with book lines -----------------------------------------------------------------------------


def decide(pair: Pair) -> Verdict:
    """An order with money, and its book lines."""
    for step in _STEPS:
        found = step(pair)
        if found is not None:
            break
    else:
        found = _agreed(pair)
    apart = tuple(_apart(pair.funds))
    if apart and not pair.funds.unresolved:
        found = Verdict(apart[0].cause, found.lines, (*apart, *found.decisions))
    if not pair.funds.beside:
        return found
    return replace(found, decisions=_with_beside(found.decisions, pair.funds))


def _with_beside(decisions: tuple[Decision, ...], funds: Funds) -> tuple[Decision, ...]:
    """What lines without a movement leave to be settled stands in the first break about doubt, or
    in the first there is."""
    breaks = [each for each in decisions if isinstance(each, Break)]
    doubts = [each for each in breaks if each.cause in ("unresolved", "payment_in_doubt")]
    if not funds.beside or not breaks:
        return decisions
    first = (doubts or breaks)[0]
    return tuple(
        [replace(first, left=funds.beside) if each is first else each for each in decisions]
    )


def amounts_fit(pair: Pair) -> bool:
    """Whether what was captured, or what is left of it, is what the book says, by the rules."""
    funds, lines = pair.funds, pair.lines
    if lines.currencies != {funds.currency} or funds.others:
        return False
    return _net_fits(pair) or pair.terms.within(_difference(pair), funds.currency)


def _came(pair: Pair) -> int:
    """What is compared with the book: all of it where the book has it, else without what came
    beyond the price."""
    return pair.funds.captured if _has_all(pair) else pair.funds.worth


def _went_back(pair: Pair) -> int:
    return pair.funds.refunded if _has_all(pair) else pair.funds.given_back


def _has_all(pair: Pair) -> bool:
    return pair.funds.captured == pair.lines.charge


def _difference(pair: Pair) -> int:
    return _came(pair) - pair.lines.charge


def _net_fits(pair: Pair) -> bool:
    return _came(pair) - _went_back(pair) == pair.lines.charge - pair.lines.credit


def _contradicted(pair: Pair) -> Verdict | None:
    """Events contradict each other: no amount of theirs can be compared."""
    funds = pair.funds
    if not funds.unresolved:
        return None
    odd_amounts = funds.captures and funds.findings & _AMOUNTS and not funds.in_doubt
    if odd_amounts and not funds.findings & _CONTRADICTIONS:
        return None
    return _one(_unresolved(funds, pair.lines, pair.terms))


def _currency(pair: Pair) -> Verdict | None:
    funds, lines = pair.funds, pair.lines
    if lines.currencies == {funds.currency} and not funds.others:
        return None
    moved = tuple(
        ("captured", Money(minor=each.minor, currency=each.currency)) for each in funds.captures
    )
    facts: Facts = (*moved, ("booked", lines.money), ("against", "book"))
    return _one(_differs("currency_differs", pair, minor=funds.captured, facts=facts))


def _given_back(pair: Pair) -> Verdict | None:
    """All of it went back, and the book claims nothing."""
    if pair.funds.kept or pair.funds.others or pair.lines.claims or pair.funds.unresolved:
        return None
    return Verdict("returned", "returned")


def _amount(pair: Pair) -> Verdict | None:
    funds, lines = pair.funds, pair.lines
    if amounts_fit(pair):
        return None
    captured = _came(pair)
    facts: Facts = (
        ("captured", funds.money(captured)),
        ("booked", lines.money),
        ("difference", funds.money(abs(_difference(pair)))),
        ("against", "book"),
    )
    factor = factor_between(captured, lines.charge, funds.currency)
    minor = abs(_difference(pair))
    if factor is None:
        return _one(_differs("amount_differs", pair, minor=minor, facts=facts))
    facts = (*facts, ("factor", factor))
    return _one(_differs("off_by_minor_unit", pair, minor=minor, facts=facts))


def _still_unresolved(pair: Pair) -> Verdict | None:
    """The book agrees with the money, and the ledger itself does not settle."""
    return _one(_unresolved(pair.funds, pair.lines, pair.terms)) if pair.funds.unresolved else None


def _status(pair: Pair) -> Verdict | None:
    funds, lines, terms = pair.funds, pair.lines, pair.terms
    if lines.claims or funds.kept <= 0:
        return None
    if funds.late and not funds.over:
        return _one(_late(funds, lines))
    if lines.status == "nothing":
        return None
    if terms.book_lags(funds.at):
        return Verdict("awaiting_book", "awaiting_book")
    kept = funds.kept
    facts: Facts = (("captured", funds.money(kept)), ("status", lines.status))
    return _one(_differs("book_unpaid_but_received", pair, minor=kept, facts=facts))


def _refunds(pair: Pair) -> Verdict | None:
    funds, lines, terms = pair.funds, pair.lines, pair.terms
    if not lines.claims or _net_fits(pair):
        return None
    back = _went_back(pair)
    more = back - lines.credit
    facts: Facts = (
        ("refunded", funds.money(back)),
        ("booked_refund", funds.money(lines.credit)),
    )
    if more > 0:
        if terms.book_lags(funds.returned_at):
            return Verdict("awaiting_book", "awaiting_book")
        facts += _how_it_went(funds)
        return _one(_differs("refund_not_in_book", pair, minor=more, facts=facts))
    if more < 0:
        stated_at = max(_stated_at(pair), lines.refunded_at or EARLIEST)
        if stated_at + terms.rules.refund_margin > terms.as_of:
            return Verdict("awaiting_refund", "awaiting_refund")
        return _one(_differs("refund_not_received", pair, minor=-more, facts=facts))
    return None


def _how_it_went(funds: Funds) -> Facts:
    """In which way all of it went back; nothing where it went in several."""
    ways = {each.kind for each in funds.returns if each.currency == funds.currency}
    return (("how", ways.pop()),) if len(ways) == 1 else ()


_STEPS: Final[tuple[Callable[[Pair], Verdict | None], ...]] = (
    _contradicted,
    _given_back,
    _currency,
    _amount,
    _still_unresolved,
    _status,
    _refunds,
)


def _agreed(pair: Pair) -> Verdict:
    kind = pair.kind or _kind(pair)
    if kind is None:
        return Verdict("by_reference", "by_reference")
    funds, lines = pair.funds, pair.lines
    difference = 0 if _net_fits(pair) else _difference(pair)
    facts: Facts = (("difference", funds.money(difference)),) if difference else ()
    match = Match(
        kind=kind,
        order=funds.order,
        payment=None,
        lines=tuple(sorted(lines.ids)),
        money=funds.money(funds.captured),
        facts=(*facts, ("orders", len(funds.rows)), ("payments", len(funds.captures))),
    )
    return Verdict(kind, kind, (match,))


def _kind(pair: Pair) -> MatchKind | None:
    if not _net_fits(pair) and _difference(pair):
        return "by_tolerance"
    funds = pair.funds
    aside = {(each.source, each.payment) for each in funds.doubted}
    own = [e for e in funds.captures if e.currency == funds.currency and e[2:4] not in aside]
    several = len(pair.lines.rows) > 1 or len(own) > 1 + bool(funds.over)
    return "by_group" if several else None


# --- breaks --------------------------------------------------------------------------------------


def _one(found: Break) -> Verdict:
    return Verdict(found.cause, found.cause, (found,))


def _stated_at(pair: Pair) -> Instant:
    """The latest date among what disagrees: the money's and the book's."""
    return max(pair.funds.returned_at, pair.lines.placed_at or EARLIEST)


def _differs(cause: BreakCause, pair: Pair, *, minor: int, facts: Facts) -> Break:
    return _break(cause, pair.funds, pair.lines, money=minor, since=_stated_at(pair), facts=facts)


def _unresolved(funds: Funds, lines: Lines | None, terms: Terms) -> Break:
    moved: Facts = tuple(
        [("captured", Money(minor=each.minor, currency=each.currency)) for each in funds.captures]
    )
    doubt: Facts = (("in_doubt", funds.money(funds.in_doubt)),) if funds.in_doubt else ()
    booked = terms.rules.currency if lines is None else lines.currency
    return Break(
        cause="unresolved",
        order=funds.order,
        payment=None,
        subject=None,
        money=Money(minor=funds.at_stake, currency=funds.currency or booked),
        since=funds.at,
        cites=funds.cites + (() if lines is None else lines.ids),
        facts=(*(moved or (("captured", None),)), *doubt),
    )


def _late(funds: Funds, lines: Lines | None) -> Break:
    why = "canceled" if "paid_after_cancel" in funds.findings else "given_up"
    facts: Facts = (("captured", funds.money(funds.kept)), ("why", why))
    return _break("late_money", funds, lines, money=funds.kept, since=funds.at, facts=facts)


def _apart(funds: Funds) -> Iterator[Break]:
    """What is reported apart from the price: owed back, and in doubt. What is not in the order's
    currency is reported by its own."""
    if funds.unresolved:
        return
    for money in funds.owed:
        own = money.currency == funds.currency
        twice = own and "paid_twice" in funds.findings
        facts: Facts = (("captured", funds.money(funds.captured)), ("owed", money))
        cause: BreakCause = "paid_twice" if twice else "overpaid"
        yield replace(
            _break(cause, funds, None, money=0, since=funds.at, facts=facts),
            money=money,
            subject=None if own else money.currency,
        )
    cites = [cite for each in funds.doubted for cite in each.cites]
    for money in funds.at_doubt:
        facts = (("at_stake", money),)
        yield replace(
            _break("payment_in_doubt", funds, None, money=0, since=funds.at, facts=facts),
            money=money,
            subject=None if money.currency == funds.currency else money.currency,
            cites=tuple(dict.fromkeys(cites)) or funds.cites,
        )


def _break(
    cause: BreakCause,
    funds: Funds,
    lines: Lines | None,
    *,
    money: int,
    since: Instant,
    facts: Facts,
) -> Break:
    return Break(
        cause=cause,
        order=funds.order,
        payment=None,
        subject=None,
        money=funds.money(money),
        since=since,
        cites=funds.cites + (() if lines is None else lines.ids),
        facts=facts,
    )
