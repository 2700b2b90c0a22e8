"""A period added up by hand: flow, money on each basis, what was learned late, and the ties."""

import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from reconcile.instants import DAY, HOUR, MINUTE, NO_TIME, SECOND, TICK, Instant, parse_instant
from reconcile.ledger.events import Part
from reconcile.matching.books import StatementLine
from reconcile.matching.ledger_lines import Doubted
from reconcile.matching.rows import StatementRow
from reconcile.matching.rules import Coverage, MatchRules, Terms
from reconcile.matching.settling import never_notified
from reconcile.money import Money
from reconcile.periods import IN_UTC, Calendar
from reconcile.reporting.inputs import BreakSeen, OrderSeen, merged, settled, signed
from reconcile.reporting.journal import ROLES, Revenue, transactions
from reconcile.reporting.orders import standing, stretches
from reconcile.reporting.report import FlowStep, PeriodReport, ties
from reconcile.reporting.tables import TABLES, report_document, report_of
from reconcile.reporting.tally import PeriodTally
from tests.finance.reports.samples import (
    END,
    START,
    breaks,
    line,
    orders,
    sample,
    scope,
    taken,
    taking,
)
from tests.reconcile.books_truth import statement_row
from tests.rows import for_each

KEPT = Path(__file__).parents[1] / "golden" / "kept_report.json"

BEFORE, WITHIN, AFTER = START - DAY, START + DAY, END + DAY


def flows_of(report: PeriodReport, currency: str = "KES") -> dict[str, int]:
    return {row.flow: row.sum for row in report.money if row.currency == currency and row.sum}


def added_up(
    *seen: OrderSeen,
    strange: Sequence[StatementLine] = (),
    elsewhere: Set[str] = frozenset(),
    abroad: Set[str] = frozenset(),
    **changes: object,
) -> PeriodReport:
    """Return the report of these orders, and of breaks of strange lines.

    strange  lines for which the matching found no movement
    abroad   such lines of orders of other periods
    """
    tally = PeriodTally(scope(**changes), elsewhere=elsewhere)  # type: ignore[arg-type]
    for row in map(statement_row, strange):
        found = never_notified(row, Terms(rules=MatchRules(), as_of=AFTER, coverage=Coverage()))
        tally.found(BreakSeen(found=found, state="open", sentence="", next_step=""))
    tally.never_notified_elsewhere(abroad)
    for each in seen:
        tally.order(each)
    return tally.report()


@for_each(
    ("opened", "closed", "moved", "steps"),
    [
        (BEFORE, BEFORE, False, ()),
        (BEFORE, BEFORE, True, ("other",)),
        (BEFORE, START - 1, False, ()),
        (BEFORE, START, True, ("opening", "closed")),
        (BEFORE, WITHIN, True, ("opening", "closed")),
        (BEFORE, AFTER, False, ("opening", "closing")),
        (BEFORE, None, False, ("opening", "closing")),
        (START, END - 1, True, ("new", "closed")),
        (WITHIN, END, True, ("new", "closing")),
        (WITHIN, None, False, ("new", "closing")),
        (WITHIN, BEFORE, True, ("new", "closed")),  # an end dated before its beginning
        (END, None, False, ()),
        (END, AFTER, True, ("other",)),
    ],
)
def test_every_order_stands_where_its_dates_put_it(
    opened: Instant, closed: Instant | None, moved: bool, steps: tuple[FlowStep, ...]
) -> None:
    order = replace(taking("A", opened, outcome="failed"), closed_at=closed)
    assert standing(order, scope(), moved=moved) == steps


