"""The words of a report: what a reason or finding means for many orders at once.

Leaves out: facts. `reasons` speaks of one order and names its amounts, attempts and dates; a row
of a report speaks of a hundred.
"""

from __future__ import annotations

from typing import Final

from reconcile.ledger.ledger import FindingCode

REASON_WORDS: Final[dict[str, str]] = {
    "paid_in_full": "Paid in full",
    "paid_amount_unconfirmed": "Paid, and nobody has said what the order costs",
    "paid_several_times": "Paid more than once; a refund is owed",
    "overpayment_returned": "Paid, and what came beyond the price given back",
    "paid_with_surplus": "Paid, and more than is due; a refund is owed",
    "paid_with_surplus_returned_in_part": "Paid, and some of what came beyond the price given back",
    "charged_back": "All of the captured money has gone back, some of it in lost disputes",
    "charged_back_in_part": "Some of the captured money was lost in a dispute",
    "amount_off_by_factor": "An amount in minor units was taken for major units",
    "returned_in_other_currency": "Money went back in another currency than came",
    "canceled_after_capture": "A payment was captured, and then said to be canceled",
    "returned_more_than_captured": "More went back on one payment than came on it",
    "canceled_by_shop": "The shop canceled the order",
    "price_unknown": "What the order costs is not known",
    "price_of_nothing": "An event says that the order costs nothing",
    "price_not_of_shop": "The shop itself has not said what the order costs",
    "held_back": "Held back until a person releases it",
    "money_may_go_back": "Money may be on its way back",
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
    "confirmation_awaited": "The provider has not confirmed an event",
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
    "dispute_won": "A dispute was won",
    "price_changed": "The shop changed the price",
    "dispute_open": "A dispute is open",
    "dispute_lost": "A dispute was lost",
    "refund_pending": "A refund is under way",
    "refund_failed": "A refund failed, and the money did not go back",
    "overpaid": "More is held than the order costs; it is owed back",
    "other_currency_received": "Money came in another currency than the order's; it is owed back",
    "unread_money_event": "An event speaks of money going back, and its profile does not know it",
    "held_back": "Held back until a person releases it",
}


def reason_words(code: str) -> str:
    """What a reason's code means for many orders; the code itself where it is not known here."""
    return REASON_WORDS.get(code, code.replace("_", " "))


def finding_words(code: str) -> str:
    """What a finding's code means for many orders."""
    return {str(known): words for known, words in FINDING_WORDS.items()}.get(code, code)
