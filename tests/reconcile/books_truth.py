"""A generated month of orders, book lines and statement lines, with the truth about each.

Pure and seeded: one seed and one size give the same rows. Every kind of trouble stands in it in a
known number, at places that the seed chooses; all other orders are plain. A case knows which
breaks it must cause, and which matches that are not plain, so that false and missed ones can be
told from each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge

from reconcile.books import BookLine, BookStatus, StatementKind, StatementLine, match_key
from reconcile.breaks import BREAK_CAUSES
from reconcile.instants import DAY, HOUR, Instant
from reconcile.ledger import FindingCode, Outcome
from reconcile.match_rows import (
    BookRow,
    StatementRow,
    TakingRow,
    book_row,
    statement_row,
    taking_row,
)
from reconcile.match_rules import Coverage, ExpectedFee, MatchRules, Reach, Span, Tolerance
from reconcile.money import Money
from reconcile.takings import Taken, Taking

START: Instant = 1_790_812_800_000_000
"""2026-10-01T00:00:00Z"""

END: Instant = START + 30 * DAY
AS_OF: Instant = START + 90 * DAY
SOURCE = "checkout"
KES = "KES"

RULES = MatchRules(
    tolerances=(Tolerance(currency=KES, minor=5),),
    fees=(ExpectedFee(source=SOURCE, currency=KES, per_million=15_000),),
)
COVERAGE = Coverage(
    book=Span(since=START, until=AS_OF),
    statements=(Reach(source=SOURCE, span=Span(since=START, until=AS_OF)),),
)


@dataclass(slots=True)
class Case:
    """Some rows that belong together, and what must be said of them.

    breaks   (cause, order, minor units at stake)
    matches  (kind, order)
    """

    reference: str
    minor: int
    at: Instant
    takings: list[Taking] = field(default_factory=list)
    book: list[BookLine] = field(default_factory=list)
    lines: list[StatementLine] = field(default_factory=list)
    breaks: list[tuple[str, str | None, int]] = field(default_factory=list)
    matches: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def payment(self) -> str:
        """The provider's reference of its payment."""
        return "pay_" + self.reference

    def pays(
        self,
        *,
        minor: int | None = None,
        payment: str | None = None,
        reference: str | None = None,
        outcome: Outcome = "succeeded",
        findings: tuple[FindingCode, ...] = (),
        more: tuple[Taken, ...] = (),
    ) -> Case:
        """An order with a capture, and movements besides."""
        order = reference or self.reference
        first = self.taken(minor=minor, payment=payment)
        self.takings.append(
            Taking(
                key=match_key(order),
                order=order,
                as_of=AS_OF,
                outcome=outcome,
                fulfillable=outcome == "succeeded",
                expected=Money(minor=self.minor, currency=KES),
                opened_at=self.at,
                taken=(first, *more),
                payments=((SOURCE, first.payment),),
                findings=findings,
            )
        )
        return self

    def taken(self, *, minor: int | None = None, payment: str | None = None) -> Taken:
        """A capture, or what went back where the amount is negative."""
        amount = self.minor if minor is None else minor
        back = amount < 0
        name = payment or self.payment
        return Taken(
            kind="refunded" if back else "captured",
            source=SOURCE,
            payment=name,
            minor=amount,
            currency=KES,
            at=self.at + (2 * HOUR if back else HOUR),
            received_at=self.at + 2 * HOUR,
            cites=(f"evt_{name}_{'refund' if back else 'paid'}",),
        )

    def untouched(self) -> Case:
        """An order that nobody paid."""
        taking = Taking(
            key=match_key(self.reference),
            order=self.reference,
            as_of=AS_OF,
            outcome="timed_out",
            fulfillable=False,
            expected=Money(minor=self.minor, currency=KES),
            opened_at=self.at,
            taken=(),
            payments=((SOURCE, self.payment),),
            findings=(),
        )
        self.takings.append(taking)
        return self

    def books(
        self,
        status: BookStatus | None = "paid",
        *,
        minor: int | None = None,
        reference: str | None = None,
        currency: str = KES,
        group: str | None = None,
    ) -> Case:
        """A line of the order book."""
        place = len(self.book)
        self.book.append(
            BookLine(
                line_id=f"bok_{self.reference}_{place}.1",
                reference=reference or self.reference,
                kind="order",
                money=Money(minor=self.minor if minor is None else minor, currency=currency),
                placed_at=self.at,
                status=status,
                group=group,
            )
        )
        return self

    def settles(
        self,
        *,
        gross: int | None = None,
        payment: str | None = None,
        order: str | None = None,
        fee: int | None = None,
        kind: StatementKind = "payment",
    ) -> Case:
        """A line of the statement. `order`: as it names it; empty where it names none."""
        minor = self.minor if gross is None else gross
        cost = (minor * 15_000 + 500_000) // 1_000_000 if fee is None else fee
        self.lines.append(
            StatementLine(
                line_id=f"stm_{self.reference}_{len(self.lines)}.1",
                payment=payment or self.payment,
                order=(self.reference if order is None else order) or None,
                kind=kind,
                currency=KES,
                gross=minor,
                fee=cost,
                net=minor - cost,
                settled_at=self.at + 2 * DAY,
                payout="po_1",
            )
        )
        return self

    def breaks_as(self, cause: str, minor: int | None = None) -> Case:
        """It must be told so."""
        self.breaks.append((cause, self.reference, self.minor if minor is None else minor))
        return self

    def matches_as(self, kind: str) -> Case:
        """It must be told so."""
        self.matches.append((kind, self.reference))
        return self


