"""Refunds that are told only as what was refunded so far: each rise of the sum is a refund."""

from dataclasses import replace
from itertools import permutations
from typing import Any, Final

from reconcile.instants import DAY, Instant
from reconcile.ledger.events import ClaimKind, Event
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from reconcile.matching.ledger_lines import ledger_line_of
from reconcile.money import Money
from tests.reconcile.books_cases import case, causes, decided, stands
from tests.reconcile.books_truth import SOURCE
from tests.reconcile.build import T, delivery, event, history, record, seconds
from tests.reconcile.laws import honest_law
from tests.rows import for_each

PRICE = 150
OF_IT: Final[dict[str, Any]] = {"source": SOURCE, "payment": "p"}
NOW = 99 * 86_400

Told = tuple[str, ClaimKind, int | None, dict[str, Any]]
"""Event id, claim, day by the provider's date, and what it says."""

Moved = tuple[int, int, str]
"""Minor units that went back, day, and the events that it rests on."""


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


def so_far(event_id: str, day: int | None, minor: int, **more: Any) -> Told:
    """Return an event that states a running total."""
    return event_id, "refunded", day, {"refunded_total": kes(minor), **more}


def refund(event_id: str, day: int, minor: int, **more: Any) -> Told:
    """Return an event that states one refund."""
    return event_id, "refunded", day, {"money": kes(minor), **more}


def said(told: Told) -> Event:
    event_id, claim, day, words = told
    at = None if day is None else day * 86_400
    return event(event_id, claim, at, **OF_IT, **words)


def ledger_of(*told: Told, until: int = NOW) -> Ledger:
    """Return the ledger of a paid order as known after `until` seconds.

    The events arrive on one day after the other, from the 50th on.
    """
    paid = delivery("d0", 0, event("e0", "succeeded", 0, money=kes(PRICE), **OF_IT))
    heard = [
        delivery(f"d{number}", (50 + number) * 86_400, said(each))
        for number, each in enumerate(told)
    ]
    placed = record("r", "order_placed", 0, money=kes(PRICE))
    known = history(placed, paid, *heard)
    honest_law(fold, known, seconds(until))
    return fold(known, policy=Policy(), as_of=seconds(until))


