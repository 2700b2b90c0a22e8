"""A payment without an order is held in suspense until it is placed, and its figures tie."""

from collections import Counter
from dataclasses import replace
from typing import Any

from reconcile.instants import DAY, MINUTE, TICK, Instant
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.breaks import Break, at_risk, break_sentence, next_step
from reconcile.matching.control import Control
from reconcile.matching.ledger_lines import Taken
from reconcile.matching.match import Decision, Matching
from reconcile.matching.rows import NO_KEY, BookRow, StatementRow
from reconcile.matching.rules import Coverage, Covered, MatchRules, Span
from reconcile.matching.suspense import (
    PlacedIn,
    Placement,
    Suspended,
    Suspense,
    SuspenseStep,
    suspended,
)
from reconcile.reporting.inputs import OrderSeen
from reconcile.reporting.journal import Revenue, of_suspense, transactions
from reconcile.reporting.report import PeriodReport, Scope
from reconcile.reporting.tally import PeriodTally
from tests.reconcile.books_cases import case, causes, decided
from tests.reconcile.build import T
from tests.rows import for_each

START, END = T - 10 * DAY, T + 20 * DAY
LONG_AGO = T - 5_000 * DAY


def movement(
    minor: int = 325_000, *, at: Instant = T, kind: EntryKind = "captured", known: int = 0
) -> Taken:
    """Return a movement of the payment, known some days after its date."""
    return Taken(
        kind=kind,
        source="shop",
        payment="p1",
        minor=minor,
        currency="KES",
        at=at,
        received_at=at + known * DAY,
        cites=(f"evt_{kind}_{minor}_{at}",),
    )


def put(into: PlacedIn, day: int, **words: Any) -> Placement:
    return Placement(at=T + day * DAY, into=into, record=f"rec_{day}", **words)


def payment(*parts: Taken | Placement) -> Suspended:
    return suspended(
        "shop",
        "p1",
        taken=[each for each in parts if isinstance(each, Taken)],
        placements=[each for each in parts if isinstance(each, Placement)],
    )


def reported(found: Suspended, *, start: Instant = START, end: Instant = END) -> PeriodReport:
    scope = Scope(start=start, end=end, as_of=END, basis="captured", environment="live")
    tally = PeriodTally(scope)
    tally.suspended(found)
    return tally.report()


def lines(report: PeriodReport) -> dict[str, int]:
    return {row.line: row.sum for row in report.suspense if row.sum}


def balances(found: Suspended, *, until: Instant = END) -> dict[str, int]:
    """Return the balance of each account that the journal of all time leaves."""
    sums: Counter[str] = Counter()
    for each in of_suspense(found, start=LONG_AGO, end=until):
        assert sum(posting.minor for posting in each.postings) == 0
        for posting in each.postings:
            sums[posting.account or posting.role] += posting.minor
    return {account: minor for account, minor in sums.items() if minor}


CAME = movement()
BACK = movement(-325_000, at=T + 8 * DAY, kind="refunded")
FATES: dict[str, tuple[tuple[Taken | Placement, ...], dict[str, int], dict[str, int]]] = {
    "open": ((CAME,), {"received": 1, "closing": 1}, {"clearing": 1, "unallocated": -1}),
    "assigned": (
        (CAME, put("order", 3, order="A")),
        {"received": 1, "assigned": 1},
        {"clearing": 1, "receivable": -1},
    ),
    "withdrawn": (
        (CAME, put("order", 3, order="A"), put("nowhere", 5, order="A")),
        {"received": 1, "closing": 1},
        {"clearing": 1, "unallocated": -1},
    ),
    "assigned elsewhere": (
        (CAME, put("order", 3, order="A"), put("order", 5, order="B")),
        {"received": 1, "assigned": 1},
        {"clearing": 1, "receivable": -1},
    ),
    "to be refunded": (
        (CAME, put("to_refund", 3)),
        {"received": 1, "closing": 1},
        {"clearing": 1, "unallocated": -1},
    ),
    "refunded": ((CAME, put("to_refund", 3), BACK), {"received": 1, "refunded": 1}, {}),
    "other business": (
        (CAME, put("other_business", 3, account="Income:Rent")),
        {"received": 1, "other_business": 1},
        {"clearing": 1, "Income:Rent": -1},
    ),
    "other business, given back": (
        (CAME, put("other_business", 3, account="Income:Rent"), BACK),
        {"received": 1, "refunded": 1},
        {},
    ),
    "refunded while on an order": (
        (CAME, put("order", 3, order="A"), BACK),
        {"received": 1, "assigned": 1},
        {"clearing": 1, "receivable": -1},
    ),
}
"""Fates of a payment, each with its effect on the report and on the journal, in units of the
payment."""