def _refunded(case: Case, minor: int) -> Case:
    whole = case.minor == minor
    outcome: Outcome = "refunded" if whole else "partially_refunded"
    return case.pays(outcome=outcome, more=(case.taken(minor=-minor),))


def _twice(case: Case) -> Case:
    again = case.taken(payment=case.payment + "_2")
    case.pays(findings=("paid_twice",), more=(again,)).books()
    return case.settles().settles(payment=again.payment)


TROUBLES: dict[str, Callable[[Case], Case]] = {
    "paid_not_in_book": lambda c: c.pays().settles().breaks_as("paid_not_in_book"),
    "book_paid_not_received": lambda c: c.books().breaks_as("book_paid_not_received"),
    "book_unpaid_but_received": lambda c: (
        c.pays().books("unpaid").settles().breaks_as("book_unpaid_but_received")
    ),
    "amount_differs": lambda c: (
        c.pays().books(minor=c.minor + 700).settles().breaks_as("amount_differs", 700)
    ),
    "off_by_minor_unit": lambda c: (
        c.pays().books(minor=c.minor * 100).settles().breaks_as("off_by_minor_unit", c.minor * 99)
    ),
    "currency_differs": lambda c: (
        c.pays().books(currency="UGX").settles().breaks_as("currency_differs")
    ),
    "paid_twice": lambda c: _twice(c).breaks_as("paid_twice"),
    "refund_not_in_book": lambda c: (
        _refunded(c, 300).books().settles().breaks_as("refund_not_in_book", 300)
    ),
    "refund_not_received": lambda c: (
        c.pays().books("refunded").settles().breaks_as("refund_not_received")
    ),
    "not_settled": lambda c: c.pays().books().breaks_as("not_settled"),
    "settled_never_notified": lambda c: c.books().settles().breaks_as("settled_never_notified"),
    "fee_unexpected": lambda c: (
        c.pays()
        .books()
        .settles(fee=9_000)
        .breaks_as("fee_unexpected", 9_000 - (c.minor * 15_000 + 500_000) // 1_000_000)
    ),
    "late_money": lambda c: (
        c.pays(findings=("paid_after_cancel",)).books("canceled").settles().breaks_as("late_money")
    ),
    "unresolved": lambda c: (
        c.pays(outcome="unresolved", findings=("same_id_different_body",))
        .books()
        .settles()
        .breaks_as("unresolved")
    ),
    "ambiguous": lambda c: (
        c.pays().books().books(reference=c.reference.lower()).settles().breaks_as("ambiguous")
    ),
}
"""One case for each cause of a break."""

CALM: dict[str, Callable[[Case], Case]] = {
    "nobody paid": lambda c: c.untouched().books("unpaid"),
    "nobody paid, and not in the book": lambda c: c.untouched(),
    "in the book only, unpaid": lambda c: c.books("unpaid"),
    "refunded, and the book knows": lambda c: _refunded(c, c.minor).books("refunded").settles(),
    "refunded, and the book never counted on it": lambda c: _refunded(c, c.minor).settles(),
    "late, and the book says paid": lambda c: (
        c.pays(findings=("success_after_deadline",)).books().settles()
    ),
    "written otherwise": lambda c: (
        c.pays().books(reference=c.reference.lower().replace("-", " ")).settles()
    ),
    "a few cents apart": lambda c: (
        c.pays().books(minor=c.minor + 5).settles().matches_as("by_tolerance")
    ),
    "two lines in one": lambda c: (
        c.pays()
        .books(minor=c.minor - 400, group="G" + c.reference)
        .books(minor=400, group="G" + c.reference, reference=c.reference + "B")
        .settles()
        .matches_as("by_group")
    ),
    "known by its payment only": lambda c: (
        c.pays().books().settles(order="").matches_as("by_payment")
    ),
}
"""Cases without a break that are not plain either."""

assert set(TROUBLES) == set(BREAK_CAUSES)


@dataclass(frozen=True, slots=True)
class Month:
    """`orders` cases, of which `each` are of every kind of TROUBLES and of CALM."""

    orders: int
    each: int
    seed: int = 1

    def cases(self) -> Iterator[Case]:
        """Every case, in the order of their references."""
        kinds = {**TROUBLES, **CALM}
        places = random.Random(self.seed).sample(range(self.orders), self.each * len(kinds))
        odd = dict(zip(places, sorted(kinds) * self.each, strict=True))
        chance = random.Random(self.seed + 1)
        for place in range(self.orders):
            at = START + place * (30 * DAY) // self.orders
            case = Case(f"ORD-{place:07d}", chance.randrange(1_000, 400_000), at)
            kind = odd.get(place)
            yield _plain(case) if kind is None else kinds[kind](case)

    def takings(self) -> Iterator[TakingRow]:
        """The stream of takings, in key order."""
        for case in self.cases():
            yield from sorted(taking_row(each) for each in case.takings)

    def book(self) -> Iterator[BookRow]:
        """The stream of book lines, in key order."""
        for case in self.cases():
            yield from sorted([book_row(each) for each in case.book], key=lambda row: row.key)

    def statements(self) -> Iterator[StatementRow]:
        """The stream of statement lines, in key order: what names no order comes first."""
        unnamed = (row for case in self.cases() for row in _lines(case) if not row.key)
        named = (row for case in self.cases() for row in _lines(case) if row.key)
        return merge(unnamed, named, key=lambda row: row.key)


def _plain(case: Case) -> Case:
    return case.pays().books().settles()


def _lines(case: Case) -> list[StatementRow]:
    return [statement_row(each) for each in case.lines]


def moved(case: Case, *, days: int) -> Case:
    """The same case at another time."""
    return replace(case, at=case.at + days * DAY)