def test_the_closing_of_a_month_is_the_opening_of_the_next() -> None:
    chance = random.Random(7)
    some = []
    for number in range(400):
        opened = START - 40 * DAY + chance.randrange(110) * DAY
        closed = None if chance.random() < 0.3 else opened + chance.randrange(60) * DAY
        price = Money(minor=chance.randrange(1, 9_999), currency="KES")
        order = taking(f"O{number}", opened, outcome="failed", price=price, closed=closed)
        some.append(OrderSeen(taking=order))
    one = added_up(*some)
    next_one = added_up(*some, start=END, end=END + 30 * DAY)
    closing = [(row.count, row.sum) for row in one.flow if row.step == "closing"]
    opening = [(row.count, row.sum) for row in next_one.flow if row.step == "opening"]
    assert closing == opening
    assert closing[0][0] > 50
    assert one.ties_hold
    assert next_one.ties_hold


# --- money ---------------------------------------------------------------------------------------

PAID = taken(10_000, END - HOUR, order="A", delay=2 * HOUR)
"""Dated in the last hour of October, known in November."""

BACK = taken(-4_000, END - HOUR, order="A")
SEEN = OrderSeen(
    taking=taking("A", END - DAY, PAID, BACK, outcome="partially_refunded"),
    lines=(line(PAID, END + DAY, fee=300),),
)


def test_captured_places_money_and_its_fee_on_the_providers_date() -> None:
    report = added_up(SEEN)
    assert flows_of(report) == {
        "captured": 10_000,
        "refunded": 4_000,
        "fees": 300,
        "net": 5_700,
        "settled": 9_700,
        "not_settled": -4_000,
    }
    assert report.ties_hold


def test_of_two_equal_movements_a_line_settles_one() -> None:
    order = taking("A", END - DAY, PAID, BACK, replace(BACK), outcome="partially_refunded")
    lines = (line(PAID, END + DAY, fee=300), line(BACK, END + DAY))
    report = added_up(OrderSeen(taking=order, lines=lines))
    assert flows_of(report) == {
        "captured": 10_000,
        "refunded": 8_000,
        "fees": 300,
        "net": 1_700,
        "settled": 5_700,
        "not_settled": -4_000,
    }
    assert report.ties_hold


def test_received_places_money_when_it_was_first_known() -> None:
    october, november = (
        added_up(SEEN, basis="received"),
        added_up(SEEN, basis="received", start=END, end=END + 30 * DAY),
    )
    assert flows_of(october) == {"refunded": 4_000, "net": -4_000, "not_settled": -4_000}
    assert flows_of(november) == {"captured": 10_000, "fees": 300, "net": 9_700, "settled": 9_700}
    assert october.ties_hold
    assert november.ties_hold


def test_settled_places_money_on_the_statements_date() -> None:
    october, november = (
        added_up(SEEN, basis="settled"),
        added_up(SEEN, basis="settled", start=END, end=END + 30 * DAY),
    )
    assert flows_of(october) == {}
    assert flows_of(november) == {"captured": 10_000, "fees": 300, "net": 9_700, "settled": 9_700}
    assert november.ties_hold


def test_the_way_to_the_statement_names_what_differs_and_what_was_never_notified() -> None:
    short = taken(5_000, WITHIN, order="B")
    missed = line(taken(2_000, WITHIN, order="C"), WITHIN + DAY, fee=100)
    report = added_up(
        OrderSeen(taking=taking("B", WITHIN, short), lines=(line(short, WITHIN, gross=4_500),)),
        OrderSeen(taking=None, lines=(missed,)),
        strange=[missed],
    )
    assert flows_of(report) == {
        "captured": 5_000,
        "fees": 100,
        "net": 4_900,
        "settled": 6_400,
        "differs": 500,
        "not_notified": 2_000,
    }
    assert report.ties_hold


