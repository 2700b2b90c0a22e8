"""The ten laws as checks of any fold: each takes the fold it judges and raises AssertionError.

They take the fold as a value so that a deliberately broken one can be given to them.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any, get_args

from reconcile.instants import LATEST, Instant
from reconcile.ledger.events import ClaimKind, Delivery
from reconcile.ledger.explain import cited, ledger_document
from reconcile.ledger.history import History
from reconcile.ledger.ledger import EntryKind, Ledger
from reconcile.money import Money
from tests.reconcile.build import POLICY, document_bytes

Fold = Callable[..., Ledger]


def _bytes(fold: Fold, history: History, as_of: Instant) -> bytes:
    return document_bytes(fold(history, policy=POLICY, as_of=as_of))


def parts(history: History) -> list[History]:
    order = history.order
    return [
        *(History(order=order, deliveries=frozenset([d])) for d in history.deliveries),
        *(History(order=order, records=frozenset([r])) for r in history.records),
    ]


def order_law(
    fold: Fold, history: History, orders: Iterable[Sequence[Any]], *, as_of: Instant
) -> int:
    """1. Check that any order of arrival gives the same bytes; return how many were tried.

    Each order is given twice: as the sequence over which the fold iterates, and as a set made by
    union, member by member.
    """
    expected, tried = _bytes(fold, history, as_of), 0
    for members in orders:
        arrived = [m for m in members if isinstance(m, Delivery)]
        noted = [m for m in members if not isinstance(m, Delivery)]
        # Lists, which no caller may give: they are iterated in the order that is wanted here.
        seen: Any = History(order=history.order, deliveries=arrived, records=noted)  # type: ignore[arg-type]
        assert _bytes(fold, seen, as_of) == expected, list(members)
        tried += 1
    return tried


def union_law(fold: Fold, history: History, ones: Sequence[History], *, as_of: Instant) -> None:
    """1. Check the same for unioning one member at a time in this order."""
    joined = reduce(or_, ones, History(order=history.order))
    assert joined == history
    assert _bytes(fold, joined, as_of) == _bytes(fold, history, as_of)


def duplication_law(fold: Fold, history: History, again: Delivery, *, as_of: Instant) -> None:
    """2. Check that union with itself changes nothing, and one more arrival only counts."""
    assert history | history == history
    assert _bytes(fold, history | history, as_of) == _bytes(fold, history, as_of)
    more = history | History(order=history.order, deliveries=frozenset([again]))
    before, after = (fold(h, policy=POLICY, as_of=as_of) for h in (history, more))
    assert without_counts(before) == without_counts(after)


def without_counts(ledger: Ledger) -> dict[str, Any]:
    """Return the document without what a redelivery may change."""
    document: dict[str, Any] = {**ledger_document(ledger)}
    for name in ("fingerprint", "explanation"):
        del document[name]
    document["findings"] = [f for f in document["findings"] if f["code"] != "redelivered"]
    for row in document["timeline"]:
        del row["deliveries"], row["note"]
    return document


def grouping_law(fold: Fold, history: History, groups: Sequence[History], as_of: Instant) -> None:
    """3. Check that any split, folded piece by piece and rejoined, is the same."""
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
    """4. Check that earlier knowledge is a subset of later."""
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
    case = ledger.case
    return {h.event.key: (h.count, h.first) for h in case.heard + case.foreign + case.moved}


def time_travel_law(fold: Fold, history: History, as_of: Instant) -> None:
    """5. Check that fold(h, as_of=t) == fold(h.known_at(t), as_of=t)."""
    assert _bytes(fold, history, as_of) == _bytes(fold, history.known_at(as_of), as_of)


def locality_law(fold: Fold, history: History, others: History, as_of: Instant) -> None:
    """6. Check that evidence about other orders changes nothing."""
    crowded = History(
        order=history.order,
        deliveries=history.deliveries | others.deliveries,
        records=history.records | others.records,
    )
    assert _bytes(fold, crowded, as_of) == _bytes(fold, history, as_of)


def honest_law(fold: Fold, history: History, as_of: Instant) -> None:
    """7. Check that folding only the cited evidence gives the same outcome, and that no entry
    cites an id twice."""
    ledger = fold(history, policy=POLICY, as_of=as_of)
    for entry in ledger.entries:
        assert len(entry.cites) == len(set(entry.cites)), entry.cites
    again = fold(history.only(cited(ledger)), policy=POLICY, as_of=as_of)
    assert again.outcome == ledger.outcome, (ledger.reasons, again.reasons)


def quiet_law(fold: Fold, history: History, as_of: Instant) -> None:
    """8. Check that nothing changes before next_decision_at, and something does at it."""
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
    document: dict[str, Any] = {**ledger_document(ledger)}
    del document["as_of"], document["fingerprint"]
    return document


def _moments(ledger: Ledger) -> list[Instant]:
    """Return every instant at which anything could be due, and its neighbours."""
    change = ledger.next_decision_at
    dates = {ledger.as_of, LATEST, *((change,) if change is not None else ())}
    dates |= {a.deadline for a in ledger.attempts if a.deadline is not None}
    for heard in ledger.case.heard:
        for base in (heard.at, heard.first):
            dates |= {base, base + POLICY.payment_window + POLICY.grace, base + POLICY.late_after}
            dates.add(base + (POLICY.fulfillment_window or 0))
            dates.add(base + POLICY.refund_window)
    return sorted({d + nudge for d in dates for nudge in (-1, 0) if 0 <= d + nudge <= LATEST})


def conservation_law(fold: Fold, history: History, as_of: Instant) -> None:
    """9. Check the sums of money.

    Captured less refunded, reversed and lost is the sum of the entries in every currency. Held is
    that sum in the order's currency less open disputes. Without payments in doubt, the surplus is
    what held less on top exceeds the price by.
    """
    ledger = fold(history, policy=POLICY, as_of=as_of)
    for balance in ledger.balances:
        own = [e for e in ledger.entries if e.money.currency == balance.currency]
        sums = {k: sum(e.money.minor for e in own if e.kind == k) for k in get_args(EntryKind)}
        assert sums == {
            "captured": balance.captured,
            "refunded": -balance.refunded,
            "reversed": -balance.reversed,
            "dispute_lost": -balance.lost,
        }
        assert sum(sums.values()) == balance.captured - balance.returned
    assert {e.money.currency for e in ledger.entries} <= {b.currency for b in ledger.balances}
    if ledger.held is not None:
        _held_law(ledger, ledger.held)


def _held_law(ledger: Ledger, held: Money) -> None:
    sums = [e.money.minor for e in ledger.entries if e.money.currency == held.currency]
    if not any(f.code == "dispute_open" for f in ledger.findings):
        assert held.minor == sum(sums)
    assert held.minor <= sum(sums)
    owed = [dict(f.facts) for f in ledger.findings if f.code in ("overpaid", "paid_twice")]
    doubtful = any(
        f.code == "contradictory_claims" or f.severity == "error"
        for f in ledger.findings
        if f.code not in ("overpaid", "paid_twice")
    )
    if owed and ledger.expected is not None and not doubtful:
        surplus = owed[0].get("surplus", owed[0].get("owed"))
        on_top = sum(part.money.minor for part in ledger.on_top)
        beyond = held.minor - on_top - ledger.expected.minor
        assert surplus == Money(minor=beyond, currency=held.currency)


TAKES_AWAY: tuple[ClaimKind, ...] = (
    "refunded", "refund_pending", "reversed", "disputed", "dispute_lost", "canceled",
    "unrecognized",
)  # fmt: skip
"""Claims that take money away, or say that it may go; of `unrecognized` those whose kind does."""


def direction_law(fold: Fold, history: History, taking: Delivery, as_of: Instant) -> None:
    """10. Check that no event that takes money away makes an order fulfillable, except a part loss.

    The event names its payment and no price: another price changes the worth of the order, and an
    event that names only a session may say whose money another event is about.
    """
    assert taking.event.claim in TAKES_AWAY
    before = fold(history, policy=POLICY, as_of=as_of)
    more = history | History(order=history.order, deliveries=frozenset([taking]))
    after = fold(more, policy=POLICY, as_of=as_of)
    if _loses_in_part(taking, after):
        return
    assert before.fulfillable or not after.fulfillable, (before.reasons, before.withheld)


def _loses_in_part(taking: Delivery, after: Ledger) -> bool:
    """Return whether the event ends a dispute with a partial loss, which returns the rest."""
    return any(
        "not_lost" in dict(each.facts) and taking.event.event_id in each.cites
        for each in after.findings
        if taking.event.claim == "dispute_lost" and each.code == "dispute_lost"
    )


def stranger_law(
    fold: Fold, history: History, strangers: Sequence[Delivery], as_of: Instant
) -> None:
    """10. Check that no event of another payment stops a fulfillable order.

    Exceptions are a payment that returns more than it brought, or whose capture is unknown. The
    price is the shop's own. The stranger's payment names no other price, and no session or id of
    the order's own payments.
    """
    before = fold(history, policy=POLICY, as_of=as_of)
    more = history | History(order=history.order, deliveries=frozenset(strangers))
    after = fold(more, policy=POLICY, as_of=as_of)
    codes = {finding.code for finding in after.findings}
    exempt = {"refund_without_payment", "refund_exceeds_capture"}
    if any(each.event.claim in TAKES_AWAY for each in strangers):
        exempt |= {
            "conflicting_amounts"
        }  # which of the amounts came is not known, nor what is left
    if _lost_more_than_came(strangers):
        exempt |= {
            "dispute_open"
        }  # opened anew, the loss is no movement, and no finding of its own
    if before.fulfillable and not after.fulfillable:
        assert codes & exempt, (after.reasons, after.withheld)


def _lost_more_than_came(strangers: Sequence[Delivery]) -> bool:
    """Return whether a dispute that was once lost is over more than the payment surely brought."""
    said = [each.event for each in strangers if each.event is not None]
    if not any(each.claim == "dispute_lost" for each in said):
        return False
    came = [each.money for each in said if each.claim == "succeeded"]
    return any(
        each.money.minor > min([m.minor if m and m.currency == each.money.currency else 0
                                for m in came], default=0)
        for each in said
        if each.claim in ("disputed", "dispute_lost") and each.money is not None
    )  # fmt: skip
