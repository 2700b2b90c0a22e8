"""Sums that fall: the undoing is an entry of its own day, in ledgers, reports and books."""

from dataclasses import replace
from itertools import islice, permutations
from typing import Any

from reconcile.instants import DAY, MINUTE, Instant
from reconcile.ledger.events import Event, State, StateMember
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from reconcile.ledger.positions import Step, still_stated
from reconcile.matching.breaks import Break
from reconcile.matching.ledger_lines import ledger_line_of
from reconcile.money import Money
from tests.reconcile.books_cases import case, causes, decided
from tests.reconcile.books_truth import SOURCE
from tests.reconcile.build import T, delivery, event, history, record, seconds
from tests.reconcile.laws import conservation_law, honest_law
from tests.rows import for_each
from tests.searching import every

PRICE = 150


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


def answer(day: int, minor: int, *, member: StateMember = "refunded", **more: Any) -> Event:
    """Return an answer of a day that states a sum."""
    said = event(f"a{day}", "succeeded", 0, source=SOURCE, payment="p", money=kes(PRICE))
    state = State(member=member, money=kes(minor), **more)
    return replace(said, standing="fetched", states=(state,), stated_at=T + day * DAY)


def ledger_of(*answers: Event) -> Ledger:
    heard = [delivery(f"d{n}", (50 + n) * 86_400, each) for n, each in enumerate(answers)]
    known = history(record("r", "order_placed", 0, money=kes(PRICE)), *heard)
    conservation_law(fold, known, seconds(99 * 86_400))
    honest_law(fold, known, seconds(99 * 86_400))
    return fold(known, policy=Policy(), as_of=seconds(99 * 86_400))


@for_each("member", ["refunded", "charged_back"])
def test_each_change_of_a_stated_sum_is_an_entry_of_its_day_whatever_the_order_of_arrival(
    member: StateMember,
) -> None:
    sums = [(1, 0), (2, 25), (3, 100), (4, 40), (5, 40), (6, 0)]
    told = [answer(day, minor, member=member) for day, minor in sums]
    for order in islice(permutations(told), 0, None, every(5)):
        entries = [e for e in ledger_of(*order).entries if e.kind != "captured"]
        moved = [(e.money.minor, (e.at - T) // DAY) for e in entries]
        assert moved == [(-25, 2), (-75, 3), (60, 4), (40, 6)]


@for_each(("lines", "found"), [
    ((), []),
    ((-100,), ["failed_refund_not_returned"]),
])  # fmt: skip
def test_a_refund_that_was_taken_back_needs_no_line_unless_one_took_it(
    lines: tuple[int, ...], found: list[str]
) -> None:
    line = ledger_line_of(ledger_of(answer(1, 0), answer(2, 100), answer(3, 0)))
    assert line is not None
    made = case("ORD-1", minor=PRICE, at=Instant(line.opened_at))
    made.takings.append(line)
    made.books("paid")
    made.settles(payment="p")
    for gross in lines:
        made.settles(payment="p", kind="refund", gross=gross, fee=0)
    decisions, control = decided(made)
    assert control.holds
    assert causes(decisions) == found
    for each in decisions:
        assert isinstance(each, Break)
        assert (each.money.minor, each.left) == (100, (each.money,))


@for_each(("steps", "minor"), [
    ([(0, 25)], 25),
    ([(0, 100), (9, 40)], 100),
    ([(0, 25), (9, 100)], 100),
    ([(0, 100), (0, 40), (60, 40)], 40),
    ([(0, 100), (1, 40), (60, 40)], 100),
    ([(0, 100), (1, 40), (61, 70)], 70),
    ([(0, 100), (1, 90), (30, 80), (61, 40)], 90),
])  # fmt: skip
def test_a_greater_sum_is_valid_until_a_later_answer_confirms_the_smaller_one(
    steps: list[tuple[int, int]], minor: int
) -> None:
    """The confirming answer must be an hour later at least. The steps are minutes and amounts."""
    assert still_stated([Step(Instant(at * MINUTE), each, []) for at, each in steps]) == minor