@for_each(
    ("settled_at", "strange", "elsewhere", "flow"),
    [
        # a line's date, whether its break is of this period, whether the matching has it in another
        # period than that of its date, and what it counts as here
        (WITHIN, True, False, "not_notified"),
        (AFTER, True, True, "not_notified"),
        (BEFORE, True, True, "not_notified"),
        (None, True, True, "not_notified"),
        (WITHIN, False, False, "no_movement"),
        (WITHIN, False, True, None),
        (AFTER, False, False, None),
        (None, False, False, None),
    ],
)
def test_a_line_that_no_webhook_stated_is_where_its_break_is(
    settled_at: Instant | None, strange: bool, elsewhere: bool, flow: str | None
) -> None:
    paid = taken(5_000, WITHIN, order="B")
    took = replace(line(taken(-60, WITHIN, order="B"), settled_at), line_id="stm_3")
    report = added_up(
        OrderSeen(taking=taking("B", WITHIN, paid), lines=(line(paid, WITHIN + DAY), took)),
        strange=[took] if strange else (),
        elsewhere={"stm_3"} if elsewhere else frozenset(),
    )
    rest = {} if flow is None else {flow: -60}
    settled_now = 5_000 - (0 if flow is None else 60)
    assert flows_of(report) == {"captured": 5_000, "net": 5_000, "settled": settled_now, **rest}
    assert report.ties_hold
    assert {"not notified", "lines not notified"} <= {tie.name for tie in report.ties}


def test_a_line_counts_in_one_month() -> None:
    """In the book in September, captured in October; the second line is no part of the payment."""
    came = taken(5_000, WITHIN, order="B")
    fits, further = line(came, WITHIN), replace(line(came, WITHIN), line_id="stm_9")
    order = OrderSeen(taking=taking("B", BEFORE, came), lines=(fits, further))
    september = added_up(
        order, strange=[further], elsewhere={further.line_id}, start=BEFORE, end=START
    )
    october = added_up(order, elsewhere={further.line_id}, abroad={further.line_id})
    counted = [
        row.count
        for report in (september, october)
        for row in report.money
        if row.flow == "settled"
    ]
    assert sum(counted) == 2


def test_lines_that_webhooks_stated_are_not_called_never_notified() -> None:
    paid = taken(5_000, WITHIN, order="B")
    took = replace(line(paid, WITHIN + DAY), line_id="stm_took", kind="dispute", gross=-900)
    second = replace(line(paid, WITHIN + DAY), line_id="stm_2", payment="pay_2", gross=700)
    unstated = replace(line(paid, WITHIN + DAY), line_id="stm_3", kind="refund", gross=-60)
    lines = [replace(each, net=each.gross) for each in (took, second, unstated)]
    doubt = Doubted(source="shop", payment="pay_2", unsure=("captured",))
    report = added_up(
        OrderSeen(
            taking=taking("B", WITHIN, paid, findings=("dispute_won",), doubted=(doubt,)),
            lines=(line(paid, WITHIN + DAY), *lines),
        ),
        strange=lines[2:],
    )
    assert report.ties_hold
    assert flows_of(report) == {
        "captured": 5_000,
        "net": 5_000,
        "settled": 5_000 - 900 + 700 - 60,
        "no_movement": -200,
        "not_notified": -60,
    }
    assert report.ties_hold


def test_money_of_two_currencies_is_never_added() -> None:
    other = taken(700, WITHIN, order="A", currency="JPY")
    report = added_up(OrderSeen(taking=taking("A", WITHIN, PAID, other, outcome="unresolved")))
    assert (flows_of(report)["captured"], flows_of(report, "JPY")["captured"]) == (10_000, 700)
    assert [(row.currency, row.count) for row in report.control] == [("JPY", 0), ("KES", 1)]
    assert report.ties_hold


def test_lines_without_a_date_of_settlement_are_reported() -> None:
    seen = replace(SEEN, lines=(line(PAID, None, fee=300),))
    assert flows_of(added_up(seen))["settled"] == 9_700
    assert (
        "1 statement line bears no settlement date"
        in added_up(seen, basis="settled").notes[0].sentence
    )


# --- late, lists, order --------------------------------------------------------------------------


