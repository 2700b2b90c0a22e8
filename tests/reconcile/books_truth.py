"""A generated month of orders, book lines and statement lines, with the truth about each.

Pure and seeded: one seed and one size give the same rows. Every kind of trouble stands in it in a
known number, at places that the seed chooses; all other orders are plain. A case knows which
breaks it must cause, and which matches that are not plain, so that false and missed ones can be
distinguished from each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from typing import TypedDict, TypeVar

from reconcile.instants import DAY, HOUR, Instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.books import BookLine, BookStatus, StatementKind, StatementLine, match_key
from reconcile.matching.ledger_lines import Doubted, FailedRefund, LedgerLine, Taken
from reconcile.matching.rows import NO_KEY, BookRow, StatementRow, TakingRow, ledger_line_row
from reconcile.matching.rules import Coverage, Covered, ExpectedFee, MatchRules, Span, Tolerance
from reconcile.money import Money

START = Instant(1_790_812_800_000_000)
"""2026-10-01T00:00:00Z"""

END: Instant = START + 30 * DAY
AS_OF: Instant = START + 90 * DAY
SOURCE = "checkout"
KES = "KES"

RULES = MatchRules(
    tolerances=(Tolerance(currency=KES, minor=5),),
    fees=(ExpectedFee(source=SOURCE, currency=KES, per_million=15_000),),
)


def covered(name: str, since: int = START, until: int = AS_OF) -> Covered:
    """Return what covers one span."""
    return Covered(name=name, spans=(Span(since=Instant(since), until=Instant(until)),))


COVERAGE = Coverage(books=(covered("book"),), statements=(covered(SOURCE),))


@dataclass(slots=True)
class Case:
    """Rows that belong together, and what must be reported of them.

    breaks   (cause, order, minor units at stake)
    matches  (kind, order)
    """

    reference: str
    minor: int
    at: Instant
    takings: list[LedgerLine] = field(default_factory=list)
    book: list[BookLine] = field(default_factory=list)
    lines: list[StatementLine] = field(default_factory=list)
    breaks: list[tuple[str, str | None, int]] = field(default_factory=list)
    matches: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def payment(self) -> str:
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
        owed: tuple[Money, ...] = (),
        doubted: tuple[Doubted, ...] = (),
        in_doubt: tuple[Money, ...] = (),
        failed: tuple[FailedRefund, ...] = (),
    ) -> Case:
        """Add an order with a capture and further movements."""
        order = reference or self.reference
        first = self.taken(minor=minor, payment=payment)
        self.takings.append(
            LedgerLine(
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
                owed=owed,
                doubted=doubted,
                in_doubt=in_doubt,
                failed=failed,
            )
        )
        return self

    def taken(
        self,
        *,
        minor: int | None = None,
        payment: str | None = None,
        kind: EntryKind = "refunded",
        currency: str = KES,
    ) -> Taken:
        """Return a capture, or a return of kind `kind` if the amount is negative."""
        amount = self.minor if minor is None else minor
        back = amount < 0
        name = payment or self.payment
        return Taken(
            kind=kind if back else "captured",
            source=SOURCE,
            payment=name,
            minor=amount,
            currency=currency,
            at=self.at + (2 * HOUR if back else HOUR),
            received_at=self.at + 2 * HOUR,
            cites=(f"evt_{name}_{kind if back else 'paid'}",),
        )

    def untouched(self) -> Case:
        """Add an order that nobody paid."""
        taking = LedgerLine(
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
        currency: str = KES,
    ) -> Case:
        """Add a statement line. `order`: the reference it names; empty for none."""
        minor = self.minor if gross is None else gross
        cost = (minor * 15_000 + 500_000) // 1_000_000 if fee is None else fee
        self.lines.append(
            StatementLine(
                line_id=f"stm_{self.reference}_{len(self.lines)}.1",
                payment=payment or self.payment,
                order=(self.reference if order is None else order) or None,
                kind=kind,
                currency=currency,
                gross=minor,
                fee=cost,
                net=minor - cost,
                settled_at=self.at + 2 * DAY,
                payout="po_1",
            )
        )
        return self

    def breaks_as(self, cause: str, minor: int | None = None) -> Case:
        self.breaks.append((cause, self.reference, self.minor if minor is None else minor))
        return self

    def matches_as(self, kind: str) -> Case:
        self.matches.append((kind, self.reference))
        return self


def book_row(line: BookLine) -> BookRow:
    return BookRow(
        key=match_key(line.reference),
        line_id=line.line_id,
        reference=line.reference,
        kind=line.kind,
        minor=line.money.minor,
        currency=line.money.currency,
        placed_at=line.placed_at,
        status=line.status,
        group=line.group,
        refunded=line.refunded,
        refunded_at=line.refunded_at,
        method=line.method,
    )


def statement_row(line: StatementLine, *, key: str | None = None) -> StatementRow:
    """Return the row of a statement line. `key`: of a line that names no order but a payment."""
    own = NO_KEY if line.order is None else match_key(line.order)
    return StatementRow(
        key=own if key is None else key,
        line_id=line.line_id,
        payment=line.payment,
        order=line.order,
        kind=line.kind,
        currency=line.currency,
        gross=line.gross,
        fee=line.fee,
        net=line.net,
        settled_at=line.settled_at,
        payout=line.payout,
        source=line.source,
        wallet=line.wallet,
        refund=line.refund,
        details=line.details,
    )


Row = TypeVar("Row", TakingRow, BookRow, StatementRow)


def in_key_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by key; keep the order of rows with equal keys."""
    return sorted(rows, key=lambda row: row.key)