@for_each("fate", FATES)
def test_what_becomes_of_a_payment_stands_in_report_and_journal(fate: str) -> None:
    parts, rows, accounts = FATES[fate]
    report = reported(payment(*parts))
    found = {line: minor for line, minor in lines(report).items() if "days" not in line}
    assert found == {line: each * CAME.minor for line, each in rows.items()}
    assert report.ties_hold
    assert balances(payment(*parts)) == {name: each * CAME.minor for name, each in accounts.items()}


@for_each("fate", FATES)
def test_the_report_closes_with_what_the_journal_holds(fate: str) -> None:
    """Also in the middle, and the next period opens with it."""
    found = payment(*FATES[fate][0])
    for day in (1, 4, 6, 9):
        middle = T + day * DAY
        held = -balances(found, until=middle).get("unallocated", 0)
        assert lines(reported(found, end=middle)).get("closing", 0) == held
        assert lines(reported(found, start=middle)).get("opening", 0) == held


@for_each(
    ("days", "age"),
    [(0, "days_0_to_30"), (30, "days_0_to_30"), (31, "days_31_to_90"), (90, "days_31_to_90"),
     (91, "days_over_90")],
)  # fmt: skip
def test_what_is_held_is_divided_by_its_age(days: int, age: str) -> None:
    found = lines(reported(payment(movement(at=Instant(END - days * DAY - 1))), start=LONG_AGO))
    assert {line for line in found if "days" in line} == {age}


def test_money_is_in_suspense_from_its_own_date_and_known_from_its_arrival() -> None:
    came, back = movement(1, known=2), movement(-1, at=T + DAY, kind="refunded")
    found = payment(came, back)
    assert found.steps == (
        SuspenseStep(
            at=T + DAY, known=T + DAY, flow="refunded", minor=-1, currency="KES", cites=back.cites
        ),
        SuspenseStep(
            at=T, known=T + 2 * DAY, flow="received", minor=1, currency="KES", cites=came.cites
        ),
    )
    instants = (T, T + TICK, T + DAY, T + DAY + TICK, T + 2 * DAY, T + 2 * DAY + TICK)
    assert [found.held(before=at).get("KES", 0) for at in instants] == [0, 1, 1, 0, 0, 0]
    known = [found.held(before=at, known=True).get("KES", 0) for at in instants]
    assert known == [0, 0, 0, -1, -1, 0]


def test_movements_and_decisions_of_one_instant_are_taken_as_they_stand() -> None:
    """A decision of that instant comes before the movement."""
    found = payment(movement(300), movement(200), put("other_business", 0), put("nowhere", 0))
    assert [(each.flow, each.minor) for each in found.steps] == [
        ("received", 200),
        ("received", 300),
    ]
    assert payment(movement(300), put("other_business", 0)).stands is None


def test_an_assignment_is_posted_on_its_own_day_and_the_capture_stays() -> None:
    """The order's own transactions leave out what was posted to suspense."""
    found = payment(CAME, put("order", 3, order="A"), BACK)
    capture, assigned = of_suspense(found, start=START, end=END)
    assert (capture.at, assigned.at, assigned.order) == (T, T + 3 * DAY, "A")
    assert {each.role: each.minor for each in assigned.postings} == {
        "receivable": -CAME.minor,
        "unallocated": CAME.minor,
    }
    order = case(minor=CAME.minor).pays(payment="p1").takings[0]
    cited = replace(CAME, cites=(*CAME.cites, "rec_3"))
    seen = OrderSeen(taking=replace(order, taken=(cited, BACK)))
    own = list(transactions(seen, start=START, end=END, suspense={("shop", "p1"): found}))
    assert [each.what for each in own] == ["refunded"]


@for_each(
    ("fulfilled", "parts", "expected"),
    [
        (None, (CAME, put("order", 3, order="ORD-1")), {"clearing": 1, "deposits": -1}),
        (2, (CAME, put("order", 3, order="ORD-1")), {"clearing": 1, "sales": -1}),
        (5, (CAME, put("order", 3, order="ORD-1")), {"clearing": 1, "sales": -1}),
        (9, (CAME, put("order", 3, order="ORD-1"), BACK), {}),
        (5, (CAME, put("order", 3, order="ORD-1"), BACK), {"sales": -1, "refunds": 1}),
    ],
)
def test_an_assigned_payment_is_a_deposit_until_its_order_is_fulfilled(
    fulfilled: int | None, parts: tuple[Taken | Placement, ...], expected: dict[str, int]
) -> None:
    found = payment(*parts)
    order = case(minor=CAME.minor).pays(payment="p1").takings[0]
    cited = replace(CAME, cites=(*CAME.cites, "rec_3"))
    known = replace(
        order,
        order="ORD-1",
        taken=(cited, *[each for each in parts if each is BACK]),
        fulfilled_at=None if fulfilled is None else T + fulfilled * DAY,
    )
    posted = [
        *of_suspense(found, start=START, end=END, revenue=Revenue(taxes={})),
        *transactions(
            OrderSeen(taking=known),
            start=START,
            end=END,
            suspense={("shop", "p1"): found},
            revenue=Revenue(taxes={}),
        ),
    ]
    sums = Counter[str]()
    for each in posted:
        for part in each.postings:
            sums[part.role] += part.minor
    assert {role: minor for role, minor in sums.items() if minor} == {
        role: each * CAME.minor for role, each in expected.items()
    }


