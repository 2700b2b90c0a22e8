"""The words of a report: what a reason or finding means for many orders at once.

Leaves out: facts. `reasons` speaks of one order and names its amounts, attempts and dates; a row
of a report speaks of a hundred.
"""

from __future__ import annotations

from typing import Final

from reconcile.ledger import FindingCode

REASON_WORDS: Final[dict[str, str]] = {
    "paid_in_full": "Paid in full",
    "paid_amount_unconfirmed": "Paid, and nobody has said what the order costs",
    "paid_several_times": "Paid more than once; a refund is owed",
    "overpayment_returned": "Paid more than once, and the surplus given back",
    "overpayment_returned_in_part": "Paid more than once, and a part of the surplus given back",
    "refunded_in_full": "All of the captured money was given back",
    "refunded_in_part": "A part of the captured money was given back",
    "dispute_open": "The customer disputes the payment, and the dispute is open",
    "dispute_without_payment": "A dispute came and went, and no payment is known",
    "amount_differs": "The captured sum is not what the order costs",
    "currency_differs": "The money that moved is not all in the currency of the order",
    "amounts_conflict": "Events state different amounts for one movement",
    "amount_not_stated": "Money moved, and no event says how much",
    "bodies_disagree": "One event id came with bodies that disagree",
    "reference_shared": "A reference is claimed for this order and for another",
    "order_amounts_conflict": "Events disagree on what the order costs",
    "refund_before_payment": "Money was given back, and no payment is known",
    "money_reserved": "The money is reserved and not yet taken",
    "still_open": "No final event yet, and the deadline is ahead",
    "confirmation_awaited": "The provider is being asked to confirm an event",
    "last_word_event_says_declined": "The last attempt was declined",
    "last_word_event_says_canceled": "The last attempt was canceled",
    "last_word_event_says_expired": "The last attempt expired",
    "last_word_event_says_timed_out": "The provider gave the last attempt up",
    "last_word_no_final_event_by_deadline": "No final event had come by the deadline",
    "last_word_session_refused": "The provider refused to open a session",
    "canceled_by_merchant": "Canceled by the shop before any payment was attempted",
    "nothing_attempted": "No payment was started",
    "nothing_known": "Nobody has told us anything of the order",
}

FINDING_WORDS: Final[dict[FindingCode, str]] = {
    "redelivered": "An event was delivered more than once; it counts once",
    "semantic_duplicate": "Several events state one movement; they count as one",
    "out_of_order": "Events arrived in another order than they occurred",
    "delivered_late": "An event was long on its way",
    "recovered_on_later_attempt": "Paid by a later attempt, after one that failed",
    "success_after_deadline": "The success came after the attempt had been given up",
    "contradictory_claims": "Events claim things that exclude each other",
    "unrecognized_event": "The profile does not know the kind of an event",
    "dated_in_future": "An event is dated after its arrival",
    "order_unknown": "The shop has told us nothing of the order",
    "session_unknown": "A session was asked for and no answer came",
    "refund_without_payment": "Money was given back, and no payment is known",
    "paid_but_not_fulfilled": "Paid, and the shop has not said that it was fulfilled",
    "same_id_different_body": "One event id came with different bodies",
    "conflicting_amounts": "Events state different amounts for one movement",
    "paid_twice": "Paid several times over; money is owed back",
    "amount_mismatch": "The captured money is not what the order costs",
    "amount_off_by_minor_unit": "Major units were taken for minor units, or the other way round",
    "currency_mismatch": "The captured money is not in the order's currency",
    "refund_exceeds_capture": "More was given back than had been captured",
    "fulfilled_but_not_paid": "Fulfilled, and not paid",
    "paid_after_cancel": "Money moved after the shop had canceled",
}


def reason_words(code: str) -> str:
    """What a reason's code means for many orders; the code itself where it is not known here."""
    return REASON_WORDS.get(code, code.replace("_", " "))


def finding_words(code: str) -> str:
    """What a finding's code means for many orders."""
    return {str(known): words for known, words in FINDING_WORDS.items()}.get(code, code)
