"""Compare one order's money with its book lines, and decide on buckets and breaks.

Each step is a row of the README's decision table. The first verdict decides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from reconcile.canonical import fingerprint
from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.ledger import Facts
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.breaks import Break
from reconcile.matching.causes import BreakCause
from reconcile.matching.control import Bucket
from reconcile.matching.funds import Funds
from reconcile.matching.rows import Lines
from reconcile.matching.rules import Terms, factor_between
from reconcile.money import Money

MatchKind = Literal[
    "by_payment",
    "by_group",
    "by_tolerance",
    "by_date_window",
    "by_hand",
    "by_exchange",
    "by_tender",
]
MATCH_KINDS: Final[tuple[MatchKind, ...]] = get_args(MatchKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Rows that belong together, although their references or their amounts differ."""

    kind: MatchKind
    order: str | None = None
    """The order's reference, if a ledger is part of the match."""
    payment: str | None = None
    lines: tuple[str, ...]
    """Sorted ids of the matched book, statement and bank lines and of payouts."""
    money: Money
    """Amount captured or paid out. Without a ledger, the sum of the lines."""
    facts: Facts = ()
    """Tolerated differences: `difference`, `rate`, …."""

    @property
    def identity(self) -> str:
        """Return the permanent id of the match."""
        digest = fingerprint([self.kind, self.order, self.payment, list(self.lines)])
        return "mat_" + digest.removeprefix("sha256:")[:20]


Decision = Match | Break

_AMOUNTS: Final[frozenset[FindingCode]] = frozenset(
    {"amount_mismatch", "amount_off_by_minor_unit", "currency_mismatch"}
)
_CONTRADICTIONS: Final[frozenset[FindingCode]] = frozenset(
    {"same_id_different_body", "conflicting_amounts"}
)


@dataclass(slots=True)
class Verdict:
    """Result of a comparison: buckets, matches and breaks."""

    orders: Bucket
    lines: Bucket
    decisions: tuple[Decision, ...] = ()


@dataclass(slots=True)
class Pair:
    """Order, and the book lines for comparison."""

    funds: Funds
    lines: Lines
    terms: Terms
    kind: MatchKind | None = None
    """Kind of match between the order and the lines. None for equal references."""

    @property
    def tendered(self) -> int:
        """Return the book's amount that no provider received."""
        tendered, apart = self.funds.tendered, self.lines.charge - self.funds.worth
        whole = tendered and self.lines.charge != self.funds.captured
        if whole and abs(apart - tendered) < abs(apart):
            return tendered
        return apart if self.by_method else 0

    @property
    def by_method(self) -> bool:
        """Check whether the book names another method for the rest."""
        funds, lines = self.funds, self.lines
        return (
            not funds.tendered
            and 0 < funds.worth < lines.charge
            and self.terms.partly_outside(lines.rows)
        )

    @property
    def charge(self) -> int:
        """Return the amount charged by the book lines through providers."""
        return self.lines.charge - self.tendered

    @property
    def credit(self) -> int:
        """Return the amount that went back according to the book."""
        return min(self.lines.credit, self.charge) if self.tendered else self.lines.credit


def decide_alone(funds: Funds, terms: Terms) -> Verdict:
    """Decide the buckets and breaks of an order that has no book line."""
    if not funds.moved:
        return Verdict("nothing_due", "nothing_due")
    if funds.unresolved:
        only = _one(_unresolved(funds, None, terms))
        return replace(only, decisions=_with_beside(only.decisions, funds))
    decisions, kept = list(_apart(funds)), funds.kept
    opened = min([row.opened_at for row in funds.rows])
    bucket: Bucket = "returned"
    if kept > 0 and funds.late and not funds.over:
        decisions.append(_late(funds, None))
    elif kept > 0 and (waits := terms.waits_for_book(funds.at, opened_at=opened)) is not None:
        bucket = waits
    elif kept > 0:
        facts: Facts = (("captured", funds.money(kept)),)
        cause: BreakCause = "paid_not_in_book"
        decisions.append(_break(cause, funds, None, money=kept, since=funds.at, facts=facts))
    bucket = decisions[0].cause if decisions else bucket
    return Verdict(bucket, bucket, _with_beside(tuple(decisions), funds))


def decide_unpaid(lines: Lines, terms: Terms, *, tendered: int = 0) -> Verdict:
    """Decide the buckets and breaks of unpaid book lines."""
    if lines.claims and terms.outside_providers(lines.rows):
        return Verdict("outside_providers", "outside_providers")
    left = max(0, lines.charge - tendered)
    if not lines.claims or not (left or (lines.credit and not tendered)):
        return Verdict("nothing_due", "nothing_due")
    waits = terms.waits_for_money(lines.placed_at)
    if waits is not None:
        return Verdict(waits, waits)
    cause: BreakCause = "book_paid_not_received" if lines.charge else "refund_not_received"
    otherwise: Facts = ()
    if tendered:
        otherwise = (("tendered", Money(minor=tendered, currency=lines.currency)),)
    found = Break(
        cause=cause,
        order=lines.reference,
        subject=lines.subject,
        money=Money(minor=left or lines.credit, currency=lines.currency),
        since=terms.as_of if lines.placed_at is None else lines.placed_at,
        cites=lines.ids,
        facts=(("booked", lines.money), ("status", lines.status), *otherwise),
    )
    return _one(found)


