"""The money of a period as balanced double entries.

Leaves out: account names and how a program writes a journal. Every transaction is of one currency
and its postings add up to nothing.

    captured       clearing +   sales -          on the provider's date
    refunded       refunds +    clearing -       on the provider's date
    dispute lost   disputes +   clearing -       on the provider's date
    settled        bank + net   fees + fee       clearing - gross, on the statement's date
    written off    write_offs + clearing -       when a person accepted the break
    taken back     clearing +   write_offs -     when evidence ended that, or its money changed

So the balance of clearing is what is not yet settled and what breaks leave (`Break.left`), the
sign of both turned round where a statement has paid more than moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind
from reconcile.matching.breaks import Accepted, Break, BreakCause, Step, acceptances
from reconcile.matching.funds import left_of
from reconcile.matching.ledger_lines import Taken
from reconcile.money import Money
from reconcile.reporting.input import OrderSeen, Settled, settled
from reconcile.values import frozen

Role = Literal["clearing", "bank", "sales", "refunds", "disputes", "fees", "write_offs"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""What an account is for. A merchant's own names for them are a mapping."""

_OTHER_SIDE: Final[dict[EntryKind, Role]] = {
    "captured": "sales",
    "refunded": "refunds",
    "reversed": "refunds",
    "dispute_lost": "disputes",
}

_LEFT_BEFORE: Final[dict[BreakCause, int]] = {"not_settled": 1, "settled_never_notified": -1}
"""What breaks left in clearing that were accepted under a version that did not say: of a line of a
statement that pays out, the contrary where it takes back. What it booked stays as it is."""

_TAKES_BACK: Final[frozenset[StatementKind]] = frozenset({"refund", "dispute"})
"""As a break tells the kind of its line; a dispute that gave money back is a `returned dispute`."""


@frozen
class Posting:
    """Minor units on one account: debit is positive, credit negative."""

    role: Role
    minor: int


@frozen
class Transaction:
    """One movement of money.

    what   in words, for people: `captured`, `settled payment`, `written off: not_settled`
    cites  the event, line and break ids that it rests on
    """

    at: Instant
    what: str
    currency: str
    postings: tuple[Posting, ...]
    order: str | None
    payment: str | None
    source: str | None
    cites: tuple[str, ...]


def transactions(seen: OrderSeen, *, start: Instant, end: Instant) -> Iterator[Transaction]:
    """One order's transactions dated from `start` on and before `end`."""
    order = None if seen.taking is None else seen.taking.order
    for taken in () if seen.taking is None else seen.taking.taken:
        if start <= taken.at < end:
            yield _moved(order, taken)
    for each in settled(seen):
        at = each.line.settled_at
        if at is not None and start <= at < end and (each.gross or each.fee or each.net):
            yield _settled(order or each.line.order, each, at)


def _moved(order: str | None, taken: Taken) -> Transaction:
    return Transaction(
        at=taken.at,
        what=taken.kind.replace("_", " "),
        currency=taken.currency,
        postings=_balanced(("clearing", taken.minor), (_OTHER_SIDE[taken.kind], -taken.minor)),
        order=order,
        payment=taken.payment,
        source=taken.source,
        cites=taken.cites,
    )


def _settled(order: str | None, each: Settled, at: Instant) -> Transaction:
    line = each.line
    source = each.taken[0].source if each.taken else None
    return Transaction(
        at=at,
        what=f"settled {line.kind}",
        currency=line.currency,
        postings=_balanced(("bank", each.net), ("fees", each.fee), ("clearing", -each.gross)),
        order=order,
        payment=line.payment,
        source=source,
        cites=(line.line_id, *(cite for taken in each.taken for cite in taken.cites)),
    )


def written_off(
    found: Break, steps: Iterable[Step], *, start: Instant, end: Instant
) -> Iterator[Transaction]:
    """What people wrote off of a break, and what was taken back of that, dated from `start` on and
    before `end`: exactly what it left in clearing, nothing where it left nothing.

    found  the break as any run saw it: what it left then is told by its steps
    """
    for step, before, after in acceptances(steps):
        was, now = _left(found, before), _left(found, after)
        if not start <= step.at < end or (before and after and was == now):
            continue
        changes = [("write-off taken back", money, 1) for money in was]
        for what, money, sign in (*changes, *[("written off", money, -1) for money in now]):
            minor = sign * money.minor
            yield Transaction(
                at=step.at,
                what=f"{what}: {found.cause}",
                currency=money.currency,
                postings=_balanced(("clearing", minor), ("write_offs", -minor)),
                order=found.order,
                payment=found.payment,
                source=None,
                cites=(found.identity, *step.cites),
            )


def _left(found: Break, accepted: Accepted | None) -> tuple[Money, ...]:
    """What the break left in clearing when it was accepted."""
    if accepted is None:
        return ()
    if accepted.left is not None:
        return accepted.left
    sign = _LEFT_BEFORE.get(found.cause, 0)
    sign = -sign if dict(found.facts).get("kind") in _TAKES_BACK else sign
    return left_of([Money(minor=sign * accepted.money.minor, currency=accepted.money.currency)])


def _balanced(*postings: tuple[Role, int]) -> tuple[Posting, ...]:
    """Without those of nothing. What a statement's own line leaves over stands in clearing: its
    gross, fee and net are checked when it is imported."""
    left = sum(minor for _, minor in postings)
    given = dict(postings)
    given["clearing"] = given.get("clearing", 0) - left
    return tuple(Posting(role=role, minor=minor) for role, minor in given.items() if minor)