class Streams(TypedDict):
    """The three streams of a matching, in key order."""

    takings: list[TakingRow]
    book: list[BookRow]
    statements: list[StatementRow]


def streams(*cases: Case) -> Streams:
    return Streams(
        takings=in_key_order([ledger_line_row(each) for one in cases for each in one.takings]),
        book=in_key_order([book_row(each) for one in cases for each in one.book]),
        statements=in_key_order([statement_row(each) for one in cases for each in one.lines]),
    )


def _refunded(case: Case, minor: int) -> Case:
    whole = case.minor == minor
    outcome: Outcome = "refunded" if whole else "partially_refunded"
    return case.pays(outcome=outcome, more=(case.taken(minor=-minor),)).settles()


def _took(case: Case, minor: int, kind: StatementKind = "refund", payment: str = "") -> Case:
    """Let the statement take an amount for a return."""
    return case.settles(kind=kind, gross=-minor, fee=0, payment=payment or None)


def _won(case: Case) -> Case:
    return case.pays(findings=("dispute_won",)).books().settles()


def _failed(case: Case, *, at: Instant) -> Case:
    """Let the order's refund fail at an instant, which the statement has taken."""
    failed = FailedRefund(
        source=SOURCE, payment=case.payment, refund=None, minor=900, currency=KES, at=at
    )
    return _took(case.pays(failed=(failed,)).books().settles(), 900)


def _twice(case: Case) -> Case:
    again = case.taken(payment=case.payment + "_2")
    case.pays(findings=("paid_twice",), more=(again,), owed=(kes(case.minor),)).books()
    return case.settles().settles(payment=again.payment)


def kes(minor: int) -> Money:
    return Money(minor=minor, currency=KES)


def _overpaid(case: Case, *, surplus: int, returned: int = 0) -> Case:
    """Capture more than the price; return some or all of the surplus."""
    back = (case.taken(minor=-returned),) if returned else ()
    owed = (kes(surplus - returned),) if surplus > returned else ()
    case.pays(minor=case.minor + surplus, findings=("overpaid",), more=back, owed=owed).books()
    case.settles(gross=case.minor + surplus)
    return _took(case, returned) if returned else case


def _stranger(case: Case, unsure: bool = False) -> Case:
    """Pay, and add a second payment of 700 in doubt; `unsure`: its amount is stated in two ways."""
    second = case.taken(minor=700, payment=case.payment + "_2")
    doubt = Doubted(
        source=SOURCE,
        payment=second.payment,
        unsure=("captured",) if unsure else (),
        cites=second.cites,
    )
    case.pays(
        findings=("conflicting_amounts",) if unsure else ("contradictory_claims",),
        more=() if unsure else (second,),
        doubted=(doubt,),
        in_doubt=(kes(700),) if unsure else (),
    )
    return case.books().settles().settles(gross=700, payment=second.payment)


def _charged_back(case: Case, *parts: int) -> Case:
    """Lose a dispute; the parts are the statement's lines."""
    gone = case.taken(minor=sum(parts), kind="dispute_lost")
    case.pays(outcome="charged_back", findings=("dispute_lost",), more=(gone,)).settles()
    for gross in parts:
        case.settles(kind="dispute", gross=gross, fee=0)
    return case


def _reversed(case: Case) -> Case:
    back = case.taken(minor=-case.minor, kind="reversed")
    return case.pays(outcome="refunded", more=(back,))


