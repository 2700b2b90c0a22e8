"""A ledger as text and as JSON: the same words in the command line, the API and the evidence.

Leaves out: layout. What is written here is content; colours, columns and pages are others' work.
"""

from __future__ import annotations

from typing import Any, Final

from reconcile.canonical import fingerprint
from reconcile.instants import Duration, Instant, format_duration, format_instant, format_known
from reconcile.ledger.correlate import Heard
from reconcile.ledger.events import ANSWERS
from reconcile.ledger.ledger import (
    Attempt,
    Balance,
    Facts,
    FactValue,
    Finding,
    FindingCode,
    Ledger,
    Outcome,
    Reason,
)
from reconcile.ledger.plain import plain_headline
from reconcile.money import Money, to_json

# --- the words for every reason code, finding and outcome -----------------------------------------


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
    "awaiting_confirmation": "An event came that does not count by itself; its provider has "
    "not confirmed it",
    "no_final_event_by_deadline": "No final event had come by {deadline_at}",
    # orders where money moved
    "paid_in_full": "Paid in full: {captured} captured of {expected} due",
    "paid_amount_unconfirmed": "Paid: {captured} captured; nobody has said what the order costs, "
    "so it cannot be called paid in full",
    "paid_several_times": "Paid more than once: {captured} captured of {expected} due",
    "overpayment_returned": "Paid in full: {captured} captured, and what came beyond the "
    "{expected} due has been given back",
    "overpayment_returned_in_part": "Paid more than once: {captured} captured of {expected} due, "
    "and {refunded} of it given back so far",
    "paid_with_surplus": "Paid, and more than is due: {captured} captured of {expected} due; "
    "{surplus} is owed back",
    "paid_with_surplus_returned_in_part": "Paid, and more than is due: {captured} captured of "
    "{expected} due, and some of it given back; {surplus} is still owed back",
    "refunded_in_full": "Refunded: all of the {captured} captured has been given back",
    "refunded_in_part": "Refunded in part: {refunded} of the {captured} captured has been given "
    "back",
    "charged_back": "Charged back: all of the {captured} captured has gone back, {lost} of it in "
    "disputes that were lost",
    "charged_back_in_part": "Charged back: {lost} of the {captured} captured was lost in a dispute",
    "dispute_open": "Disputed: the customer disputes the payment, and the dispute is open; "
    "captured: {captured}",
    "dispute_without_payment": "Unresolved: a dispute came and went, and no payment is known",
    "amount_off_by_factor": "Unresolved: {captured} captured on {attempt} for {expected} due: an "
    "amount in minor units was taken for major units",
    "returned_in_other_currency": "Unresolved: {returned} went back on {attempt}, which is not the "
    "currency that came",
    "canceled_after_capture": "Unresolved: {attempt} was captured, and then said to be canceled",
    "returned_more_than_captured": "Unresolved: more went back on a payment than came on it, and "
    "without that {expected} would be paid",
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
    # paid orders that are not to be fulfilled
    "canceled_by_shop": "the shop canceled the order",
    "price_unknown": "what the order costs is not known",
    "price_of_nothing": "that the order costs nothing only the shop itself can say",
    "price_not_of_shop": "the shop itself has not said what the order costs; tell us the order, or "
    "start its payments through us",
    "held_back": "held back since {held_at} ({hold}); a person must release it",
    "money_may_go_back": "money may be on its way back, and what is left would not pay for the "
    "order",
    # orders where none did
    "money_reserved": "Authorized: the money is reserved and not yet taken",
    "still_open": "Pending: no final event yet; one is awaited until {deadline_at}",
    "confirmation_awaited": "Pending: an event came that does not count by itself, and its "
    "provider has not confirmed it yet",
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
    "dispute_won": "The dispute over {attempt} was won",
    "price_changed": "The shop changed the price from {before} to {after}{author}",
    "dispute_open": "A dispute over {attempt} is open: {disputed} is not ours to count on",
    "dispute_lost": "A dispute over {attempt} was lost: {lost} went back to the customer",
    "refund_pending": "A refund of {attempt} is under way: {pending}",
    "refund_failed": "A refund of {attempt} failed: the money did not go back",
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
    "overpaid": "{surplus} is held beyond the {expected} due; it is owed back to the customer",
    "other_currency_received": "{received} was received, which is not in the order's currency; it "
    "is owed back to the customer",
    "unread_money_event": "The kind {kind} speaks of money going back, and the profile does not "
    "say what it means: what it may take is not counted until the profile does",
    "held_back": "Held back since {held_at} ({hold}): not to be fulfilled until it is released",
}