def test_money_of_an_earlier_month_that_became_known_in_the_period_is_late() -> None:
    late = taken(900, BEFORE, order="L", delay=3 * DAY)
    in_time = taken(800, BEFORE, order="M", delay=SECOND)
    later = taken(700, BEFORE, order="N", delay=60 * DAY)
    report = added_up(
        *(OrderSeen(taking=taking(t.payment, BEFORE, t)) for t in (late, in_time, later))
    )
    assert [(row.month, row.kind, row.sum) for row in report.late] == [("2026-09", "captured", 900)]
    assert [each.payment for each in report.late_lines] == ["pay_L"]
    assert flows_of(report) == {}


def test_what_went_back_late_is_negative_and_its_tables_say_so() -> None:
    gone = replace(taken(-900, BEFORE, order="L", delay=3 * DAY), kind="refunded")
    report = added_up(OrderSeen(taking=taking("L", BEFORE, gone)))
    assert [(row.kind, row.sum) for row in report.late] == [("refunded", -900)]
    assert [(each.kind, each.sum) for each in report.late_lines] == [("refunded", -900)]
    told = {each.name: each.about for each in TABLES if each.name in ("late", "late_lines")}
    assert [("Returned money is negative" in about) for about in told.values()] == [True, True]


def test_orders_in_any_order_give_the_same_report() -> None:
    some = list(orders(100))
    random.Random(3).shuffle(some)
    assert added_up(*some) == added_up(*orders(100))


def test_a_list_ends_at_its_bound_with_the_oldest_and_says_what_is_left_out() -> None:
    tally = PeriodTally(scope(), break_lines=10)
    for each in breaks(95):
        tally.found(each)
    report = tally.report()
    whole = sample(0, broken=95)
    assert report.break_lines == whole.break_lines[:10]
    assert report.breaks == whole.breaks
    assert sum(row.count for row in report.breaks) == 95
    assert [(each.listed, each.left_out) for each in report.unlisted] == [(10, 85), (0, 0), (0, 0)]


@pytest.mark.costly
@pytest.mark.slow
def test_memory_does_not_grow_with_the_orders() -> None:
    def peak(count: int) -> int:
        tally = PeriodTally(scope())
        tracemalloc.start()
        for each in orders(count):
            tally.order(each)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(4_000) < peak(500) + 10_000


def test_a_report_as_json_is_that_report_again() -> None:
    report = sample(60)
    assert report_of(report_document(report)) == report
    assert report_document(report)["control"][0]["sum"]["currency"] == "JPY"


