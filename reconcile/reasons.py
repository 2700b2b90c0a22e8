"""The words for every reason code, finding and outcome: the only place where sentences are made.

Leaves out: what the codes rest on. A sentence here uses nothing but the facts it is given, so the
command line, the API, a report and an evidence bundle all say the same thing.
"""

from __future__ import annotations

from typing import Final

from reconcile.instants import format_duration, format_instant
from reconcile.ledger import Facts, FactValue, FindingCode, Outcome
from reconcile.money import Money, to_json

REASON_SENTENCES: Final[dict[str, str]] = {
    # attempts
    "event_says_succeeded": "The provider says it succeeded",
    "event_says_authorized": "The provider says the money is reserved and not yet taken",
    "event_says_declined": "The provider says it was declined{reason}",
    "event_says_canceled": "The provider says it was canceled{reason}",
    "event_says_expired": "The provider says it expired{reason}",
    "event_says_timed_out": "The provider says it timed out{reason}",
    "session_refused": "The provider refused to open the session{reason}",
    "waiting_for_final_event": "No final event yet; one is awaited until {deadline_at}",
    "awaiting_confirmation": "An event came whose signature does not cover what it says; the "
    "provider is being asked",
    "no_final_event_by_deadline": "No final event had come by {deadline_at}",
    # orders where money moved
    "paid_in_full": "Paid in full: {captured} captured of {expected} due",
    "paid_amount_unconfirmed": "Paid: {captured} captured; nobody has said what the order costs, "
    "so it cannot be called paid in full",
    "paid_several_times": "Paid more than once: {captured} captured of {expected} due",
    "overpayment_returned": "Paid in full: {captured} captured in several payments and {refunded} "
    "of it given back, which leaves the {expected} due",
    "overpayment_returned_in_part": "Paid more than once: {captured} captured of {expected} due, "
    "and {refunded} of it given back so far",
    "refunded_in_full": "Refunded: all of the {captured} captured has been given back",
    "refunded_in_part": "Refunded in part: {refunded} of the {captured} captured has been given "
    "back",
    "dispute_open": "Disputed: the customer disputes the payment, and the dispute is open; "
    "captured: {captured}",
    "dispute_without_payment": "Unresolved: a dispute came and went, and no payment is known",
    "amount_differs": "Unresolved: {captured} captured, but {expected} is due",
    "currency_differs": "Unresolved: the money that moved ({moved}) is not all in the currency "
    "of the order",
    "amounts_conflict": "Unresolved: events state different amounts for one movement of {attempt}",
    "amount_not_stated": "Unresolved: money moved on {attempt}, and no event says how much",
    "bodies_disagree": "Unresolved: one event id came with {bodies} bodies that disagree in kind, "
    "money or reference",
    "reference_shared": "Unresolved: {reference} is claimed for this order and for another",
    "order_amounts_conflict": "Unresolved: events disagree on what the order costs",
    "refund_before_payment": "Unresolved: {refunded} was given back, and no payment is known",
    # orders where none did
    "money_reserved": "Authorized: the money is reserved and not yet taken",
    "still_open": "Pending: no final event yet; one is awaited until {deadline_at}",
    "confirmation_awaited": "Pending: an event came whose signature does not cover what it says, "
    "and the provider, who is being asked, has not confirmed it yet",
    "last_word_event_says_declined": "Failed: the last attempt, {attempt}, was declined{reason}",
    "last_word_event_says_canceled": "Canceled: the last attempt, {attempt}, was canceled{reason}",
    "last_word_event_says_expired": "Expired: the last attempt, {attempt}, expired{reason}",
    "last_word_event_says_timed_out": "Timed out: the provider gave up on {attempt}{reason}",
    "last_word_no_final_event_by_deadline": "Timed out: no final event for {attempt} had come by "
    "{deadline_at}",
    "last_word_session_refused": "Failed: the provider refused to open a session{reason}",
    "canceled_by_merchant": "Canceled by the shop at {canceled_at}; no payment was attempted",
    "nothing_attempted": "Not attempted: the order is known, and no payment was started",
    "nothing_known": "Not attempted: nobody has told us anything of this order",
}

