"""The nine laws as checks of any fold: each takes the fold it judges and raises AssertionError.

They take the fold as a value so that a deliberately broken one can be given to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from reconcile.events import Delivery
from reconcile.explain import cited, ledger_document
from reconcile.history import History
from reconcile.instants import LATEST, Instant
from reconcile.ledger import Ledger
from tests.reconcile.build import POLICY, document_bytes

Fold = Callable[..., Ledger]


def _bytes(fold: Fold, history: History, as_of: Instant) -> bytes:
    return document_bytes(fold(history, policy=POLICY, as_of=as_of))


def parts(history: History) -> list[History]:
    """The history cut into histories of one member each."""
    order = history.order
    return [
        *(History(order=order, deliveries=frozenset([d])) for d in history.deliveries),
        *(History(order=order, records=frozenset([r])) for r in history.records),
    ]


def order_law(
    fold: Fold, history: History, orders: Iterable[Sequence[Any]], *, as_of: Instant
) -> int:
    """1. Any arrival order gives the byte-identical ledger. Returns how many orders were tried.

    Each order is given twice: as the very sequence the fold iterates over, which no set could
    scramble back, and as a set made by union, member by member.
    """
    expected, tried = _bytes(fold, history, as_of), 0
    for members in orders:
        arrived = [m for m in members if isinstance(m, Delivery)]
        noted = [m for m in members if not isinstance(m, Delivery)]
        seen: Any = History(order=history.order, deliveries=arrived, records=noted)
        assert _bytes(fold, seen, as_of) == expected, list(members)
        tried += 1
    return tried


def union_law(fold: Fold, history: History, ones: Sequence[History], *, as_of: Instant) -> None:
    """1. The same, by unioning one member at a time in this order."""
    joined = reduce(or_, ones, History(order=history.order))
    assert joined == history
    assert _bytes(fold, joined, as_of) == _bytes(fold, history, as_of)


def duplication_law(fold: Fold, history: History, again: Delivery, *, as_of: Instant) -> None:
    """2. Union with itself changes nothing; one more arrival changes only counts."""
    assert history | history == history
    assert _bytes(fold, history | history, as_of) == _bytes(fold, history, as_of)
    more = history | History(order=history.order, deliveries=frozenset([again]))
    before, after = (fold(h, policy=POLICY, as_of=as_of) for h in (history, more))
    assert without_counts(before) == without_counts(after)


def without_counts(ledger: Ledger) -> dict[str, Any]:
    """The document without what one more delivery of a known event may change."""
    document = ledger_document(ledger)
    for name in ("fingerprint", "explanation"):
        del document[name]
    document["findings"] = [f for f in document["findings"] if f["code"] != "redelivered"]
    for row in document["timeline"]:
        del row["deliveries"], row["note"]
    return document


def grouping_law(fold: Fold, history: History, groups: Sequence[History], as_of: Instant) -> None:
    """3. Any split, folded piece by piece on the way and rejoined, is the same."""
    expected = _bytes(fold, history, as_of)
    joined = History(order=history.order)
    for group in groups:
        fold(group, policy=POLICY, as_of=as_of)
        joined = joined | group
        fold(joined, policy=POLICY, as_of=as_of)
    assert joined == history
    assert _bytes(fold, joined, as_of) == expected
    left = reduce(lambda so_far, group: group | so_far, groups, History(order=history.order))
    assert _bytes(fold, left, as_of) == expected


def growth_law(fold: Fold, history: History, earlier: Instant, later: Instant) -> None:
    """4. Earlier knowledge is a subset of later."""
    before, after = history.known_at(earlier), history.known_at(later)
    assert before.deliveries <= after.deliveries
    assert before.records <= after.records
    heard = _heard(fold(history, policy=POLICY, as_of=earlier))
    more = _heard(fold(history, policy=POLICY, as_of=later))
    for key, (count, first) in heard.items():
        assert key in more, f"{key} was known and is not any longer"
        assert more[key][0] >= count
        assert more[key][1] == first


def _heard(ledger: Ledger) -> dict[tuple[str, str, str], tuple[int, Instant]]:
    return {h.event.key: (h.count, h.first) for h in ledger.case.heard + ledger.case.foreign}


def time_travel_law(fold: Fold, history: History, as_of: Instant) -> None:
    """5. fold(h, as_of=t) == fold(h.known_at(t), as_of=t)."""
    assert _bytes(fold, history, as_of) == _bytes(fold, history.known_at(as_of), as_of)


def locality_law(fold: Fold, history: History, others: History, as_of: Instant) -> None:
    """6. What concerns only other orders changes nothing."""
    crowded = History(
        order=history.order,
        deliveries=history.deliveries | others.deliveries,
        records=history.records | others.records,
    )
    assert _bytes(fold, crowded, as_of) == _bytes(fold, history, as_of)


def honest_law(fold: Fold, history: History, as_of: Instant) -> None:
    """7. Folding only the cited evidence gives the same outcome."""
    ledger = fold(history, policy=POLICY, as_of=as_of)
    again = fold(history.only(cited(ledger)), policy=POLICY, as_of=as_of)
    assert again.outcome == ledger.outcome, (ledger.reasons, again.reasons)


def quiet_law(fold: Fold, history: History, as_of: Instant) -> None:
    """8. Nothing changes before next_decision_at, and something does at it."""
    known = history.known_at(as_of)
    ledger = fold(known, policy=POLICY, as_of=as_of)
    now, change = timeless(ledger), ledger.next_decision_at
    assert change is None or change > as_of
    for moment in _moments(ledger):
        if as_of <= moment and (change is None or moment < change):
            then = timeless(fold(known, policy=POLICY, as_of=moment))
            assert then == now, f"changed at {moment}, {change} was announced"
    if change is not None:
        assert timeless(fold(known, policy=POLICY, as_of=change)) != now, "nothing changed"


def timeless(ledger: Ledger) -> dict[str, Any]:
    """The document without its instant."""
    document = ledger_document(ledger)
    del document["as_of"], document["fingerprint"]
    return document


def _moments(ledger: Ledger) -> list[Instant]:
    """Every instant at which anything at all could be due, and its neighbours."""
    change = ledger.next_decision_at
    dates = {ledger.as_of, LATEST, *((change,) if change is not None else ())}
    dates |= {a.deadline for a in ledger.attempts if a.deadline is not None}
    for heard in ledger.case.heard:
        for base in (heard.at, heard.first):
            dates |= {base, base + POLICY.payment_window + POLICY.grace, base + POLICY.late_after}
            dates.add(base + (POLICY.fulfillment_window or 0))
    return sorted({d + nudge for d in dates for nudge in (-1, 0) if 0 <= d + nudge <= LATEST})


def conservation_law(fold: Fold, history: History, as_of: Instant) -> None:
    """9. Captured less refunded is the sum of the entries, in every currency."""
    ledger = fold(history, policy=POLICY, as_of=as_of)
    sums: dict[str, int] = {}
    for entry in ledger.entries:
        sums[entry.money.currency] = sums.get(entry.money.currency, 0) + entry.money.minor
        assert (entry.money.minor >= 0) == (entry.kind == "captured") or entry.money.minor == 0
    assert sums == {b.currency: b.captured - b.refunded for b in ledger.balances}
    captured = {b.currency: b.captured for b in ledger.balances}
    for currency, total in captured.items():
        taken = [e.money.minor for e in ledger.entries if e.kind == "captured"
                 and e.money.currency == currency]  # fmt: skip
        assert total == sum(taken)