def test_a_kept_report_is_read_and_written_as_it_was() -> None:
    """`kept_report.json` has a row of each table."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert all(kept.values())
    assert report_document(report_of(kept)) == kept


def test_a_report_of_a_period_that_had_not_ended_says_so() -> None:
    assert "preliminary" in added_up(as_of=END - 1).notes[0].sentence
    assert not added_up(as_of=END).notes


def test_broken_totals_are_seen_by_their_ties() -> None:
    report = sample(60)
    given: dict[str, Any] = {"flow": report.flow, "control": report.control, "money": report.money}
    assert all(tie.holds for tie in ties(**given))
    for table, change in (
        ("flow", {"count": 99}),
        ("flow", {"sum": 99}),
        ("control", {"count": 99}),
        ("control", {"captured": 99}),
        ("money", {"sum": 99}),
    ):
        first, *rest = given[table]
        falsified = {**given, table: (replace(first, **change), *rest)}
        assert not all(tie.holds for tie in ties(**falsified)), (table, change)


def test_a_chart_of_time_goes_by_day_then_week_then_month() -> None:
    assert len(stretches(START, END, IN_UTC)) == 31
    assert len(stretches(START, START + 365 * DAY, IN_UTC)) == 53
    begun = parse_instant("2024-01-15T00:00:00Z")
    months = stretches(begun, parse_instant("2026-12-01T00:00:00Z"), IN_UTC)
    assert len(months) == 35
    assert months[:2] == [begun, parse_instant("2024-02-01T00:00:00Z")]


def test_a_chart_of_days_has_days_of_23_and_25_hours() -> None:
    calendar = Calendar(ZoneInfo("America/New_York"))
    march, november = calendar.month("2026-03"), calendar.month("2026-11")
    for month, bars, odd in ((march, 31, 23), (november, 30, 25)):
        begun = [*stretches(month.start, month.end, calendar), month.end]
        lengths = [(after - at) // HOUR for at, after in pairwise(begun)]
        assert (len(lengths), sorted(lengths)) == (bars, sorted([odd, *[24] * (bars - 1)]))


# --- lines and their movements -------------------------------------------------------------------


def paired(*lines: StatementLine, moved: tuple[object, ...]) -> list[list[int]]:
    """Return for each line the amounts of the movements that it settles."""
    seen = OrderSeen(taking=taking("A", START, *moved), lines=lines)  # type: ignore[arg-type]
    return [[each.minor for each in pair.taken] for pair in settled(seen)]


def test_a_line_settles_the_movement_of_its_payment_and_amount() -> None:
    first, second = taken(-100, WITHIN, order="A"), taken(-300, WITHIN, order="A")
    whole = taken(-400, WITHIN, order="A")
    assert paired(line(second, AFTER), moved=(first, second)) == [[-300]]
    assert paired(line(whole, AFTER), moved=(first, second)) == [[-100, -300]]
    assert paired(
        line(first, AFTER, gross=-50), line(second, AFTER, gross=-50), moved=(first,)
    ) == [
        [-100],
        [-100],
    ]
    assert paired(line(taken(-100, WITHIN, order="B"), AFTER), moved=(first,)) == [[]]
    assert paired(line(taken(100, WITHIN, order="A"), AFTER), moved=(first,)) == [[]]


def test_what_goes_back_is_negative_whichever_sign_the_provider_gives_it() -> None:
    back = replace(line(BACK, AFTER), gross=4_000, net=4_000)
    assert signed(back) == (-4_000, 0, -4_000)
    assert signed(replace(back, gross=-4_000, net=-4_000)) == (-4_000, 0, -4_000)
    fee = replace(back, kind="fee", gross=0, fee=50, net=-50)
    assert signed(fee) == (0, 50, -50)
    both = replace(fee, gross=-50, fee=3, net=-53)
    assert signed(both) == (0, 53, -53)
    for basis in ("captured", "settled"):
        report = added_up(
            OrderSeen(taking=None, lines=(replace(both, settled_at=WITHIN),)), basis=basis
        )
        assert flows_of(report) == {"fees": 53, "net": -53, "settled": -53}
        assert all(tie.left_value == tie.right_value for tie in report.ties)


def test_a_refund_that_failed_comes_back_in_the_month_of_its_failure() -> None:
    paid = taken(1_000, WITHIN)
    settles = line(paid, WITHIN)
    went = replace(settles, line_id="stm_b.1", kind="refund", gross=-400, net=-400, refund="re")
    failed = replace(went, line_id="stm_c.1", kind="returned", gross=400, net=400, settled_at=AFTER)
    order = OrderSeen(taking=taking("A", WITHIN, paid), lines=(settles, went, failed))
    end = AFTER + DAY
    later = added_up(order, basis="settled", start=END, end=end, as_of=end)
    assert flows_of(added_up(order, basis="settled"))["refunded"] == 400
    assert flows_of(later)["refunded"] == -400
    assert flows_of(added_up(order))["no_movement"] == -400


def test_a_dispute_that_was_won_comes_to_nothing() -> None:
    paid = taken(1_000, WITHIN)
    settles = line(paid, WITHIN)
    took = replace(settles, line_id="stm_b.1", kind="dispute", gross=-1_000, net=-1_000)
    gave = replace(took, line_id="stm_c.1", gross=1_000, net=1_000)
    assert signed(gave) == (1_000, 0, 1_000)
    seen = OrderSeen(taking=taking("A", WITHIN, paid), lines=(settles, took, gave))
    for basis in ("captured", "settled"):
        report = added_up(seen, basis=basis)
        assert flows_of(report) == {"captured": 1_000, "net": 1_000, "settled": 1_000}
        assert all(tie.left_value == tie.right_value for tie in report.ties)
    booked = [each for some in transactions(seen, start=START, end=END) for each in some.postings]
    sums = {role: sum(each.minor for each in booked if each.role == role) for role in ROLES}
    assert {role: minor for role, minor in sums.items() if minor} == {
        "bank": 1_000,
        "receivable": -1_000,
    }


def balances(seen: OrderSeen) -> dict[str, int]:
    """Return the journal's balance of each account, without zeros."""
    booked = [each for some in transactions(seen, start=START, end=END) for each in some.postings]
    sums = {role: sum(each.minor for each in booked if each.role == role) for role in ROLES}
    return {role: minor for role, minor in sums.items() if minor}


