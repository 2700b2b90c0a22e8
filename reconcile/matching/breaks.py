"""A break: one difference between ledger, order book and statement, with cause, money and age.

Leaves out: wording (`breaks_words`), and what people decide about it. A break is what one run of
`match` saw; its `identity` is the same in every run that sees the same difference.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from reconcile.canonical import fingerprint
from reconcile.instants import Instant
from reconcile.ledger.ledger import Facts
from reconcile.money import Money
from reconcile.values import frozen

BreakCause = Literal[
    "paid_not_in_book",
    "book_paid_not_received",
    "book_unpaid_but_received",
    "amount_differs",
    "off_by_minor_unit",
    "currency_differs",
    "paid_twice",
    "overpaid",
    "refund_not_in_book",
    "refund_not_received",
    "not_settled",
    "settled_never_notified",
    "fee_unexpected",
    "late_money",
    "unresolved",
    "payment_in_doubt",
    "ambiguous",
]
"""Every cause a break can have; a closed vocabulary."""

BREAK_CAUSES: Final[tuple[BreakCause, ...]] = get_args(BreakCause)


@frozen
class Candidate:
    """A near miss of an unmatched line: what it is, and the one field that keeps the two apart."""

    line: str
    reference: str
    money: Money
    apart: str
    facts: Facts = ()


@frozen
class Break:
    """One difference.

    order       the order's reference as the ledger writes it, else as book or statement do
    payment     the provider's payment reference, where the difference is about one payment
    subject     what else tells it from other breaks of this cause, order and payment: the id of a
                book or statement line that is stable from one version of the line to the next
    money       what is at stake, never negative
    since       the instant from which its age counts: the latest date among what disagrees
    cites       the event, record and line ids that it rests on
    candidates  the nearest lines that did not match, at most three, the nearest first
    """

    cause: BreakCause
    order: str | None
    payment: str | None
    subject: str | None
    money: Money
    since: Instant
    cites: tuple[str, ...]
    facts: Facts = ()
    candidates: tuple[Candidate, ...] = ()

    @property
    def identity(self) -> str:
        """The same for the same difference in every run: `brk_` and 20 hex digits."""
        told = fingerprint([self.cause, self.order, self.payment, self.subject])
        return "brk_" + told.removeprefix("sha256:")[:20]