def row(payment_: str | None = "p1", *, gross: int = 325_000, source: str = "shop") -> StatementRow:
    return StatementRow(
        NO_KEY, "stm_1.1", payment_, None, "payment", "KES", gross, 0, gross, T + DAY, None, source
    )


def matched(found: Suspended, *rows: StatementRow, since: Instant | None = None) -> Any:
    matching = Matching(
        rules=MatchRules(currency="KES"),
        as_of=END,
        coverage=Coverage(),
        suspense=Suspense([found], since=since),
    )
    decisions: list[Decision] = list(matching.decide(takings=[], book=[], statements=rows))
    return decisions, matching.control()


def buckets(control: Control) -> list[str]:
    return [line.bucket for line in control.lines]


def test_its_statement_line_waits_for_an_order_and_is_no_missing_webhook() -> None:
    (found,), control = matched(payment(CAME), row())
    assert isinstance(found, Break)
    assert (found.cause, found.payment, found.money.minor) == ("payment_unallocated", "p1", 325_000)
    assert found.cites == (*CAME.cites, "stm_1.1")
    assert (found.left, at_risk(found)) == ((), 0)
    assert break_sentence(found) == "KES 3,250.00 of the payment p1 belongs to no order."
    assert "tallyhook unallocated assign" in next_step(found)
    assert (buckets(control), control.holds) == (["payment_unallocated"], True)


@for_each(
    ("parts", "bucket"),
    [
        ((CAME, put("other_business", 3)), "other_business"),
        ((CAME, put("to_refund", 3)), "awaiting_refund"),
        ((CAME, put("to_refund", 3), BACK), "returned"),
        ((CAME, put("order", 3, order="A")), "settled_never_notified"),
    ],
)
def test_a_line_of_a_payment_that_was_placed_waits_for_nobody(
    parts: tuple[Taken | Placement, ...], bucket: str
) -> None:
    """One that an order has is the order's: here none states it."""
    _, control = matched(payment(*parts), row())
    assert buckets(control) == [bucket]


@for_each(
    ("parts", "near"),
    [((CAME,), ["unallocated:shop:p1"]), ((CAME, put("other_business", 3)), [])],
)
def test_a_payment_that_waits_is_a_candidate_of_the_book_line_that_has_no_money(
    parts: tuple[Taken | Placement, ...], near: list[str]
) -> None:
    """Its sum came three minutes after the order was placed; no reference is shared."""
    booked = BookRow(
        "ORD-9", "bok_1.1", "ORD-9", "order", CAME.minor, "KES", T - 3 * MINUTE, "paid"
    )
    span = Covered(name="book", spans=(Span(since=T - DAY, until=END),))
    matching = Matching(
        rules=MatchRules(currency="KES"),
        as_of=END,
        coverage=Coverage(books=(span,)),
        suspense=Suspense([payment(*parts)]),
    )
    found = list(matching.decide(takings=[], book=[booked], statements=[]))
    (break_,) = [e for e in found if isinstance(e, Break) and e.cause == "book_paid_not_received"]
    assert [each.line for each in break_.candidates] == near


def test_a_refund_or_dispute_of_dismissed_money_reopens_it() -> None:
    partly = movement(-100, at=T + 8 * DAY, kind="dispute_lost")
    (found,), _ = matched(payment(CAME, put("other_business", 3), partly))
    assert (found.cause, found.money.minor) == ("payment_unallocated", 324_900)


@for_each("other", [row("p2"), row(source="other"), row(None)])
def test_other_lines_are_matched_as_before(other: StatementRow) -> None:
    found, control = matched(payment(CAME), other)
    assert [each.cause for each in found] == ["payment_unallocated", "settled_never_notified"]
    assert buckets(control) == ["settled_never_notified"]


def test_its_break_belongs_to_the_period_of_its_capture() -> None:
    assert matched(payment(CAME), since=T)[0]
    assert not matched(payment(CAME), since=T + TICK)[0]
    found = payment(CAME)
    assert list(Suspense([found], until=T + TICK).of_period()) == [found]
    assert list(Suspense([found], until=T).of_period()) == []


def test_a_contradicted_assignment_is_a_break_of_its_order() -> None:
    made = case().pays(findings=("assignment_contradicted",)).books().settles()
    assert causes(decided(made)[0]) == ["assignment_contradicted"]