def decide(pair: Pair) -> Verdict:
    """Decide the verdict on an order with book lines."""
    for step in _STEPS:
        found = step(pair)
        if found is not None:
            break
    else:
        found = _agreed(pair)
    apart = tuple(_apart(pair.funds))
    if apart and not pair.funds.unresolved:
        found = Verdict(apart[0].cause, found.lines, (*apart, *found.decisions))
    return replace(found, decisions=_with_beside(found.decisions, pair.funds))


def _with_beside(decisions: tuple[Decision, ...], funds: Funds) -> tuple[Decision, ...]:
    breaks = [each for each in decisions if isinstance(each, Break)]
    doubts = [each for each in breaks if each.cause in ("unresolved", "payment_in_doubt")]
    if not funds.beside or not breaks:
        return decisions
    first = (doubts or breaks)[0]
    return tuple(
        [replace(first, left=funds.beside) if each is first else each for each in decisions]
    )


def amounts_fit(pair: Pair) -> bool:
    """Check whether the captured amount fits the book's amount."""
    funds, lines = pair.funds, pair.lines
    if lines.currencies != {funds.currency} or funds.others:
        return False
    return _net_fits(pair) or pair.terms.within(_difference(pair), funds.currency)


def _compared(pair: Pair) -> tuple[int, int]:
    funds = pair.funds
    if funds.captured == pair.charge:
        return funds.captured, funds.refunded
    return funds.worth, funds.given_back


def _difference(pair: Pair) -> int:
    return _compared(pair)[0] - pair.charge


def _net_fits(pair: Pair) -> bool:
    came, back = _compared(pair)
    return came - back == pair.charge - pair.credit


def _contradicted(pair: Pair) -> Verdict | None:
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
    if pair.funds.kept or pair.funds.others or pair.lines.claims or pair.funds.unresolved:
        return None
    return Verdict("returned", "returned")


def _amount(pair: Pair) -> Verdict | None:
    funds, lines = pair.funds, pair.lines
    if amounts_fit(pair):
        return None
    captured = _compared(pair)[0]
    facts: Facts = (
        ("captured", funds.money(captured)),
        ("booked", lines.money),
        ("difference", funds.money(abs(_difference(pair)))),
        ("against", "book"),
    )
    if pair.tendered:
        facts = (*facts, ("tendered", funds.money(pair.tendered)))
    factor = factor_between(captured, pair.charge, funds.currency)
    minor = abs(_difference(pair))
    if factor is None:
        return _one(_differs("amount_differs", pair, minor=minor, facts=facts))
    facts = (*facts, ("factor", factor))
    return _one(_differs("off_by_minor_unit", pair, minor=minor, facts=facts))


def _still_unresolved(pair: Pair) -> Verdict | None:
    if not pair.funds.unresolved or pair.by_method:
        return None
    return _one(_unresolved(pair.funds, pair.lines, pair.terms))


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
    back = _compared(pair)[1]
    more = back - pair.credit
    facts: Facts = (
        ("refunded", funds.money(back)),
        ("booked_refund", funds.money(lines.credit)),
    )
    if pair.tendered:
        facts = (*facts, ("tendered", funds.money(pair.tendered)))
    if more > 0:
        if terms.book_lags(funds.returned_at):
            return Verdict("awaiting_book", "awaiting_book")
        ways = {each.kind for each in funds.returns if each.currency == funds.currency}
        facts += (("how", ways.pop()),) if len(ways) == 1 else ()
        return _one(_differs("refund_not_in_book", pair, minor=more, facts=facts))
    if more < 0:
        stated_at = max(_stated_at(pair), lines.refunded_at or EARLIEST)
        if stated_at + terms.rules.refund_margin > terms.as_of:
            return Verdict("awaiting_refund", "awaiting_refund")
        if terms.lost_in(funds.at, stated_at + terms.rules.refund_margin) is not None:
            return Verdict("not_covered", "not_covered")
        return _one(_differs("refund_not_received", pair, minor=-more, facts=facts))
    return None


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
    funds, lines, kind = pair.funds, pair.lines, pair.kind
    difference = 0 if _net_fits(pair) else _difference(pair)
    if kind is None and pair.by_method:
        kind = "by_tender"
    elif kind is None and difference:
        kind = "by_tolerance"
    elif kind is None:
        aside = {(each.source, each.payment) for each in funds.doubted}
        own = [e for e in funds.captures if e.currency == funds.currency and e[2:4] not in aside]
        if len(lines.rows) == 1 and len(own) <= 1 + bool(funds.over):
            return Verdict("by_reference", "by_reference")
        kind = "by_group"
    facts: Facts = (("difference", funds.money(difference)),) if difference else ()
    if kind == "by_tender":
        facts = (("tendered", funds.money(pair.tendered)),)
    match = Match(
        kind=kind,
        order=funds.order,
        lines=tuple(sorted(lines.ids)),
        money=funds.money(funds.captured),
        facts=(*facts, ("orders", len(funds.rows)), ("payments", len(funds.captures))),
    )
    return Verdict(kind, kind, (match,))


def _one(found: Break) -> Verdict:
    return Verdict(found.cause, found.cause, (found,))


def _stated_at(pair: Pair) -> Instant:
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
    if "assignment_contradicted" in funds.findings:
        captured: Facts = (("captured", funds.money(funds.captured)),)
        yield _break(
            "assignment_contradicted",
            funds,
            None,
            money=funds.captured,
            since=funds.at,
            facts=captured,
        )
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
        money=funds.money(money),
        since=since,
        cites=funds.cites + (() if lines is None else lines.ids),
        facts=facts,
    )