def test_the_journal_cites_what_a_line_brought_and_names_whose_statement_it_is() -> None:
    paid = taken(1_000, WITHIN)
    first, more = line(paid, WITHIN, gross=600), line(paid, WITHIN, gross=400)
    lines = (replace(first, line_id="stm_1"), replace(more, line_id="stm_2", source="other"))
    seen = OrderSeen(taking=taking("A", WITHIN, paid), lines=lines)
    found = [
        (each.source, each.cites)
        for each in transactions(seen, start=START, end=END)
        if each.what == "settled payment"
    ]
    assert found == [(paid.source, ("stm_1", *paid.cites)), ("other", ("stm_2",))]


def test_a_reversal_is_among_what_was_refunded_and_leaves_nothing_in_clearing() -> None:
    paid = taken(1_000, WITHIN)
    back = replace(taken(-1_000, WITHIN), kind="reversed")
    known = taking("A", WITHIN, paid, back, outcome="refunded")
    refund = line(back, WITHIN)
    negative = replace(refund, kind="payment")
    for lines in ((), (line(paid, WITHIN), refund), (line(paid, WITHIN), negative)):
        seen = OrderSeen(taking=known, lines=lines)
        assert flows_of(added_up(seen)) == {"captured": 1_000, "refunded": 1_000}
        for basis in ("captured", "received", "settled"):
            report = added_up(seen, basis=basis)
            assert all(tie.left_value == tie.right_value for tie in report.ties)
        assert balances(seen) == {}
    assert paired(refund, moved=(back,)) == paired(negative, moved=(back,)) == [[-1_000]]


def test_a_negative_payment_of_which_nothing_went_back_corrects_what_came() -> None:
    paid = taken(1_000, WITHIN)
    lines = (line(paid, WITHIN, gross=1_050), line(paid, WITHIN, gross=-50))
    assert paired(*lines, moved=(paid,)) == [[1_000], [1_000]]
    seen = OrderSeen(taking=taking("A", WITHIN, paid), lines=lines)
    assert flows_of(added_up(seen)) == {"captured": 1_000, "net": 1_000, "settled": 1_000}


def test_part_of_a_lost_dispute_that_came_again_is_one_loss_on_both_sides() -> None:
    paid = taken(1_000, WITHIN)
    lost = replace(taken(-60, WITHIN), kind="dispute_lost")
    took = replace(line(lost, WITHIN, gross=-100), kind="dispute")
    gave = replace(line(lost, WITHIN, gross=40), kind="dispute")
    known = taking("A", WITHIN, paid, lost, outcome="charged_back")
    seen = OrderSeen(taking=known, lines=(line(paid, WITHIN), took, gave))
    expected = {"captured": 1_000, "lost_in_disputes": 60, "net": 940, "settled": 940}
    for basis in ("captured", "settled"):
        report = added_up(seen, basis=basis)
        assert flows_of(report) == expected
        assert all(tie.left_value == tie.right_value for tie in report.ties)
    assert balances(seen) == {"bank": 940, "receivable": -1_000, "disputes": 60}


