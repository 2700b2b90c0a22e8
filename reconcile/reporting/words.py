"""Words for the codes in the report's cells."""

from collections.abc import Mapping
from typing import Final

from reconcile.matching.causes import CAUSES

OUTCOME_WORDS: Final[Mapping[str, str]] = {
    "succeeded": "Paid",
    "authorized": "Reserved, not yet taken",
    "pending": "Payment under way",
    "failed": "Declined",
    "canceled": "Canceled",
    "expired": "Expired",
    "timed_out": "No answer in time",
    "not_attempted": "No payment known",
    "refunded": "Refunded",
    "partially_refunded": "Partly refunded",
    "disputed": "Disputed",
    "charged_back": "Lost in a dispute",
    "unresolved": "To be resolved",
    "no_order": "No order known",
}

SUSPENSE_WORDS: Final[Mapping[str, str]] = {
    "opening": "At the start",
    "received": "Received",
    "assigned": "Assigned to orders",
    "refunded": "Given back",
    "other_business": "Other business",
    "closing": "At the end",
    "days_0_to_30": "Of that, 0 to 30 days old",
    "days_31_to_90": "Of that, 31 to 90 days old",
    "days_over_90": "Of that, over 90 days old",
}

AGE_WORDS: Final[Mapping[str, str]] = {
    "up_to_1_day": "Up to 1 day",
    "up_to_7_days": "2 to 7 days",
    "up_to_30_days": "8 to 30 days",
    "up_to_90_days": "31 to 90 days",
    "older": "Over 90 days",
}

FLOW_WORDS: Final[Mapping[str, str]] = {
    "captured": "Captured",
    "refunded": "Refunded",
    "lost_in_disputes": "Lost in disputes",
    "fees": "Fees",
    "net": "Net",
    "settled": "Settled",
    "not_settled": "Not settled yet",
    "differs": "Settled for less",
    "other_currency": "Settled in another currency",
    "not_notified": "Settled, no webhook read",
    "no_movement": "Settled, open or in doubt",
    "in_bank": "In the bank",
    "exchanged": "Exchanged by the bank",
    "bank_differs": "Less in the bank",
    "not_in_bank": "Not in the bank yet",
    "no_payout": "In no payout",
    "in_wallet": "Held at the provider",
}

BUCKET_WORDS: Final[Mapping[str, str]] = {
    **{code: cause.name for code, cause in CAUSES.items()},
    "by_reference": "Matched by reference",
    "by_payment": "Matched by payment",
    "by_group": "Matched as a group",
    "by_tolerance": "Matched within tolerance",
    "by_date_window": "Matched by amount and date",
    "by_hand": "Matched by hand",
    "by_exchange": "Matched in another currency",
    "by_tender": "Matched with a gift card or cash",
    "outside_providers": "Paid outside providers",
    "nothing_due": "Nothing due",
    "returned": "Arrived and returned",
    "fee_line": "Separate fee",
    "carried_line": "Carried over to or from another payout",
    "wallet_line": "Moved between balances and bank",
    "other_business": "Other business",
    "other_shop": "Another shop's",
    "awaiting_book": "Waits for the order book",
    "awaiting_money": "Waits for the money",
    "awaiting_settlement": "Waits for settlement",
    "awaiting_refund": "Waits for the refund",
    "awaiting_bank": "Waits for the bank",
    "awaiting_statement": "Waits for the statement",
    "not_covered": "Nothing to compare with",
}

SIDE_WORDS: Final[Mapping[str, str]] = {
    "book": "Order book",
    "takings": "Captured, against the book",
    "settlement": "Captured, against the statement",
    "statement": "Statement",
    "payouts": "Payouts",
    "bank": "Bank",
}

STEP_WORDS: Final[Mapping[str, str]] = {
    "opening": "Open at the start",
    "new": "New",
    "closed": "Finished",
    "closing": "Open at the end",
    "other": "Other, with money in the period",
}

GROUP_WORDS: Final[Mapping[str, str]] = {
    "success": "Paid",
    "failure": "Failed",
    "timeout": "Timed out",
    "open": "Open",
}

BASIS_WORDS: Final[Mapping[str, str]] = {
    "captured": "by the provider's date",
    "received": "by the date of receipt",
    "settled": "by the statement's date",
}

_ENTRY_WORDS: Final[Mapping[str, str]] = {
    "captured": "Payment",
    "refunded": "Refund",
    "reversed": "Reversal",
    "dispute_lost": "Dispute lost",
    "dispute_won": "Dispute won",
    "refund_failed": "Refund that failed",
}

CODE_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "outcome": OUTCOME_WORDS,
    "before": OUTCOME_WORDS,
    "after": OUTCOME_WORDS,
    "bucket": {**BUCKET_WORDS, **OUTCOME_WORDS},
    "cause": BUCKET_WORDS,
    "age": AGE_WORDS,
    "flow": {**FLOW_WORDS, "residual": "Left by rates and rounding"},
    "side": SIDE_WORDS,
    "step": STEP_WORDS,
    "line": SUSPENSE_WORDS,
    "group": GROUP_WORDS,
    "origin": {"file": "Your file of rates", "statement": "Statements"},
    "kind": _ENTRY_WORDS,
    "state": {},
    "family": {},
    "severity": {},
    "finding": {},
    "table": {},
}


def code_words(column: str, code: str) -> str:
    """Return the words for a code in a column."""
    known = CODE_WORDS[column].get(code)
    return code.replace("_", " ").capitalize() if known is None else known


_FIGURE_WORDS: Final[Mapping[str, str]] = {
    **BUCKET_WORDS,
    **OUTCOME_WORDS,
    **STEP_WORDS,
    **SIDE_WORDS,
    **FLOW_WORDS,
    "suspense": "Captured without an order",
    "control": "Orders by outcome",
    "flow": "Orders opened and finished",
}


def figure_words(figure: str) -> str:
    """Return the name of a figure in words."""
    parts = [_FIGURE_WORDS.get(part, part.replace("_", " ")) for part in figure.split("/")]
    return ", ".join([parts[0].capitalize(), *(each[:1].lower() + each[1:] for each in parts[1:])])
