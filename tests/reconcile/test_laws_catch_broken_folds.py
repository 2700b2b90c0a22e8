"""Controls: for each law a fold that breaks it, which the law's own checker must catch.

A checker that let one of these pass would prove nothing of the real fold.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, permutations
from typing import Any

import pytest

from reconcile.instants import HOUR, SECOND, Duration
from reconcile.ledger.events import Delivery, Event, Part
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Entry, EntryKind, Ledger, Outcome
from reconcile.money import Money
from tests.reconcile import laws
from tests.reconcile.build import DUE, delivery, event, history, record, seconds, seven_deliveries
from tests.rows import for_each

SEVEN = seven_deliveries()
NOW = seconds(100)


def last_writer_wins(seen: History, **given: Any) -> Ledger:
    """Overwrite the outcome with whatever arrived last."""
    ledger = fold(seen, **given)
    said: dict[str, Outcome] = {
        "succeeded": "succeeded",
        "declined": "failed",
        "pending": "pending",
    }
    for each in seen.deliveries:
        ledger = replace(ledger, outcome=said[each.event.claim])
    return ledger


def first_body_wins(seen: History, **given: Any) -> Ledger:
    """Keep the first body of an id and drop the others."""
    kept: dict[str, Delivery] = {}
    for each in seen.deliveries:
        first = kept.setdefault(each.event.event_id, each)
        if first.event.digest == each.event.digest:
            kept[each.event.event_id + each.delivery_id] = each
    return fold(replace(seen, deliveries=frozenset(kept.values())), **given)


def ties_by_chance(seen: History, **given: Any) -> Ledger:
    """Leave entries and findings in the order in which they were met."""
    ledger = fold(seen, **given)
    met = [each.event.event_id for each in seen.deliveries]
    findings = sorted(ledger.findings, key=lambda f: met.index(f.cites[0]))
    return replace(ledger, findings=tuple(findings))


@for_each("broken", [last_writer_wins, first_body_wins, ties_by_chance])
def test_law_1_catches_folds_that_depend_on_order(broken: laws.Fold) -> None:
    with pytest.raises(AssertionError):
        laws.order_law(broken, history(*SEVEN), permutations(SEVEN), as_of=NOW)


def counts_every_arrival(seen: History, **given: Any) -> Ledger:
    """Capture once for each delivery of a success, as a naive receiver does."""
    ledger = fold(seen, **given)
    captured = [d for d in seen.deliveries if d.event.claim == "succeeded"]
    entries = tuple(
        Entry(at=d.received_at, kind="captured", money=DUE, attempt="pay", cites=())
        for d in captured
    )
    return replace(ledger, entries=entries)


def test_law_2_catches_a_fold_that_counts_every_arrival() -> None:
    again = replace(SEVEN[3], delivery_id="again")
    with pytest.raises(AssertionError):
        laws.duplication_law(counts_every_arrival, history(*SEVEN), again, as_of=NOW)


def test_law_2_catches_a_fold_that_dates_an_event_by_its_last_arrival() -> None:

    def by_last_arrival(seen: History, **given: Any) -> Ledger:
        latest: dict[tuple[str, str, str], Delivery] = {}
        for each in sorted(seen.deliveries, key=lambda d: (d.received_at, d.delivery_id)):
            latest[each.event.key] = each
        return fold(replace(seen, deliveries=frozenset(latest.values())), **given)

    again = replace(SEVEN[0], delivery_id="again", received_at=seconds(5_000))
    with pytest.raises(AssertionError):
        laws.duplication_law(by_last_arrival, history(*SEVEN), again, as_of=seconds(6_000))


def with_memory() -> laws.Fold:
    """Make a fold that never takes back a final outcome."""
    ledgers: list[Ledger] = []

    def broken(seen: History, **given: Any) -> Ledger:
        ledger = fold(seen, **given)
        if ledgers and ledgers[-1].outcome in ("failed", "succeeded"):
            ledger = replace(ledger, outcome=ledgers[-1].outcome)
        ledgers.append(ledger)
        return ledger

    return broken


def test_law_3_catches_a_fold_that_remembers() -> None:
    groups = [history(*SEVEN[:2]), history(*SEVEN[2:])]
    with pytest.raises(AssertionError):
        laws.grouping_law(with_memory(), history(*SEVEN), groups, NOW)


def test_law_4_catches_a_fold_that_forgets() -> None:

    def forgetful(seen: History, **given: Any) -> Ledger:
        kept = frozenset(d for d in seen.deliveries if d.received_at > given["as_of"] - HOUR)
        return fold(replace(seen, deliveries=kept), **given)

    with pytest.raises(AssertionError):
        laws.growth_law(forgetful, history(*SEVEN), NOW, seconds(10_000))


def test_law_5_catches_a_fold_that_knows_the_future() -> None:

    def prophetic(seen: History, **given: Any) -> Ledger:
        ledger = fold(seen, policy=given["policy"], as_of=seconds(10_000))
        return replace(ledger, as_of=given["as_of"])

    with pytest.raises(AssertionError):
        laws.time_travel_law(prophetic, history(*SEVEN), seconds(12))


def test_law_5_catches_a_fold_that_reads_a_clock() -> None:
    clock = (seconds(2_095) + turn * 2 * SECOND for turn in count())

    def ticking(seen: History, **given: Any) -> Ledger:
        ledger = fold(seen, policy=given["policy"], as_of=next(clock))
        return replace(ledger, as_of=given["as_of"])

    waiting = history(*SEVEN[:1])
    with pytest.raises(AssertionError):
        _travel_often(ticking, waiting)


def _travel_often(broken: laws.Fold, seen: History) -> None:
    for _ in range(5):
        laws.time_travel_law(broken, seen, NOW)


def test_law_6_catches_a_fold_that_counts_its_neighbours() -> None:

    def greedy(seen: History, **given: Any) -> Ledger:
        taken = [replace(d, event=replace(d.event, order=seen.order)) for d in seen.deliveries]
        return fold(replace(seen, deliveries=frozenset(taken)), **given)

    other = event("evt_9", "succeeded", 3, order="ORD-9", payment="pay_9", money=DUE)
    with pytest.raises(AssertionError):
        laws.locality_law(greedy, history(*SEVEN), history(delivery("d9", 4, other)), NOW)


def first_cite_only(ledger: Ledger) -> Ledger:
    """Cite one id of several in explanations."""
    return replace(ledger, reasons=tuple(replace(r, cites=r.cites[:1]) for r in ledger.reasons))


def last_cite_only(ledger: Ledger) -> Ledger:
    return replace(ledger, reasons=tuple(replace(r, cites=r.cites[-1:]) for r in ledger.reasons))


@for_each("cut", [first_cite_only, last_cite_only])
def test_law_7_catches_explanations_that_leave_evidence_out(
    cut: Callable[[Ledger], Ledger],
) -> None:
    paid = event("evt_1", "succeeded", 0, payment="pay_1", money=DUE)
    back = event("evt_2", "refunded", 5, payment="pay_1", money=DUE)
    with pytest.raises(AssertionError):
        laws.honest_law(
            lambda seen, **given: cut(fold(seen, **given)),
            history(delivery("d1", 1, paid), delivery("d2", 6, back)),
            NOW,
        )


@for_each("shift", [None, -SECOND, SECOND])
def test_law_8_catches_a_wrong_next_decision(shift: Duration | None) -> None:

    def restless(seen: History, **given: Any) -> Ledger:
        ledger = fold(seen, **given)
        at = ledger.next_decision_at
        return replace(ledger, next_decision_at=None if at is None or shift is None else at + shift)

    with pytest.raises(AssertionError):
        laws.quiet_law(restless, history(*SEVEN[:1]), NOW)


def test_law_8_catches_a_forgotten_fulfilment_window() -> None:

    def attempts_only(seen: History, **given: Any) -> Ledger:
        ledger = fold(seen, **given)
        waiting = [a.deadline for a in ledger.attempts if a.outcome == "pending"]
        return replace(ledger, next_decision_at=min(filter(None, waiting), default=None))

    paid = event("evt_1", "succeeded", 0, payment="pay_1", money=DUE)
    shop = record("rec_1", "order_placed", 0, money=DUE)
    with pytest.raises(AssertionError):
        laws.quiet_law(attempts_only, history(delivery("d1", 1, paid), shop), NOW)


def drop_one(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(entries[1:])


def round_down(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    first, *rest = entries
    smaller = Money(minor=first.money.minor - 1, currency=first.money.currency)
    return (replace(first, money=smaller), *rest)


@for_each("spoil", [drop_one, round_down])
def test_law_9_catches_lost_money(spoil: Callable[[Sequence[Entry]], tuple[Entry, ...]]) -> None:

    def lossy(seen: History, **given: Any) -> Ledger:
        ledger = fold(seen, **given)
        return replace(ledger, entries=spoil(ledger.entries))

    with pytest.raises(AssertionError):
        laws.conservation_law(lossy, history(*SEVEN[:5]), NOW)


def test_the_real_fold_passes_every_control_history() -> None:
    laws.order_law(fold, history(*SEVEN), [SEVEN, SEVEN[::-1]], as_of=NOW)
    laws.quiet_law(fold, history(*SEVEN[:1]), NOW)
    laws.conservation_law(fold, history(*SEVEN[:5]), NOW)
    laws.grouping_law(fold, history(*SEVEN), [history(*SEVEN[:2]), history(*SEVEN[2:])], NOW)


# --- laws 9 and 10 on what goes back -------------------------------------------------------------

PRICED = record("rec_p", "order_placed", 0, money=DUE)
PAID = event("evt_1", "succeeded", 0, payment="pay_1", money=DUE)


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


def history_of(*said: Event) -> History:
    """Return a priced order with these events, one second apart."""
    return history(PRICED, *(delivery(f"d{n}", n, each) for n, each in enumerate(said, 1)))


def _entry(ledger: Ledger, kind: EntryKind, minor: int) -> Ledger:
    more = Entry(at=NOW, kind=kind, money=kes(-minor), attempt="pay_1", cites=())
    return replace(ledger, entries=(*ledger.entries, more))


def sums_added_to_movements(seen: History, **given: Any) -> Ledger:
    """Count a running total of refunds as one more refund."""
    ledger = fold(seen, **given)
    for each in seen.deliveries:
        if each.event.refunded_total is not None:
            ledger = _entry(ledger, "refunded", each.event.refunded_total.minor)
    return ledger


def reopened_deducted_twice(seen: History, **given: Any) -> Ledger:
    """Enter a dispute that is open again beside holding it."""
    ledger = fold(seen, **given)
    return _entry(ledger, "dispute_lost", DUE.minor)


def surplus_of_what_came(seen: History, **given: Any) -> Ledger:
    """Owe back what came beyond the price, though some of it went back."""
    ledger = fold(seen, **given)
    came = sum(b.captured for b in ledger.balances)
    findings = [
        replace(f, facts=(("surplus", kes(came - DUE.minor)),)) if f.code == "overpaid" else f
        for f in ledger.findings
    ]
    return replace(ledger, findings=tuple(findings))


def surplus_with_what_is_on_top(seen: History, **given: Any) -> Ledger:
    """Owe back a tip, too."""
    return replace(fold(seen, **given), on_top=())


_REFUND: dict[str, Any] = {"payment": "pay_1", "movement": "re_1"}
_DISPUTE: dict[str, Any] = {"payment": "pay_1", "movement": "dp_1", "money": DUE}

SUM = history_of(
    PAID,
    event("evt_2", "refunded", 1, money=kes(10), **_REFUND),
    event("evt_3", "refunded", 2, payment="pay_1", refunded_total=kes(10)),
)
REOPENED = history_of(
    PAID,
    event("evt_2", "dispute_lost", 1, **_DISPUTE),
    event("evt_3", "disputed", 2, **_DISPUTE),
)
SURPLUS = history_of(
    event("evt_1", "succeeded", 0, payment="pay_1", money=kes(DUE.minor + 10)),
    event("evt_2", "refunded", 1, money=kes(4), **_REFUND),
)


TIPPED = history_of(
    event("evt_1", "succeeded", 0, payment="pay_1", money=kes(DUE.minor + 10),
          parts=(Part(kind="tip", money=kes(4)),)),
)  # fmt: skip


@for_each(
    ("broken", "seen"),
    [
        (sums_added_to_movements, SUM),
        (reopened_deducted_twice, REOPENED),
        (surplus_of_what_came, SURPLUS),
        (surplus_with_what_is_on_top, TIPPED),
    ],
)
def test_law_9_catches_money_that_goes_back_twice(broken: laws.Fold, seen: History) -> None:
    laws.conservation_law(fold, seen, NOW)
    with pytest.raises(AssertionError):
        laws.conservation_law(broken, seen, NOW)


def says_otherwise(**fields: Any) -> laws.Fold:
    """Make a fold that changes every event in this way."""

    def broken(seen: History, **given: Any) -> Ledger:
        said = [replace(d, event=replace(d.event, **fields)) for d in seen.deliveries]
        return fold(replace(seen, deliveries=frozenset(said)), **given)

    return broken


def last_word_only(seen: History, **given: Any) -> Ledger:
    """Judge by the first event and the last."""
    said = sorted(seen.deliveries, key=lambda d: d.received_at)
    return fold(replace(seen, deliveries=frozenset((said[0], said[-1]))), **given)


def doubt_of_the_order(seen: History, **given: Any) -> Ledger:
    """Make the whole order unresolved for one payment's doubt, and for any surplus."""
    ledger = fold(seen, **given)
    doubtful = {"conflicting_amounts", "amount_off_by_minor_unit", "overpaid", "paid_twice"}
    if doubtful.isdisjoint(finding.code for finding in ledger.findings):
        return ledger
    return replace(ledger, outcome="unresolved", fulfillable=False)


