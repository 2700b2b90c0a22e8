"""Closed months stay as they were posted, and what is learned later is posted once, in the first
open month."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconcile.canonical import canonical_json
from reconcile.instants import DAY, EARLIEST, HOUR, LATEST, Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record
from reconcile.matching.bank import BankLeg
from reconcile.matching.books import BankLine, Payout, StatementLine
from reconcile.matching.breaks import Break, Step, break_sentence
from reconcile.matching.ledger_lines import Taken, ledger_line_of
from reconcile.matching.rules import Coverage, Covered, MatchRules, Span
from reconcile.matching.suspense import Placement, suspended
from reconcile.money import Money
from reconcile.periods import Calendar, Month, month_named
from reconcile.reporting.adjusting import (
    CITED,
    AdjustedMoney,
    FrozenMonth,
    transaction_document,
    transaction_of,
    with_adjusting,
)
from reconcile.reporting.inputs import BankView, OrderSeen
from reconcile.reporting.journal import (
    Adjusts,
    Posting,
    Revenue,
    Transaction,
    confirmed,
    of_suspense,
    transactions,
    written_off,
)
from tests.reconcile.build import T, event, history, record
from tests.reconcile.strategies import AMOUNTS, POSITIONS
from tests.rows import for_each

MONTHS = [month_named(name) for name in ("2026-09", "2026-10", "2026-11", "2026-12")]
START = MONTHS[0].start
DAYS = st.integers(0, 115)
SUMS = st.sampled_from([5_000, 10_000, 15_000])


WRITTEN_OFF = Break(
    cause="not_settled",
    subject="pay_1",
    money=Money(minor=100, currency="KES"),
    since=START,
    cites=(),
)
ALL_TIME = (Span(since=EARLIEST, until=LATEST),)
COVERED = Coverage(
    statements=(Covered(name="shop", spans=ALL_TIME),),
    bank=(Covered(name="main", spans=ALL_TIME),),
)


@dataclass
class World:
    """Everything that ever becomes known, with the instant at which it does.

    steps  of the break WRITTEN_OFF
    """

    deliveries: list[Delivery | Record]
    revenue: Revenue | None
    lines: list[tuple[Instant, StatementLine]]
    parts: list[Taken | Placement]
    bank: list[tuple[Instant, BankLine]]
    steps: list[Step]

    def journal(self, as_of: Instant, *, end: Instant) -> list[Transaction]:
        """Return the journal made from scratch as of an instant."""
        known = history(*self.deliveries).known_at(as_of)
        line = ledger_line_of(fold(known, policy=Policy(), as_of=as_of))
        lines = tuple([each for at, each in self.lines if at <= as_of])
        seen = OrderSeen(taking=line, lines=lines)
        paid = [each for each in lines if each.payout is not None]
        payouts = [
            Payout(
                payout_id="pyt_1", source="shop", reference="PO-100200", currency="KES",
                minor=sum(each.net for each in paid),
                paid_at=max(each.settled_at for each in paid if each.settled_at is not None),
            )
        ] if paid else []  # fmt: skip
        bank = BankView(
            BankLeg(
                payouts=payouts,
                lines=[each for at, each in self.bank if at <= as_of],
                rules=MatchRules(),
                as_of=as_of,
                coverage=COVERED,
            )
        )
        parts = [
            e for e in self.parts if (e.received_at if isinstance(e, Taken) else e.at) <= as_of
        ]
        nowhere = suspended(
            "shop",
            "p_9",
            taken=[each for each in parts if isinstance(each, Taken)],
            placements=[each for each in parts if isinstance(each, Placement)],
        )
        return [
            *transactions(seen, start=START, end=end, revenue=self.revenue, bank=bank),
            *of_suspense(nowhere, start=START, end=end, revenue=self.revenue),
            *confirmed(bank, start=START, end=end),
            *written_off(
                WRITTEN_OFF, [e for e in self.steps if e.at <= as_of], start=START, end=end
            ),
        ]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw events, states, statement and bank lines, assignments, write-offs and a fulfilment; some
    become known late."""

    def late(day: int) -> Instant:
        return START + (day + draw(st.sampled_from([0, 0, 20, 50]))) * DAY

    heard: list[Delivery | Record] = []
    for number in range(draw(st.integers(1, 5))):
        day = draw(DAYS)
        at = (START + day * DAY - T) // 1_000_000
        payment = draw(st.sampled_from(["pay_1", "pay_1", "pay_2"]))
        states: dict[str, Any] = {}
        if draw(st.booleans()):
            states = {
                "standing": "fetched",
                "states": draw(st.sampled_from(POSITIONS)),
                "stated_at": START + day * DAY,
            }
        said = event(
            f"evt_{number}",
            draw(st.sampled_from(["succeeded", "succeeded", "refunded", "refund_failed"]))
            if not states
            else "succeeded",
            at,
            payment=payment,
            movement=draw(st.sampled_from([None, "m_1"])),
            money=draw(st.sampled_from(AMOUNTS[1:])),
            **states,
        )
        heard.append(Delivery(delivery_id=f"d_{number}", received_at=late(day), event=said))
    for number in range(draw(st.integers(0, 1))):
        day = draw(DAYS)
        done = record(f"rec_f{number}", "order_fulfilled", 0)
        heard.append(replace(done, at=START + day * DAY, recorded_at=late(day)))
    lines = []
    for number in range(draw(st.integers(0, 2))):
        day, minor = draw(DAYS), draw(SUMS)
        line = StatementLine(
            line_id=f"stm_{number}", payment="pay_1", order=None, kind="payment", currency="KES",
            gross=minor, fee=100, net=minor - 100, settled_at=START + day * DAY, source="shop",
            payout=draw(st.sampled_from([None, "PO-100200"])),
        )  # fmt: skip
        lines.append((late(day), line))
    bank = []
    for number in range(draw(st.integers(0, 2))):
        day, minor = draw(DAYS), draw(SUMS) - draw(st.sampled_from([100, 200, 0]))
        booked = BankLine(
            line_id=f"bnk_{number}.1", account="main", currency="KES", minor=minor,
            booked_at=START + day * DAY, text=draw(st.sampled_from([None, "PO-100200"])),
        )  # fmt: skip
        bank.append((late(day), booked))
    steps = []
    for day in sorted(draw(st.lists(DAYS, max_size=4))):
        left = Money(minor=draw(st.sampled_from([100, 200])), currency="KES")
        kind: Any = draw(st.sampled_from(["opened", "accepted", "accepted", "changed", "closed"]))
        steps.append(
            Step(at=Instant(START + day * DAY), kind=kind, money=left, by="ann", left=(left,))
        )
    parts: list[Taken | Placement] = []
    for number in range(draw(st.integers(0, 2))):
        day = draw(DAYS)
        parts.append(
            Taken(
                kind="captured", source="shop", payment="p_9", minor=draw(SUMS), currency="KES",
                at=START + day * DAY, received_at=late(day), cites=(f"evt_s{number}",),
            )
        )  # fmt: skip
    for number in range(draw(st.integers(0, 2))):
        into: Any = draw(st.sampled_from(["order", "nowhere", "other_business"]))
        acted = Instant(START + draw(DAYS) * DAY + HOUR)
        parts.append(Placement(at=acted, into=into, order="ORD-1", record=f"rec_{number}"))
    revenue = draw(st.sampled_from([None, Revenue(taxes={"sales": 160_000, "refunds": 160_000})]))
    return World(
        deliveries=heard, revenue=revenue, lines=lines, parts=parts, bank=bank, steps=steps
    )


