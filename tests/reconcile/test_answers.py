"""Answers to a customer and tasks of staff, for every outcome beside every finding that can occur.

The table is `tests/golden/answers.txt`. It is made of the scenarios, and of every pair of claims in
every way in which they can stand to each other, unshipped, shipped and canceled. Of the ledgers of
one pair it shows the one with the fewest findings.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest

from reconcile.instants import DAY
from reconcile.ledger import plain
from reconcile.ledger.declines import EXPIRED, FUNDS, customer_words
from reconcile.ledger.events import CLAIM_KINDS
from reconcile.ledger.explain import finding_text, ledger_document, ledger_summary
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import OUTCOMES, Ledger
from reconcile.ledger.records import Record
from reconcile.ledger.vocabulary import FINDING_CODES
from tests.reconcile.build import DUE, POLICY, delivery, event, history, record, seconds
from tests.reconcile.pinned import same_text
from tests.reconcile.scenario_table import all_scenarios, moment
from tests.reconcile.test_pinned import histories_of, ledgers_of
from tests.rows import for_each

NONE: Final = "nothing else"

SHOP: Final[dict[str, tuple[Record, ...]]] = {
    "": (),
    "shipped": (record("rec_2", "order_fulfilled", 35),),
    "canceled": (record("rec_2", "order_canceled", 35),),
}
"""Acts of the shop after the claims."""


def every_ledger() -> Iterator[tuple[str, Ledger]]:
    """Yield a name of what the shop did, and a ledger."""
    for scenario in all_scenarios():
        for ledger in ledgers_of(scenario):
            filed = ledger.case.filed
            yield "shipped" if filed.fulfilled else "canceled" if filed.canceled else "", ledger
    for first, second in product(CLAIM_KINDS, CLAIM_KINDS):
        for _, known in histories_of(first, second):
            for name, records in SHOP.items():
                yield name, fold(known | history(*records), policy=POLICY, as_of=seconds(40))


def table() -> str:
    """Return the rows by outcome and finding, with the sentences one a line."""
    shown: dict[tuple[str, str, str], Ledger] = {}
    for done, ledger in every_ledger():
        codes: set[str] = {each.code for each in ledger.findings}
        for finding in codes or {NONE}:
            key = (ledger.outcome, finding, done)
            if key not in shown or len(ledger.findings) < len(shown[key].findings):
                shown[key] = ledger
    order: dict[str, int] = {code: n for n, code in enumerate((NONE, *FINDING_CODES))}
    lines = []
    for outcome, finding, done in sorted(
        shown, key=lambda key: (OUTCOMES.index(key[0]), order[key[1]], key[2])
    ):
        ledger = shown[outcome, finding, done]
        lines.append(f"== {outcome}, {finding}{f', {done}' if done else ''}")
        lines += [f"customer  {each}" for each in plain.plain_answer(ledger)]
        lines += [f"staff     {each}" for each in plain.staff_answer(ledger)]
    return "\n".join([*lines, ""])


@pytest.mark.slow
def test_both_answers_are_as_the_table_has_them() -> None:
    """`TALLYHOOK_GOLDEN=write` writes the table anew; read it line by line."""
    same_text("answers.txt", table())


def _last(name: str, at: str = "") -> Ledger:
    """Return the ledger of a scenario at its last row, or at that time."""
    (scenario,) = [each for each in all_scenarios() if each.name == name]
    when = scenario.expected[-1].as_of if not at else moment(at)
    return fold(scenario.history(), policy=scenario.policy, as_of=when)


def test_what_is_on_its_way_is_not_given_back_again() -> None:
    """Both figures are shown, and the refund is subtracted also when it is overdue."""
    name = "a surplus whose refund is under way is owed back once"
    for at in ("3s", "10d3s"):
        ledger = _last(name, at)
        totals: Any = ledger_document(ledger)["totals"]
        assert (totals["owed_back"]["amount"], totals["on_its_way"]["amount"]) == ("0.00", "90.00")
        answer, staff = plain.plain_answer(ledger), plain.staff_answer(ledger)
        owed = "EUR 90.00 is to be given back, and all of it is already on its way."
        assert owed in answer
        assert not [each for each in staff if each.startswith("Give back")]
    part = _last("a surplus of which a part is on its way")
    assert "Give back EUR 50.00: EUR 90.00 is owed, and EUR 40.00 of it is on its way already." in (
        plain.staff_answer(part)
    )
    assert ledger_document(part)["totals"]["owed_back"] == {"amount": "50.00", "currency": "EUR"}


def test_a_refund_is_overdue_at_the_day_that_was_announced() -> None:
    name = "a surplus whose refund is under way is owed back once"
    before, after = _last(name, "10d2s"), _last(name, "10d3s")
    assert before.next_decision_at == after.as_of
    assert "refund_overdue" not in {each.code for each in before.findings}
    said = "The refund of EUR 90.00 is overdue at the payment service: ask there before you refund"
    assert f"{said} again." in plain.staff_answer(after)
    slow = replace(POLICY, refund_window=11 * DAY)
    (scenario,) = [each for each in all_scenarios() if each.name == name]
    later = fold(scenario.history(), policy=slow, as_of=after.as_of)
    assert "refund_overdue" not in {each.code for each in later.findings}


def test_a_refund_of_an_unknown_amount_may_be_all_that_is_owed() -> None:
    paid = [delivery(f"d{n}", n, event(f"e{n}", "succeeded", n, payment=f"pay_{n}", money=DUE))
            for n in (1, 2)]  # fmt: skip
    back = delivery("d3", 3, event("e3", "refund_pending", 3, payment="pay_2", movement="re_1"))
    placed = record("rec_1", "order_placed", 0, money=DUE)
    ledger = fold(history(placed, *paid, back), policy=POLICY, as_of=seconds(9))
    totals = ledger_document(ledger)["totals"]
    assert (totals["owed_back"], totals["on_its_way"]) == (None, None)
    assert not [each for each in plain.staff_answer(ledger) if each.startswith("Give back")]


@for_each("code", [
    "stolen_card", "fraudulent", "pickup_card", "merchant_blacklist", "lost_card",
    "restricted_card", "security_violation", "FRAUD", "Acquirer Fraud", "Blocked Card",
    "FRAUD-CANCELLED", "Issuer Suspected Fraud", "a code of tomorrow",
])  # fmt: skip
def test_a_customer_never_hears_a_reason_that_is_not_theirs_to_hear(code: str) -> None:
    """It reads like a decline without any reason; staff see the code, and not to tell it."""
    told = []
    for reason in (code, None):
        said = event("e1", "declined", 1, payment="pay_1", reason=reason)
        ledger = fold(history(delivery("d1", 1, said)), policy=POLICY, as_of=seconds(9))
        told.append((plain.plain_answer(ledger), ledger_summary(ledger)["plain"]))
    assert told[0] == told[1]
    assert customer_words(code) is None


def test_a_customer_hears_a_reason_that_helps() -> None:
    for code, words in (("insufficient_funds", FUNDS), ("Not enough balance", FUNDS),
                        ("expired_card", EXPIRED), ("Expired Card", EXPIRED)):  # fmt: skip
        said = event("e1", "declined", 1, payment="pay_1", reason=code)
        ledger = fold(history(delivery("d1", 1, said)), policy=POLICY, as_of=seconds(9))
        assert plain.plain_headline(ledger) == f"The payment was declined: {words}."
        assert f"The payment service's code for it is {code}." in plain.staff_answer(ledger)


@for_each(("dated", "arrived", "words"), [
    (10, 3_000, "The payment was made in time, on 20 November 2026, 10:00 UTC, but we learned of "
                "it only on 20 November 2026, 10:50 UTC"),
    (2_900, 3_000, "The payment was made on 20 November 2026, 10:48 UTC, after we had stopped"),
])  # fmt: skip
def test_a_late_message_is_not_a_late_payment(dated: int, arrived: int, words: str) -> None:
    begun = delivery("d1", 1, event("e1", "pending", 1, payment="pay_1", money=DUE))
    paid = delivery("d2", arrived, event("e2", "succeeded", dated, payment="pay_1", money=DUE))
    ledger = fold(history(begun, paid), policy=POLICY, as_of=seconds(4_000))
    (found,) = [each for each in ledger.findings if each.code == "success_after_deadline"]
    assert plain.plain_finding(found).startswith(words)


def test_a_success_after_the_service_gave_up_is_not_said_to_have_missed_our_deadline() -> None:
    ended = delivery("d1", 1, event("e1", "timed_out", 1, payment="pay_1"))
    paid = delivery("d2", 9, event("e2", "succeeded", 9, payment="pay_1", money=DUE))
    ledger = fold(history(ended, paid), policy=POLICY, as_of=seconds(9))
    (found,) = [each for each in ledger.findings if each.code == "success_after_deadline"]
    assert plain.plain_finding(found).endswith("after the payment service had given it up.")


def test_nothing_is_said_to_be_a_payment_before_it_is_confirmed() -> None:
    """What came may be a cancellation."""
    said = event("e1", "pending", 1, payment="pay_1", standing="unconfirmed", kind="canceled")
    ledger = fold(history(delivery("d1", 1, said)), policy=POLICY, as_of=seconds(9))
    assert plain.plain_headline(ledger) == (
        "A message about the payment came, but the payment service has not confirmed it yet."
    )


@for_each(("name", "words"), [
    ("a reversal of another amount than was paid",
     "Paid EUR 90.00. The payment was taken back, and the message about it names EUR 40.00: we "
     "cannot say whether all of it has gone back."),
    ("money that was reserved, and released",
     "The money was reserved, and has been released: it was never taken."),
    ("money that was reserved, until the reservation ended",
     "The money was reserved, and has been released: it was never taken."),
])  # fmt: skip
def test_what_was_once_said_falsely_is_said_as_it_is(name: str, words: str) -> None:
    assert plain.plain_headline(_last(name)) == words


def test_one_decline_that_two_events_report_is_not_counted_twice() -> None:
    ledger = _last("one decline that two events report")
    assert finding_text(ledger.findings[0]) == (
        "Paid by pay_1 after an earlier try had failed [e1, e2, e3]."
    )