FINDING_SENTENCES: Final[dict[FindingCode, str]] = {
    "redelivered": "The same event was delivered {deliveries} times; it counts once",
    "semantic_duplicate": "{events} events state one movement of {attempt}; they count as one",
    "out_of_order": "Events of {attempt} arrived in another order than they occurred",
    "delivered_late": "The event took {delay_us} to reach us",
    "recovered_on_later_attempt": "Paid by {attempt} after {failed} failed earlier",
    "success_after_deadline": "The success of {attempt}, dated {occurred_at} and known to us at "
    "{received_at}, came after the attempt had been given up",
    "contradictory_claims": "{attempt} is said to be {claims}, which exclude each other",
    "unrecognized_event": "The kind {kind} means nothing to the profile; the event is kept",
    "dated_in_future": "The event is dated {occurred_at}, after its arrival at {received_at}",
    "order_unknown": "The shop has told us nothing of this order",
    "session_unknown": "A session was asked for and no answer came; whether it exists is not known",
    "refund_without_payment": "Money was given back, and no payment is known",
    "paid_but_not_fulfilled": "Fulfillable since {fulfillable_at}, and the shop has not said that "
    "it was fulfilled",
    "same_id_different_body": "One event id came with {bodies} different bodies; all are kept",
    "conflicting_amounts": "Events state different amounts for one movement of {attempt}",
    "paid_twice": "Paid {times} times over; {owed} is owed back to the customer",
    "amount_mismatch": "The captured money ({captured}) is not what the order costs ({expected})",
    "amount_off_by_minor_unit": "{captured} against {expected}: an amount in major units was "
    "taken for minor units, or the other way round",
    "currency_mismatch": "The captured money ({captured}) is not in the order's currency "
    "({expected})",
    "refund_exceeds_capture": "{refunded} was given back, and only {captured} had been captured",
    "fulfilled_but_not_paid": "The shop fulfilled the order at {fulfilled_at}, and it is {outcome}",
    "paid_after_cancel": "Money moved at {occurred_at}, after the shop had canceled at "
    "{canceled_at}",
}

UNFILLED: Final = "(missing)"
"""Stands where a sentence asks for a fact that its reason does not give: a fault of ours."""

WHAT_WOULD_CHANGE_IT: Final[dict[Outcome, str]] = {
    "unresolved": "It stays so until a person settles it with the provider; do not ship on it",
    "disputed": "The provider's word that the dispute is won or lost would change this",
    "refunded": "Only a further payment would change this",
    "partially_refunded": "A further refund, or a further payment, would change this",
    "succeeded": "Only a refund, a dispute or a contradicting event would change this",
    "authorized": "The provider's word that the money was taken, or released, would change this",
    "pending": "A final event, or the passing of that moment, would change this",
    "failed": "A later attempt, or a late success, would change this",
    "canceled": "A later attempt, or a late success, would change this",
    "expired": "A later attempt, or a late success, would change this",
    "timed_out": "A late final event would still change this",
    "not_attempted": "The first session or event would change this",
}


def reason_sentence(code: str, facts: Facts) -> str:
    """The sentence of a reason, without its cites and its full stop."""
    return filled(REASON_SENTENCES[code], facts)


def finding_sentence(code: FindingCode, facts: Facts) -> str:
    """The sentence of a finding, without its cites and its full stop."""
    return filled(FINDING_SENTENCES[code], facts)


class _Words(dict[str, str]):
    """Facts by name. One that is not given shows as UNFILLED; a missing reason is left out."""

    def __missing__(self, name: str) -> str:
        return "" if name == "reason" else UNFILLED


def filled(template: str, facts: Facts) -> str:
    """The template with the facts that it names, in words."""
    words = _Words()
    for name, value in facts:
        text = _in_words(name, value)
        if text and name in words:
            text = f"{words[name]} and {text}"
        if text:
            words[name] = text
    return template.format_map(words)


def _in_words(name: str, value: FactValue) -> str:
    if name == "reason":
        return "" if value is None else f" ({value})"
    if value is None:
        return "not known"
    if isinstance(value, int) and name.endswith("_at"):
        return format_instant(value)
    if isinstance(value, int) and name.endswith("_us"):
        return format_duration(value)
    return str(value)


def facts_document(facts: Facts) -> dict[str, object]:
    """Facts for JSON: money as decimal strings, instants in RFC 3339, durations in microseconds.

    A name that stands several times (captured, in several currencies) becomes a list.
    """
    document: dict[str, object] = {}
    for name, value in facts:
        written = _written(name, value)
        if name not in document:
            document[name] = written
        elif isinstance(earlier := document[name], list):
            earlier.append(written)
        else:
            document[name] = [earlier, written]
    return document


def _written(name: str, value: FactValue) -> object:
    if isinstance(value, Money):
        return to_json(value)
    if isinstance(value, int) and name.endswith("_at"):
        return format_instant(value)
    return value