def _other_currency(case: Case) -> Case:
    """Pay, and add a stranger's payment in another currency."""
    second = case.taken(minor=200, payment=case.payment + "_2", currency="UGX")
    owed = (Money(minor=200, currency="UGX"),)
    case.pays(findings=("other_currency_received",), more=(second,), owed=owed).books().settles()
    return case.settles(gross=200, payment=second.payment, currency="UGX", fee=0)


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
    "overpaid": lambda c: _overpaid(c, surplus=100).breaks_as("overpaid", 100),
    "refund_not_in_book": lambda c: _took(_refunded(c, 300).books(), 300).breaks_as(
        "refund_not_in_book", 300
    ),
    "refund_not_received": lambda c: (
        c.pays().books("refunded").settles().breaks_as("refund_not_received")
    ),
    "not_settled": lambda c: c.pays().books().breaks_as("not_settled"),
    "refund_not_settled": lambda c: (
        _refunded(c, 300).books(minor=c.minor - 300).breaks_as("refund_not_settled", 300)
    ),
    "refund_amount_differs": lambda c: _took(
        _refunded(c, 300).books(minor=c.minor - 300), 400
    ).breaks_as("refund_amount_differs", 100),
    "dispute_won_not_returned": lambda c: _took(_won(c), 900, "dispute").breaks_as(
        "dispute_won_not_returned", 900
    ),
    "failed_refund_not_returned": lambda c: _failed(c, at=c.at).breaks_as(
        "failed_refund_not_returned", 900
    ),
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
    "payment_in_doubt": lambda c: _stranger(c).breaks_as("payment_in_doubt", 700),
    "ambiguous": lambda c: (
        c.pays().books().books(reference=c.reference.lower()).settles().breaks_as("ambiguous")
    ),
}
"""One case for each cause about an order."""

FURTHER: dict[str, Callable[[Case], Case]] = {
    "some of a surplus given back": lambda c: (
        _overpaid(c, surplus=100, returned=40).breaks_as("overpaid", 60)
    ),
    "of a second payment nobody knows the amount": lambda c: (
        _stranger(c, unsure=True).breaks_as("payment_in_doubt", 700)
    ),
    "a surplus in another currency": lambda c: _other_currency(c).breaks_as("overpaid", 200),
    "lost, and the book says paid": lambda c: (
        _charged_back(c, -300).books().breaks_as("refund_not_in_book", 300)
    ),
    "reversed, and the book says paid": lambda c: (
        _reversed(c).books().breaks_as("refund_not_in_book")
    ),
    "too much came and all of it went back but the book's": lambda c: (
        c.pays(minor=c.minor + 100, more=(c.taken(minor=-c.minor),), outcome="partially_refunded")
        .books().settles(gross=c.minor + 100).settles(kind="refund", gross=-c.minor, fee=0)
        .breaks_as("refund_not_in_book", c.minor - 100)
    ),
    "lost in a dispute, which the statement has not taken": lambda c: (
        c.pays(outcome="charged_back", more=(c.taken(minor=-300, kind="dispute_lost"),))
        .books(minor=c.minor - 300).settles().breaks_as("refund_not_settled", 300)
    ),
    "reversed after it was paid out, which the statement has not taken": lambda c: (
        _reversed(c).books("refunded").settles().breaks_as("refund_not_settled")
    ),
    "lost in a dispute, of which the statement took more": lambda c: (
        c.pays(outcome="charged_back", more=(c.taken(minor=-300, kind="dispute_lost"),))
        .books(minor=c.minor - 300).settles().settles(kind="dispute", gross=-340, fee=0)
        .breaks_as("refund_amount_differs", 40)
    ),
    "won, and given back in part": lambda c: (
        _took(_won(c), 900, "dispute").settles(kind="dispute", gross=500, fee=0)
        .breaks_as("dispute_won_not_returned", 400)
    ),
    "lost, then won in part, of which nothing came again": lambda c: (
        c.pays(
            outcome="charged_back", findings=("dispute_won",),
            more=(c.taken(minor=-180, kind="dispute_lost"),),
        ).books(minor=c.minor - 180).settles().settles(kind="dispute", gross=-300, fee=0)
        .breaks_as("dispute_won_not_returned", 120)
    ),
}  # fmt: skip
"""Further cases with one break."""