@for_each("basis", ["captured", "settled"])
def test_captures_stand_by_the_currency_in_which_they_are_settled(basis: str) -> None:
    """With what one unit came to; a refund in the other currency is not among them."""
    paid, more = (taken(minor, WITHIN, order=name) for name, minor in (("A", 1_000), ("B", 3_000)))
    some = [
        OrderSeen(
            taking=taking(each.payment[4:], WITHIN, each),
            lines=(replace(line(each, AFTER, gross=each.minor // 4, fee=5), currency="USD"),),
        )
        for each in (paid, more)
    ]
    alike, open_ = (taken(700, WITHIN, order=name) for name in ("C", "D"))
    rest = replace(alike, minor=50, cites=("rest",))  # one line settles both
    whole = line(alike, AFTER, gross=750)
    some.append(OrderSeen(taking=taking("C", WITHIN, alike, rest), lines=(whole,)))
    some.append(OrderSeen(taking=taking("D", WITHIN, open_)))
    end = END if basis == "captured" else AFTER + DAY
    found = [
        (row.captured_in, row.settled_in, row.count, row.captured, row.settled, row.rate)
        for row in added_up(*some, basis=basis, end=end).settled_in
    ]
    assert found == [
        *([("KES", None, 1, 700, None, None)] if basis == "captured" else []),
        ("KES", "KES", 2, 750, 750, None),
        ("KES", "USD", 2, 4_000, 1_000, "0.250000"),
    ]


def test_every_movement_is_counted_once_in_the_net() -> None:
    (net,) = [row for row in added_up(SEEN).money if row.flow == "net"]
    assert net.count == 2


def row(key: str, payment: str | None = None, order: str | None = None) -> StatementRow:
    given = replace(line(taken(100, WITHIN), AFTER), payment=payment, order=order)
    return statement_row(given, key=key)


def test_every_order_and_every_line_comes_out_of_the_merge_once() -> None:
    a, b, c = (taking(name, START) for name in ("A", "B", "C"))
    rows = [row("", "x"), row("a", "p1"), row("a", "p2"), row("aa", "p3"), row("c"), row("d", "p4")]
    found = list(merged([a, b, c], rows))
    assert [(s.taking and s.taking.order, [one.payment for one in s.lines]) for s in found] == [
        (None, ["x"]),
        ("A", ["p1", "p2"]),
        (None, ["p3"]),
        ("B", []),
        ("C", [None]),
        (None, ["p4"]),
    ]


def test_of_orders_with_one_key_a_line_goes_to_the_one_that_knows_it() -> None:
    one = replace(taking("ORD 1", START), payments=(("shop", "p1"),))
    other = replace(taking("ORD-1", START), payments=(("shop", "p2"),))
    rows = [row("ord1", "p2"), row("ord1", "p9", "ORD-1"), row("ord1", "p9")]
    found = list(merged([one, other], rows))
    assert [len(seen.lines) for seen in found] == [1, 2]


def test_delays_and_ages_are_counted_in_the_class_they_end_in() -> None:
    seen = [
        OrderSeen(
            taking=taking(f"O{delay}", WITHIN, taken(1, WITHIN, order=str(delay), delay=delay))
        )
        for delay in (NO_TIME, SECOND, SECOND + TICK, MINUTE, 2 * DAY)
    ]
    report = added_up(*seen)
    assert {r.up_to: r.movements for r in report.delays if r.movements} == {
        SECOND: 2,
        5 * SECOND: 1,
        MINUTE: 1,
        None: 1,
    }


def test_a_break_stands_in_the_class_of_its_age_as_the_list_gives_it() -> None:
    tally = PeriodTally(scope(as_of=END + 12 * HOUR))
    for each in breaks(100):
        tally.found(each)
    report = tally.report()
    last = {"up_to_1_day": 1, "up_to_7_days": 7, "up_to_30_days": 30, "up_to_90_days": 90}
    listed = Counter(
        next((age for age, days in last.items() if each.age_days <= days), "older")
        for each in report.break_lines
    )
    counted: Counter[str] = Counter()
    for row in report.breaks:
        counted[row.age] += row.count
    assert counted == listed == Counter(dict(zip((*last, "older"), (2, 6, 23, 60, 9), strict=True)))


@for_each(
    ("moves", "expected"),
    [
        ((1_150,), {"clearing": 1_150, "receivable": -1_000, "tips": -100,
                    "fees_from_customers": -50}),
        ((1_150, -1_000), {"clearing": 150, "tips": -100, "fees_from_customers": -50}),
        ((1_150, -900, -200), {"clearing": 50, "fees_from_customers": -50}),
        ((1_150, -1_150), {}),
        ((600, 550), {"clearing": 1_150, "receivable": -1_000, "tips": -100,
                      "fees_from_customers": -50}),
    ],
)  # fmt: skip
def test_what_is_on_top_of_the_price_has_accounts_of_its_own(
    moves: tuple[int, ...], expected: dict[str, int]
) -> None:
    tip, fee = (Money(minor=minor, currency="KES") for minor in (100, 50))
    parts = (Part(kind="tip", money=tip), Part(kind="fee", money=fee))
    moved = [taken(minor, Instant(WITHIN + n)) for n, minor in enumerate(moves)]
    seen = OrderSeen(taking=replace(taking("A", WITHIN, *moved), on_top=parts))
    assert balances(seen) == expected


DAYS = [Instant(WITHIN + n * DAY) for n in range(4)]
VAT = Revenue(taxes={"sales": 160_000, "refunds": 160_000})


@for_each(
    ("moves", "fulfilled", "expected"),
    [
        ((1_160,), None, {"clearing": 1_160, "deposits": -1_160}),
        ((1_160,), 2, {"clearing": 1_160, "sales": -1_000, "taxes": -160}),
        ((1_160, -580), 2, {"clearing": 580, "sales": -500, "taxes": -80}),
        ((1_160, 0, -580), 1, {"clearing": 580, "sales": -1_000, "refunds": 500, "taxes": -80}),
        ((0, 1_160), 0, {"clearing": 1_160, "sales": -1_000, "taxes": -160}),
    ],
)
def test_deposits_become_sales_less_their_tax_when_the_order_is_fulfilled(
    moves: tuple[int, ...], fulfilled: int | None, expected: dict[str, int]
) -> None:
    moved = [taken(minor, DAYS[n]) for n, minor in enumerate(moves) if minor]
    at = None if fulfilled is None else DAYS[fulfilled]
    known = replace(taking("A", WITHIN, *moved), fulfilled_at=at, fulfilled_by=("rec_1",))
    some = list(transactions(OrderSeen(taking=known), start=START, end=END, revenue=VAT))
    assert all(sum(part.minor for part in each.postings) == 0 for each in some)
    sums = Counter[str]()
    for each in some:
        for part in each.postings:
            sums[part.role] += part.minor
    assert {role: minor for role, minor in sums.items() if minor} == expected
    earned = [(each.at, each.cites) for each in some if each.what == "fulfilled"]
    assert earned == ([(at, ("rec_1",))] if expected.get("sales") and moves[0] else [])


@for_each(("kind", "what"), [("lost", "deposits"), ("fulfilled", "disputes")])
def test_a_dispute_lost_before_fulfilment_takes_the_deposit_and_costs_nothing_else(
    kind: str, what: str
) -> None:
    lost = replace(taken(-1_000, DAYS[2]), kind="dispute_lost")
    known = taking("A", WITHIN, taken(1_000, DAYS[0]), lost, outcome="charged_back")
    if kind == "fulfilled":
        known = replace(known, fulfilled_at=DAYS[1])
    found = list(transactions(OrderSeen(taking=known), start=START, end=END, revenue=VAT))
    assert found[1].postings[1].role == what