def went_back(ledger: Ledger) -> list[Moved]:
    return [
        (-entry.money.minor, (entry.at - T) // DAY, " ".join(entry.cites))
        for entry in ledger.entries
        if entry.kind == "refunded"
    ]


USD = Money(minor=7, currency="USD")

RISES: dict[str, tuple[list[Told], list[Moved]]] = {
    "one sum": ([so_far("a", 1, 25)], [(25, 1, "a")]),
    "two": (
        [so_far("a", 1, 25), so_far("b", 12, 100)],
        [(25, 1, "a"), (75, 12, "b a")],
    ),
    "three, of which two rise by as much": (
        [so_far("a", 1, 25), so_far("b", 2, 50), so_far("c", 3, 60)],
        [(25, 1, "a"), (25, 2, "b a"), (10, 3, "c b")],
    ),
    "a sum that is told again, before it rises and after": (
        [so_far("a", 1, 25), so_far("b", 2, 25), so_far("c", 3, 100), so_far("d", 4, 100)],
        [(25, 1, "a b"), (75, 3, "c d a b")],
    ),
    "a smaller sum later changes nothing": (
        [so_far("a", 1, 25), so_far("b", 2, 100), so_far("c", 3, 60), so_far("d", 4, 25)],
        [(25, 1, "a"), (75, 2, "b a")],
    ),
    "a smaller sum between two": (
        [so_far("a", 1, 60), so_far("b", 2, 40), so_far("c", 3, 100)],
        [(60, 1, "a"), (40, 3, "c a")],
    ),
    "sums of nothing, one of them without a date": (
        [so_far("a", None, 0), so_far("b", 1, 0), so_far("c", 2, 25), so_far("d", 3, 30)],
        [(25, 2, "c"), (5, 3, "d c")],
    ),
    "a sum beside another claim": (
        [("a", "succeeded", 1, {"money": kes(PRICE), "refunded_total": kes(25)}),
         so_far("b", 2, 30)],
        [(25, 1, "a"), (5, 2, "b a")],
    ),
    "a refund under way": (
        [so_far("a", 1, 25), ("b", "refund_pending", 2, {"money": kes(9)}), so_far("c", 3, 30)],
        [(25, 1, "a"), (5, 3, "c a")],
    ),
}  # fmt: skip

ONE: dict[str, tuple[list[Told], list[Moved]]] = {
    "two of one moment": ([so_far("a", 1, 25), so_far("b", 1, 100)], [(100, 1, "b")]),
    "the smaller one is dated later": (
        [so_far("a", 2, 25), so_far("b", 1, 100)],
        [(100, 1, "b")],
    ),
    "two bodies of one id": (
        [so_far("a", 1, 25), so_far("a", 2, 100)],
        [(100, 2, "a")],
    ),
    "a refund is named beside them": (
        [so_far("a", 1, 25), refund("b", 2, 10, movement="re_1"), so_far("c", 3, 100)],
        [(10, 2, "b"), (90, 3, "c b")],
    ),
    "a refund that its event tells is beside them": (
        [so_far("a", 1, 25), refund("b", 2, 25), so_far("c", 3, 100)],
        [(25, 2, "b"), (75, 3, "c b")],
    ),
    "one failed, and nothing says which": (
        [so_far("a", 1, 25), ("b", "refund_failed", 2, {}), so_far("c", 3, 100)],
        [(100, 3, "c")],
    ),
    "one that was under way failed": (
        [("a", "refund_pending", 1, {"movement": "re_1", "money": kes(25)}), so_far("b", 2, 25),
         ("c", "refund_failed", 3, {"movement": "re_1"}), so_far("d", 4, 40)],
        [(40, 4, "d a c")],
    ),
}  # fmt: skip
"""Histories where the increase rule would guess: one refund for the sum beyond the others."""


@for_each("name", [*RISES, *ONE])
def test_each_rise_of_a_sum_is_a_refund_whatever_the_order_of_arrival(name: str) -> None:
    told, moved = {**RISES, **ONE}[name]
    for order in permutations(told):
        ledger = ledger_of(*order)
        assert went_back(ledger) == moved
        (balance,) = ledger.balances
        assert (balance.captured, balance.refunded) == (PRICE, sum(minor for minor, *_ in moved))
        assert ledger.held == kes(PRICE - balance.refunded)


@for_each(("days", "moved"), [
    ((1, None), [(100, 51, "b")]),
    ((None, 1), [(100, 1, "b")]),
    ((None, None), [(100, 51, "b")]),
])  # fmt: skip
def test_sums_without_a_date_are_one_refund(
    days: tuple[int | None, int | None], moved: list[Moved]
) -> None:
    assert went_back(ledger_of(so_far("a", days[0], 25), so_far("b", days[1], 100))) == moved


def test_sums_of_two_currencies_rise_each_by_itself() -> None:
    told = so_far("a", 1, 25), so_far("b", 2, 100), ("c", "refunded", 3, {"refunded_total": USD})
    for order in permutations(told):
        ledger = ledger_of(*order)  # type: ignore[arg-type]
        moved = [(each.money, (each.at - T) // DAY) for each in ledger.entries[1:]]
        assert moved == [(kes(-25), 1), (kes(-75), 2), (Money(minor=-7, currency="USD"), 3)]


def test_what_had_been_refunded_stays_as_it_was_when_the_sum_rises() -> None:
    before = ledger_of(so_far("a", 1, 25), so_far("b", 12, 100), until=50 * 86_400)
    after = ledger_of(so_far("a", 1, 25), so_far("b", 12, 100))
    assert len(before.entries) == 2
    assert after.entries[:2] == before.entries
    found = ledger_line_of(after)
    assert found is not None
    assert [(each.received_at - T) // DAY for each in found.taken] == [0, 50, 51]


@for_each(("lines", "told", "buckets"), [
    ((25, 75), [], ["by_reference", "by_reference"]),
    ((75, 25), [], ["by_reference", "by_reference"]),
    ((100,), ["by_group"], ["by_group", "by_reference"]),
    ((25,), ["refund_not_settled"], ["by_reference"]),
    ((75,), ["refund_not_settled"], ["by_reference"]),
])  # fmt: skip
def test_lines_of_a_statement_face_each_rise(
    lines: tuple[int, ...], told: list[str], buckets: list[str]
) -> None:
    for order in permutations([so_far("a", 1, 25), so_far("b", 12, 100)]):
        found = ledger_line_of(ledger_of(*order))
        assert found is not None
        made = case("ORD-1", minor=PRICE, at=Instant(found.opened_at))
        made.takings.append(found)
        made.books("paid")
        made.book[-1] = replace(made.book[-1], refunded=100)
        made.settles(payment="p")
        for gross in lines:
            made.settles(payment="p", kind="refund", gross=-gross, fee=0)
        decisions, control = decided(made)
        assert causes(decisions) == told
        assert [each.money.minor for each in decisions] == [100 - sum(lines) or 100] * len(told)
        assert sorted(set(stands(control, "statement"))) == sorted(set(buckets))
        assert control.holds


@for_each(("told", "causes_found"), [
    ([so_far("a", 1, 25), so_far("b", 12, 75), so_far("c", 20, 100)], ["by_exchange"]),
    ([refund("a", 1, 25), refund("b", 12, 75)], ["refund_not_settled", "refund_not_settled",
                                                 "settled_never_notified"]),
])  # fmt: skip
def test_one_line_of_another_currency_is_all_rises_of_a_sum(
    told: list[Told], causes_found: list[str]
) -> None:
    for order in permutations(told):
        found = ledger_line_of(ledger_of(*order))
        assert found is not None
        made = case("ORD-1", minor=PRICE, at=Instant(found.opened_at))
        made.takings.append(found)
        made.books("paid")
        made.book[-1] = replace(made.book[-1], refunded=100)
        made.settles(payment="p")
        made.settles(payment="p", kind="refund", gross=-2_800, fee=0, currency="UGX")
        made.lines[-1] = replace(made.lines[-1], settled_at=Instant(made.at + 30 * DAY))
        decisions, control = decided(made)
        assert sorted(causes(decisions)) == causes_found
        assert control.holds