UNFILLED: Final = "(missing)"
"""Stands where a sentence asks for a fact that its reason does not give: a fault of ours."""

WHAT_WOULD_CHANGE_IT: Final[dict[Outcome, str]] = {
    "unresolved": "It stays so until a person settles it with the provider; do not ship on it",
    "disputed": "The provider's word that the dispute is won or lost would change this",
    "charged_back": "Only a further payment, or money that comes back after all, would change this",
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


_MAY_BE_MISSING: Final = {"reason": " ({})", "author": ", as {} told us"}
"""Facts that a sentence can do without, and the words around them where they are given."""


class _Words(dict[str, str]):
    """Facts by name. One that is not given shows as UNFILLED; what may be missing is left out."""

    def __missing__(self, name: str) -> str:
        return "" if name in _MAY_BE_MISSING else UNFILLED


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
    if name in _MAY_BE_MISSING:
        return "" if value is None else _MAY_BE_MISSING[name].format(value)
    if value is None:
        return "not known"
    if isinstance(value, int) and name.endswith("_at"):
        return format_instant(Instant(value))
    if isinstance(value, int) and name.endswith("_us"):
        return format_duration(Duration(value))
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
        return format_instant(Instant(value))
    return value


# --- A ledger as text and as JSON -----------------------------------------------------------------


def headline(ledger: Ledger) -> str:
    """The first sentence of the explanation: what happened and what it rests on."""
    return _reason(ledger.reasons[0])


def explain(ledger: Ledger) -> tuple[str, ...]:
    """What happened, why we say so, and what would change it; each sentence cites its ids."""
    sentences = [_reason(reason) for reason in ledger.reasons]
    if len(ledger.attempts) > 1:
        sentences += [attempt_sentence(attempt) for attempt in ledger.attempts]
    sentences += [finding_text(finding) for finding in ledger.findings]
    sentences += [f"Do not ship: {_reason(reason)}" for reason in ledger.withheld]
    sentences.append(WHAT_WOULD_CHANGE_IT[ledger.outcome] + ".")
    return tuple(sentences)


def cited(ledger: Ledger) -> frozenset[str]:
    """Every event and record id that the deciding reasons rest on, those that withhold a paid order
    included, and a cancellation's."""
    reasons = (*ledger.reasons, *ledger.withheld)
    cites = {cite for reason in reasons for cite in reason.cites}
    canceled = ledger.case.filed.canceled
    return frozenset(cites | ({canceled.record_id} if canceled is not None else set()))


def _cites(cites: tuple[str, ...]) -> str:
    return f" [{', '.join(cites)}]." if cites else "."


def _reason(reason: Reason) -> str:
    return reason_sentence(reason.code, reason.facts) + _cites(reason.cites)


def attempt_sentence(attempt: Attempt) -> str:
    """What became of one attempt, with the ids it rests on."""
    sentence = reason_sentence(attempt.reason.code, attempt.reason.facts)
    return f"Attempt {attempt.reference}: {sentence}{_cites(attempt.reason.cites)}"


def finding_text(finding: Finding) -> str:
    """One finding as a sentence, with the ids it rests on."""
    return finding_sentence(finding.code, finding.facts) + _cites(finding.cites)


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """The ledger as JSON values, ending in `fingerprint`, which covers all but `as_of`."""
    document: dict[str, Any] = {
        "order": ledger.order,
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "totals": _totals(ledger),
        "explanation": list(explain(ledger)),
        "attempts": [_attempt_document(attempt) for attempt in ledger.attempts],
        "entries": [
            {
                "at": format_instant(entry.at),
                "kind": entry.kind,
                "money": to_json(entry.money),
                "attempt": entry.attempt,
                "cites": list(entry.cites),
            }
            for entry in ledger.entries
        ],
        "timeline": _timeline(ledger),
        "findings": [_finding_document(finding) for finding in ledger.findings],
        "next_decision_at": format_known(ledger.next_decision_at),
    }
    mark = fingerprint(document)
    return {
        "order": document.pop("order"),
        "as_of": format_instant(ledger.as_of),
        **document,
        "fingerprint": mark,
    }


def _totals(ledger: Ledger) -> dict[str, Any]:
    """Expected, captured, refunded and held; what was reversed or lost in disputes, where any was.

    Further currencies, if any, stand under `others`.
    """
    main, others = _main_balance(ledger)
    totals: dict[str, Any] = {
        "expected": None if ledger.expected is None else to_json(ledger.expected),
        "captured": None if main is None else _side(main, main.captured),
        "refunded": None if main is None else _side(main, main.refunded),
        "held": None if ledger.held is None else to_json(ledger.held),
        **({} if main is None else _further(main)),
    }
    if others:
        totals["others"] = [
            {
                "captured": _side(b, b.captured),
                "refunded": _side(b, b.refunded),
                **_further(b),
            }
            for b in others
        ]
    return totals


def _further(balance: Balance) -> dict[str, Any]:
    sides = {"reversed": balance.reversed, "lost": balance.lost}
    return {name: _side(balance, minor) for name, minor in sides.items() if minor}


def _main_balance(ledger: Ledger) -> tuple[Balance | None, list[Balance]]:
    """The balance in the order's own currency, else the first there is; and the rest."""
    balances = list(ledger.balances)
    if ledger.expected is not None:
        own = [b for b in balances if b.currency == ledger.expected.currency]
        currency = ledger.expected.currency
        main = own[0] if own else Balance(currency=currency, captured=0, refunded=0)
        return main, [b for b in balances if b.currency != currency]
    return (balances[0], balances[1:]) if balances else (None, [])


def _side(balance: Balance, minor: int) -> dict[str, str]:
    return to_json(Money(minor=minor, currency=balance.currency))


def _attempt_document(attempt: Attempt) -> dict[str, Any]:
    reason = attempt.reason
    return {
        "reference": attempt.reference,
        "source": attempt.source,
        "outcome": attempt.outcome,
        "deadline": format_known(attempt.deadline),
        "reasons": [
            {
                "code": reason.code,
                "cites": list(reason.cites),
                "facts": facts_document(reason.facts),
                "sentence": reason_sentence(reason.code, reason.facts) + ".",
            }
        ],
    }


def _finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "cites": list(finding.cites),
        "facts": facts_document(finding.facts),
        "sentence": finding_sentence(finding.code, finding.facts) + ".",
    }


