"""Answers beside evidence that is in no ledger: unread, refused and lost messages, and unallocated
payments.

The tables are `tests/golden/unheard_answers.txt` and, for orders on hold, `held_answers.txt`.
"""

import json
from dataclasses import replace
from typing import Any, Final

from reconcile.ledger import plain
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import HOLD_REASONS, Record
from reconcile.ledger.unheard import (
    NOTHING,
    LostSpan,
    MessageNotRead,
    PaymentOfNoOrder,
    SourceHeard,
    Unheard,
    unheard_document,
    unheard_of_document,
)
from tests.reconcile.build import DUE, POLICY, delivery, event, history, record, seconds
from tests.reconcile.pinned import same_text

MESSAGE: Final = MessageNotRead(
    delivery="dlv_1",
    source="shop",
    received_at=seconds(3),
    problem="It is not JSON.",
    names_order=True,
)
REFUSING: Final = SourceHeard(
    source="shop", last_read_at=seconds(1), refusing_since=seconds(60), refused=7
)
PAYMENT: Final = PaymentOfNoOrder(id="shop:p9", received_at=seconds(4), money=DUE)
GAP: Final = LostSpan(gap="gap_1", since=seconds(0), until=seconds(120))

MISSING: Final[dict[str, dict[str, Any]]] = {
    "nothing": {"unheard": Unheard(sources=(SourceHeard(source="shop"),), refused=2)},
    "an unreadable message": {"unheard": Unheard(messages=(MESSAGE,))},
    "two unreadable messages": {
        "unheard": Unheard(messages=(MESSAGE, replace(MESSAGE, delivery="dlv_2")))
    },
    "a source refuses everything": {"unheard": Unheard(sources=(REFUSING,), not_kept=3)},
    "requests were not kept": {"unheard": Unheard(not_kept=1_200)},
    "a gap was accepted": {"unheard": Unheard(gaps=(GAP,))},
    "a gap was accepted and looked at": {"unheard": Unheard(gaps=(replace(GAP, looked_at=True),))},
    "a payment of no order": {"unheard": Unheard(payments=(PAYMENT,))},
    "a payment of no order and no amount": {
        "unheard": Unheard(payments=(replace(PAYMENT, money=None),))
    },
    "statements of the shop were lost": {"forgotten": True},
    "statements were lost, and a delivery waits": {"forgotten": True, "behind_s": 7},
}
"""Evidence that is missing from a ledger, as `with_plain` takes it."""

PLACED: Final = record("r1", "order_placed", 0, money=DUE)
CANCELED: Final = record("r2", "order_canceled", 50)
FULFILLED: Final = record("r2", "order_fulfilled", 50)


def paid(number: int) -> Delivery:
    said = event(f"e{number}", "succeeded", number, payment=f"pay_{number}", money=DUE)
    return delivery(f"d{number}", number, said)


ORDERS: Final[dict[str, tuple[Delivery | Record, ...]]] = {
    "placed": (PLACED,),
    "paid": (PLACED, paid(1)),
    "paid twice": (PLACED, paid(1), paid(2)),
    "shipped": (PLACED, paid(1), FULFILLED),
    "canceled": (PLACED, CANCELED),
}


def ledger_of(*members: Delivery | Record) -> Ledger:
    return fold(history(*members), policy=POLICY, as_of=seconds(200))


def test_both_answers_beside_missing_evidence_are_as_the_table_has_them() -> None:
    """`TALLYHOOK_GOLDEN=write` writes the table anew; read it line by line."""
    lines = []
    for missing, given in MISSING.items():
        for order, members in ORDERS.items():
            ledger = ledger_of(*members)
            lines.append(f"== {missing}, {order}")
            lines += [f"customer  {each}" for each in plain.plain_answer(ledger, **given)]
            lines += [f"staff     {each}" for each in plain.staff_answer(ledger, **given)]
    same_text("unheard_answers.txt", "\n".join([*lines, ""]))


def test_the_words_on_a_held_order_are_as_the_table_has_them() -> None:
    """`TALLYHOOK_GOLDEN=write` writes the table anew; read it line by line."""
    lines = []
    for reason in HOLD_REASONS:
        for order, members in ORDERS.items():
            ledger = ledger_of(*members, record("r3", "held", 60, reason=reason))
            lines.append(f"== {reason}, {order}")
            lines.append(f"headline  {plain.plain_headline(ledger)}")
            lines += [f"customer  {each}" for each in plain.plain_answer(ledger)]
            lines += [f"staff     {each}" for each in plain.staff_answer(ledger)]
            for finding in ledger.findings:
                lines.append(f"finding   {plain.plain_finding(finding)}")
                lines.append(f"          {plain.staff_finding(finding)}".rstrip())
    same_text("held_answers.txt", "\n".join([*lines, ""]))


def test_what_happened_leaves_out_absence_and_unallocated_payments_beside_missing_evidence() -> (
    None
):
    placed, paid_ = ledger_of(PLACED), ledger_of(PLACED, paid(1))
    both = Unheard(messages=(MESSAGE,), payments=(PAYMENT,))
    assert plain.plain_outcome(placed, both) == (plain.UNREAD,)
    assert plain.plain_outcome(paid_, both) == (plain.UNREAD, "Paid in full: KES 1,500.00.")
    assert plain.plain_outcome(placed, Unheard(payments=(PAYMENT,))) == (
        "We have had no word of a payment for this order.",
    )


def test_only_refusals_lost_and_unkept_messages_make_absence_unproven() -> None:
    assert not NOTHING.may_lack
    assert not Unheard(
        sources=(SourceHeard(source="shop"),), refused=9, payments=(PAYMENT,)
    ).may_lack
    for each in (Unheard(sources=(REFUSING,)), Unheard(not_kept=1), Unheard(gaps=(GAP,))):
        assert each.may_lack
    silent = SourceHeard(source="till")
    assert Unheard(sources=(silent, REFUSING)).refusing == (REFUSING,)


def test_missing_evidence_is_read_back_as_it_was_written() -> None:
    whole = Unheard(
        sources=(REFUSING, SourceHeard(source="till")),
        messages=(MESSAGE,),
        payments=(PAYMENT, replace(PAYMENT, id="shop:p8", money=None)),
        refused=7,
        not_kept=3,
        gaps=(GAP, replace(GAP, gap="gap_2", looked_at=True)),
    )
    document = unheard_document(whole)
    assert unheard_of_document(json.loads(json.dumps(document))) == whole
    at = "2026-11-20T10:00:0{}Z"
    assert document == {
        "sources": [
            {
                "source": "shop",
                "last_read_at": at.format(1),
                "refusing_since": "2026-11-20T10:01:00Z",
                "refused": 7,
            },
            {"source": "till", "last_read_at": None, "refusing_since": None, "refused": 0},
        ],
        "unread": [
            {
                "delivery": "dlv_1",
                "source": "shop",
                "received_at": at.format(3),
                "problem": "It is not JSON.",
                "names_order": True,
            }
        ],
        "unallocated": [
            {
                "payment": "shop:p9",
                "received_at": at.format(4),
                "money": {"amount": "1500.00", "currency": "KES"},
            },
            {"payment": "shop:p8", "received_at": at.format(4), "money": None},
        ],
        "refused": 7,
        "not_kept": 3,
        "gaps": [
            {
                "gap": name,
                "since": at.format(0),
                "until": "2026-11-20T10:02:00Z",
                "looked_at": looked_at,
            }
            for name, looked_at in (("gap_1", False), ("gap_2", True))
        ],
    }
