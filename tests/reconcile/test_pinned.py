"""Fingerprints of ledgers: of every scenario at each instant at which one of its rows stands, and
of every pair of claims in the ways in which they can stand to each other. They are published: where
one changes for evidence that is as it was, whoever compares it takes that for news."""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from reconcile.instants import TICK, Instant
from reconcile.ledger.events import CLAIM_KINDS, ClaimKind
from reconcile.ledger.explain import ledger_document, ledger_summary
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.plain import plain_outcome, with_plain
from reconcile.ledger.policy import policy_text
from reconcile.ledger.revise import revise
from reconcile.money import Money
from tests.reconcile.build import DUE, POLICY, delivery, event, history, record, seconds
from tests.reconcile.pinned import DIGITS, check, digest
from tests.reconcile.scenario_table import Scenario, all_scenarios

PART: Final = Money(minor=50_000, currency="KES")

WAYS: Final[dict[str, tuple[int | None, dict[str, Any]]]] = {
    "alike": (20, {}),
    "dated before": (5, {}),
    "of the same moment": (10, {}),
    "not dated": (None, {}),
    "of another payment": (20, {"payment": "pay_2"}),
    "of another movement": (20, {"movement": "mv_2", "capture": "cap_2", "money": PART}),
    "of no payment": (20, {"payment": None, "session": None}),
    "of the session": (20, {"payment": None, "money": PART}),
    "of no amount": (20, {"money": None, "movement": None}),
    "of another amount": (20, {"money": PART}),
    "in another currency": (20, {"money": Money(minor=1_000, currency="USD")}),
    "not confirmed": (20, {"standing": "unconfirmed"}),
    "answered": (20, {"standing": "answered", "reason": "asked"}),
    "a sum": (20, {"refunded_total": PART, "money": None}),
}
"""Relations of the second of two claims to the first: its date, and its other values."""


def ledgers_of(scenario: Scenario) -> list[Ledger]:
    """Return its ledgers at every arrival and row, each next decision, and a tick before that."""
    every = scenario.history()
    moments = {each.received_at for each in every.deliveries}
    moments |= {each.recorded_at for each in every.records}
    moments |= {each.as_of for each in scenario.expected}
    found = {at: fold(every, policy=scenario.policy, as_of=at) for at in sorted(moments)}
    named = [each.next_decision_at for each in found.values()]
    for decision in sorted({each for each in named if each is not None}):
        for at in (Instant(decision - TICK), decision):
            found[at] = fold(every, policy=scenario.policy, as_of=at)
    return list(found.values())


def histories_of(first: ClaimKind, second: ClaimKind) -> Iterator[tuple[str, History]]:
    """Yield both claims in every way, on an unknown payment and on a captured one."""
    known: dict[str, Any] = {"payment": "pay_1", "session": "cs_1"}
    said = {**known, "money": DUE, "movement": "mv_1", "capture": "cap_1"}
    placed = record("rec_1", "order_placed", 0, money=DUE)
    paid = delivery("d0", 2, event("evt_0", "succeeded", 1, money=DUE, capture="cap_1", **known))
    one = delivery("d1", 30, event("evt_1", first, 10, **said))
    for name, (at, changed) in WAYS.items():
        other = delivery("d2", 40, event("evt_2", second, at, **{**said, **changed}))
        yield name, history(placed, one, other)
        yield f"{name}, captured", history(placed, paid, one, other)


def ledgers_of_pair(first: ClaimKind, second: ClaimKind) -> Iterator[tuple[str, Ledger]]:
    for name, known in histories_of(first, second):
        yield name, fold(known, policy=POLICY, as_of=seconds(40))


def mark_of(ledger: Ledger) -> str:
    return str(ledger_document(ledger)["fingerprint"])[-DIGITS:]


def test_every_ledger_of_the_scenarios_has_the_fingerprint_that_it_had() -> None:
    """By scenario, so that a change is easy to find."""
    lines = [
        f"{one.file}: {one.name} | {' '.join(map(mark_of, ledgers_of(one)))}"
        for one in all_scenarios()
    ]
    check("scenarios", lines)


def sentences_of(scenario: Scenario) -> list[str]:
    """Return all texts of each ledger: plain words, listing, and the revision that leads to it."""
    found, before = [], None
    for ledger in ledgers_of(scenario):
        document = ledger_document(ledger)
        plain = [with_plain(document, ledger, behind_s=behind)["plain"] for behind in (0, 7)]
        revision = revise(before, ledger)
        before = before if revision is None else revision.after
        sentences = [*plain, plain_outcome(ledger), ledger_summary(ledger), str(revision)]
        found.append(json.dumps(sentences))
    return [*found, policy_text(scenario.policy)]


def test_every_ledger_of_the_scenarios_is_reported_as_it_was() -> None:
    check("told", [
        f"{one.file}: {one.name} | {digest(' '.join(sentences_of(one)))}" for one in all_scenarios()
    ])  # fmt: skip


def test_every_pair_of_claims_has_the_fingerprints_that_it_had() -> None:
    check("pairs", [
        f"{first}, {second} | "
        + digest(" ".join(mark_of(each) for _, each in ledgers_of_pair(first, second)))
        for first in CLAIM_KINDS
        for second in CLAIM_KINDS
    ])  # fmt: skip


def main(words: str) -> None:
    """Print the documents of scenarios and pairs with this name."""
    reported = [(one.name, each) for one in all_scenarios() for each in ledgers_of(one)]
    for first in CLAIM_KINDS:
        for second in CLAIM_KINDS:
            for name, each in ledgers_of_pair(first, second):
                reported.append((f"{first}, {second}: {name}", each))
    for name, ledger in reported:
        if name.startswith(words):
            print(f"== {name}", json.dumps(ledger_document(ledger), indent=1), sep="\n")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