def _timeline(ledger: Ledger) -> list[dict[str, Any]]:
    attempts = {id(h): a.reference for a in ledger.case.attempts for h in (*a.heard, *a.told)}
    return [_timeline_row(h, ledger, attempt=attempts.get(id(h))) for h in ledger.case.heard]


def _timeline_row(heard: Heard, ledger: Ledger, *, attempt: str | None) -> dict[str, Any]:
    """One event. `attempt` is the one it was taken to speak of; None where it could be several."""
    event = heard.event
    return {
        "occurred_at": format_known(event.occurred_at),
        "received_at": format_instant(heard.first),
        "event": event.event_id,
        "source": event.source,
        "digest": event.digest,
        "kind": event.kind,
        "claim": event.claim,
        "attempt": attempt,
        "money": None if event.money is None else to_json(event.money),
        "deliveries": heard.count,
        "note": _note(heard, ledger),
    }


def _note(heard: Heard, ledger: Ledger) -> str:
    notes = []
    if heard.event.occurred_at is None:
        notes.append("the provider gave no date; our arrival stands in")
    if heard.event.standing == "unconfirmed":
        notes.append("it does not count by itself: its provider has not confirmed it here")
    delay = heard.first - heard.at
    if heard.event.standing in ANSWERS:
        notes.append("the provider's own answer, fetched by us")
    elif delay > ledger.case.policy.late_after:
        notes.append(f"arrived {format_duration(delay)} after it occurred")
    if heard.count > 1:
        notes.append(f"delivered {heard.count} times")
    return "; ".join(notes)


def ledger_summary(ledger: Ledger) -> dict[str, Any]:
    """One row of a listing: what happened in one sentence, without the evidence; `plain` says it in
    words for a customer."""
    return {
        "order": ledger.order,
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "totals": _totals(ledger),
        "findings": list(dict.fromkeys(finding.code for finding in ledger.findings)),
        "plain": plain_headline(ledger),
        "explanation": headline(ledger),
        "next_decision_at": format_known(ledger.next_decision_at),
    }
