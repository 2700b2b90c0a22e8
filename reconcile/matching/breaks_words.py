"""The words for every break: one sentence, and what to do next, from its code and facts alone.

Leaves out: what a break rests on; the cites stand beside the sentence.
"""

from __future__ import annotations

from typing import Final

from reconcile.ledger.reasons import filled
from reconcile.matching.breaks import Break, BreakCause, Candidate

SENTENCES: Final[dict[BreakCause, str]] = {
    "paid_not_in_book": "{captured} was received, and the order book does not have the order",
    "book_paid_not_received": "The order book says {status} for {booked}, and no payment is known",
    "book_unpaid_but_received": "{captured} was received, and the order book says {status}",
    "amount_differs": "{captured} was captured, and the {against} says {told}: {difference} apart",
    "off_by_minor_unit": "{captured} was captured, and the {against} says {told}, which differs by "
    "the factor {factor}: major units were taken for minor units, or the other way round",
    "currency_differs": "{captured} was captured, and the {against} says {told}: another currency",
    "paid_twice": "Paid more than once: {owed} of the {captured} captured is owed back",
    "overpaid": "{owed} of what was captured is beyond what the order costs, and owed back",
    "refund_not_in_book": "{refunded} was given back, and the order book has {booked_refund} of it",
    "refund_not_received": "The order book speaks of a refund, and none has come for all of it",
    "not_settled": "{captured} was captured, and no statement that reaches beyond {due_at} holds "
    "it",
    "settled_never_notified": "The statement has a {kind} of {settled} of which no webhook told us",
    "fee_unexpected": "The provider took a fee of {fee}; {expected_fee} was expected",
    "late_money": "{captured} was received after the order had been {why}",
    "unresolved": "The ledger of the order is unresolved; captured so far: {captured}",
    "payment_in_doubt": "The order is paid, and a further payment of it is in doubt, of up to "
    "{at_stake}",
    "ambiguous": "{captured} was captured, and several lines or orders fit it equally well",
}

NEXT_STEPS: Final[dict[BreakCause, str]] = {
    "paid_not_in_book": "Add the order to the book, or match it with one of the candidates, or "
    "refund it",
    "book_paid_not_received": "Ask the provider for the payment; if there is none, correct the "
    "book or match it with one of the candidates",
    "book_unpaid_but_received": "Mark the order as paid in the book, or refund the payment",
    "amount_differs": "Find out which amount is right, then correct the book or ask the provider",
    "off_by_minor_unit": "Check in which unit the amount is written, in the import's mapping "
    "and in the provider's profile, and correct it there",
    "currency_differs": "Find out which currency was agreed, then correct the book or ask the "
    "provider",
    "paid_twice": "Refund the surplus to the customer",
    "overpaid": "Refund the surplus to the customer",
    "refund_not_in_book": "Enter what went back in the book, as a refund or as a lost dispute",
    "refund_not_received": "Start the refund at the provider, or correct the book",
    "not_settled": "Ask the provider when it pays this out, by the payment's reference",
    "settled_never_notified": "Ask the provider to send the event again, and check that its "
    "webhooks reach us",
    "fee_unexpected": "Compare the fee with your contract and claim the difference, or correct the "
    "expected fee",
    "late_money": "Decide whether to accept the payment, then mark the order as paid, or refund it",
    "unresolved": "Read the order's ledger and settle it with the provider; do not ship on it",
    "payment_in_doubt": "Read the order's ledger and ask the provider what that payment brought; "
    "refund it if it came",
    "ambiguous": "Look at the lines and match by hand the two that belong together",
}

APART: Final[dict[str, str]] = {
    "separators": "digits differ only by separators",
    "characters": "reference differs in {characters}",
    "reference": "another reference",
    "factor": "amount {factor} times {sense}: minor units?",
    "amount": "amount differs by {difference}",
    "currency": "another currency",
    "date": "{beyond_us} outside the window",
    "fits": "fits, as others do",
    "nothing": "nothing keeps it apart but the key",
}

_WHY: Final = {"canceled": "canceled", "given_up": "given up as expired or timed out"}


def break_sentence(found: Break) -> str:
    """What differs, as one sentence with its full stop."""
    facts = [
        (name, _WHY.get(str(value), value) if name == "why" else value)
        for name, value in found.facts
    ]
    facts += [("told", value) for name, value in found.facts if name in ("booked", "settled")]
    sentence = filled(SENTENCES[found.cause], tuple(facts)) + "."
    if any(name == "in_doubt" for name, _ in found.facts):
        sentence += filled(" Up to {in_doubt} may have been captured beside that.", found.facts)
    if ("searched", False) in found.facts:
        sentence += " No partner was looked for beyond its reference: too much was left over."
    return sentence


def next_step(found: Break) -> str:
    """What a person should do about it, as one sentence with its full stop."""
    return NEXT_STEPS[found.cause] + "."


def apart_words(candidate: Candidate) -> str:
    """The one field that keeps a near miss apart: `amount 100 times larger: minor units?`."""
    facts = tuple(
        (name, "one character" if (name, value) == ("characters", 1) else
         f"{value} characters" if name == "characters" else value)
        for name, value in candidate.facts
    )  # fmt: skip
    return filled(APART[candidate.apart], facts)