CALM: dict[str, Callable[[Case], Case]] = {
    "a surplus given back": lambda c: _overpaid(c, surplus=100, returned=100),
    "a second payment given back": lambda c: (
        c.pays(
            more=(
                c.taken(payment=c.payment + "_2"),
                c.taken(minor=-c.minor, payment=c.payment + "_2"),
            )
        ).books().settles().settles(payment=c.payment + "_2")
        .settles(kind="refund", gross=-c.minor, payment=c.payment + "_2", fee=0)
    ),
    "a second payment that is disputed": lambda c: (
        c.pays(findings=("dispute_open",), more=(c.taken(payment=c.payment + "_2"),))
        .books().settles().settles(payment=c.payment + "_2")
        .settles(kind="dispute", gross=-c.minor, payment=c.payment + "_2", fee=0)
    ),
    "a surplus that is disputed": lambda c: (
        c.pays(minor=c.minor + 100, findings=("dispute_open",)).books()
        .settles(gross=c.minor + 100).settles(kind="dispute", gross=-100, fee=0)
    ),
    "charged back, and the book knows": lambda c: _charged_back(c, -c.minor).books("refunded"),
    "charged back, and the book never counted on it": lambda c: _charged_back(c, -c.minor),
    "lost, and some of it came again": lambda c: (
        _charged_back(c, -100, 40).books().books(minor=-60)
        .matches_as("by_group").matches_as("by_group")
    ),
    "reversed before it was settled": lambda c: _reversed(c),
    "reversed before it was settled, and the book knows": lambda c: _reversed(c).books("canceled"),
    "reversed, which the statement has as a refund": lambda c: (
        _reversed(c).books("refunded").settles().settles(kind="refund", gross=-c.minor, fee=0)
    ),
    "reversed, which the statement has as a negative payment": lambda c: (
        _reversed(c).books("unpaid").settles().settles(gross=-c.minor, fee=0)
    ),
    "two refunds that are one line": lambda c: (
        c.pays(
            outcome="partially_refunded",
            more=(c.taken(minor=-300), c.taken(minor=-200)),
        )
        .books(minor=c.minor - 500).settles().settles(kind="refund", gross=-500, fee=0)
        .matches_as("by_group")
    ),
    "one sum for two refunds": lambda c: (
        c.pays(outcome="partially_refunded", more=(c.taken(minor=-500),))
        .books(minor=c.minor - 500).settles().matches_as("by_group")
        .settles(kind="refund", gross=-300, fee=0).settles(kind="refund", gross=-200, fee=0)
    ),
    "corrected by the provider before it paid out": lambda c: (
        c.pays().books().settles(gross=c.minor + 50, fee=0).settles(gross=-50, fee=0)
        .matches_as("by_group")
    ),
    "too much came, and the book has all of it back": lambda c: (
        c.pays(minor=c.minor + 100, more=(c.taken(minor=-c.minor - 100),), outcome="refunded")
        .books("refunded", minor=c.minor + 100).settles(gross=c.minor + 100)
        .settles(kind="refund", gross=-c.minor - 100, fee=0)
    ),
    "won, and all that was taken came again": lambda c: (
        _took(_won(c), 900, "dispute").settles(kind="dispute", gross=900, fee=0)
    ),
    "nobody paid": lambda c: c.untouched().books("unpaid"),
    "nobody paid, and not in the book": lambda c: c.untouched(),
    "in the book only, unpaid": lambda c: c.books("unpaid"),
    "refunded, and the book knows": lambda c: (
        _took(_refunded(c, c.minor).books("refunded"), c.minor)
    ),
    "refunded, and the book never counted on it": lambda c: _took(_refunded(c, c.minor), c.minor),
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
    "settled in another currency": lambda c: (
        c.pays().books().settles(gross=c.minor * 2 + 1, currency="UGX", fee=0)
        .matches_as("by_exchange")
    ),
    "known by its payment only": lambda c: (
        c.pays().books().settles(order="").matches_as("by_payment")
    ),
}  # fmt: skip
"""Cases without a break that are not plain either."""


@dataclass(frozen=True, slots=True)
class Month:
    """`orders` cases, of which `each` are of every kind of TROUBLES and of CALM."""

    orders: int
    each: int
    seed: int = 1

    def cases(self) -> Iterator[Case]:
        kinds = {**TROUBLES, **FURTHER, **CALM}
        places = random.Random(self.seed).sample(range(self.orders), self.each * len(kinds))
        odd = dict(zip(places, sorted(kinds) * self.each, strict=True))
        chance = random.Random(self.seed + 1)
        for place in range(self.orders):
            at = START + place * (30 * DAY) // self.orders
            case = Case(f"ORD-{place:07d}", chance.randrange(1_000, 400_000), at)
            kind = odd.get(place)
            yield case.pays().books().settles() if kind is None else kinds[kind](case)

    def takings(self) -> Iterator[TakingRow]:
        for case in self.cases():
            yield from streams(case)["takings"]

    def book(self) -> Iterator[BookRow]:
        for case in self.cases():
            yield from streams(case)["book"]

    def statements(self) -> Iterator[StatementRow]:
        """Yield statement lines in key order: those without an order come first."""
        both = [(statement_row(each) for c in self.cases() for each in c.lines) for _ in range(2)]
        unnamed, named = (row for row in both[0] if not row.key), (r for r in both[1] if r.key)
        return merge(unnamed, named, key=lambda row: row.key)


def moved(case: Case, *, days: int) -> Case:
    return replace(case, at=case.at + days * DAY)