UNDER_WAY = history_of(PAID, event("evt_2", "refund_pending", 1, money=kes(10), **_REFUND))
FAILED = history_of(
    PAID,
    event("evt_2", "refunded", 1, payment="pay_1", movement="re_9", money=kes(10)),
    event("evt_3", "refund_failed", 2, money=kes(10), **_REFUND),
)
OPEN = history_of(PAID, event("evt_2", "disputed", 1, **_DISPUTE))


@for_each("seen", [UNDER_WAY, OPEN])
def test_law_10_catches_a_fold_that_forgets_what_goes_back(seen: History) -> None:
    more = delivery("d_t", 60, event("evt_t", "canceled", 60, payment="pay_2"))
    laws.direction_law(fold, seen, more, NOW)
    with pytest.raises(AssertionError):
        laws.direction_law(last_word_only, seen, more, NOW)


def test_law_10_catches_a_refund_of_any_name_undone_by_a_failure() -> None:
    more = delivery("d_t", 60, event("evt_t", "refund_pending", 1, money=kes(1), **_REFUND))
    laws.direction_law(fold, FAILED, more, NOW)

    def broken(seen: History, **given: Any) -> Ledger:
        blind = len(seen.deliveries) > len(FAILED.deliveries)
        return (says_otherwise(movement="re_1") if blind else fold)(seen, **given)

    with pytest.raises(AssertionError):
        laws.direction_law(broken, FAILED, more, NOW)


@for_each("minor", [DUE.minor * 100, 10])
def test_law_10_catches_doubt_and_surplus_that_spread_to_the_order(minor: int) -> None:
    said = event("s1", "succeeded", 9, payment="pay_s", money=kes(minor))
    strange = [delivery("s1", 9, said)]
    laws.stranger_law(fold, history_of(PAID), strange, NOW)
    with pytest.raises(AssertionError):
        laws.stranger_law(doubt_of_the_order, history_of(PAID), strange, NOW)


def test_law_10_catches_unconfirmed_words_that_count() -> None:
    said = event(
        "s1", "unrecognized", 9, payment="pay_s", kind="refund.created", standing="unconfirmed"
    )
    strange = [delivery("s1", 9, said)]
    laws.stranger_law(fold, history_of(PAID), strange, NOW)
    with pytest.raises(AssertionError):
        laws.stranger_law(says_otherwise(standing="said"), history_of(PAID), strange, NOW)