def frozen(month: Month, some: Iterable[Transaction]) -> FrozenMonth:
    return FrozenMonth(month=month, calendar=Calendar(), transactions=iter(some))


def balances(some: Iterable[Transaction]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for each in some:
        for posting in each.postings:
            found[posting.account or posting.role, each.currency] += posting.minor
    return Counter({key: minor for key, minor in found.items() if minor})


@given(world=worlds(), margins=st.lists(st.integers(0, 25), min_size=3, max_size=3))
def test_closed_months_and_adjustments_and_open_months_are_the_journal_made_from_scratch(
    world: World, margins: list[int]
) -> None:
    """At every closing and at the end, per account and currency; nothing is posted twice."""
    books: list[tuple[Month, list[Transaction]]] = []
    for month, margin in zip(MONTHS, [*margins, 200], strict=True):
        as_of = month.end + margin * DAY
        fresh = world.journal(as_of, end=month.end)
        closed = [frozen(each, some) for each, some in books]
        made = list(with_adjusting(fresh, closed, at=month.start)) if closed else fresh
        books.append((month, made))
        assert all(month.start <= each.at < month.end for each in made)
        assert balances(each for _, some in books for each in some) == balances(fresh)
    again = [frozen(each, some) for each, some in books]
    left = with_adjusting(world.journal(as_of, end=MONTHS[-1].end), again, at=MONTHS[-1].end)
    assert list(left) == []


CAPTURED = Transaction(
    at=START + DAY,
    what="captured",
    currency="KES",
    postings=(Posting(role="clearing", minor=100), Posting(role="sales", minor=-100)),
    order="A",
    payment="p",
    source="shop",
    cites=("evt_1",),
)
SEPTEMBER, OPEN = MONTHS[0], MONTHS[1].start


def adjusting(posted: list[Transaction], fresh: list[Transaction]) -> list[Transaction]:
    """Return the adjusting entries of September."""
    return list(with_adjusting(fresh, [frozen(SEPTEMBER, posted)], at=OPEN))


@for_each("words", [{"cites": ("evt_2",)}, {"what": "in other words"}, {"at": CAPTURED.at + HOUR}])
def test_other_words_and_further_evidence_of_one_movement_are_no_adjustment(
    words: dict[str, Any],
) -> None:
    assert adjusting([CAPTURED], [replace(CAPTURED, **words)]) == []


def test_a_changed_transaction_is_a_reversal_and_the_new_one_with_the_day_of_both() -> None:
    later = replace(CAPTURED, at=CAPTURED.at + DAY, order="B")
    back, new = adjusting([CAPTURED], [later])
    day = Adjusts(period="2026-09", original_date="2026-09-02", tax_date="2026-09-02")
    assert back.adjusts == replace(day, reverses=True)
    assert (back.at, back.what, back.order) == (OPEN, "reversed: captured", "A")
    assert [each.minor for each in back.postings] == [-100, 100]
    assert new.adjusts == replace(day, original_date="2026-09-03", tax_date="2026-09-03")
    assert replace(new, at=later.at, adjusts=None) == later


def test_what_changes_a_closed_month_by_more_than_the_limit_is_a_break_of_that_month() -> None:
    (new,) = adjusting([], [replace(CAPTURED, cites=tuple(f"evt_{n}" for n in range(99)))])
    more = AdjustedMoney()
    for each in (new, new, CAPTURED):
        more.add(each)
    assert more.sums() == {("2026-09", "KES"): 200}
    (found,) = more.breaks({"KES": 199, "UGX": 1})
    assert (found.money.minor, found.since, found.left, len(found.cites)) == (200, OPEN, (), CITED)
    assert break_sentence(found) == (
        "After 2026-09 was closed, later evidence moved KES 2.00 between the month's accounts. "
        "The limit in the rules is KES 1.99."
    )
    assert [[*more.breaks(limits)] for limits in ({"KES": 200}, {"KES": 0}, {})] == [[], [], []]
    for each in adjusting([CAPTURED, CAPTURED], []):  # the other way round
        more.add(each)
    assert more.sums() == {("2026-09", "KES"): 0}


def test_an_adjustment_counts_where_it_was_posted_and_a_reversal_can_be_reversed() -> None:
    """September's capture vanishes in October, and is there again in November."""
    (back,) = adjusting([CAPTURED], [])
    closed = [frozen(SEPTEMBER, [CAPTURED]), frozen(MONTHS[1], [back])]
    assert list(with_adjusting([], closed, at=MONTHS[2].start)) == []
    closed = [frozen(SEPTEMBER, [CAPTURED]), frozen(MONTHS[1], [back])]
    (again,) = with_adjusting([CAPTURED], closed, at=MONTHS[2].start)
    assert (again.what, again.postings) == ("captured", CAPTURED.postings)


def test_equal_transactions_count_as_often_as_they_are_there() -> None:
    assert len(adjusting([CAPTURED], [CAPTURED] * 3)) == 2


def test_a_transaction_is_read_as_it_was_written_with_every_member() -> None:
    (back,) = adjusting([replace(CAPTURED, order="\ud800")], [])
    for each in (CAPTURED, back):
        document = transaction_document(each)
        assert document.keys() == {field.name for field in fields(Transaction)}
        assert transaction_of(document) == each
        canonical_json(document)
