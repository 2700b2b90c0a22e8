"""A ledger in plain words: sentences that can be read aloud to a customer, with no ids in them.

Leaves out: the proof. `explain` tells the same with the ids that each sentence rests on. These
words are made of a ledger whenever it is shown; no fingerprint covers them: they may be bettered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconcile.instants import Duration, Instant, format_duration, plain_instant
from reconcile.ledger.ledger import Facts, FactValue, Finding, FindingCode, Ledger, Outcome, Reason
from reconcile.money import Money, new_money

# --- the sentence of every reason and finding -----------------------------------------------------

REASONS: Final[dict[str, str]] = {
    # money came, or went back
    "paid_in_full": "Paid in full: {captured}.",
    "paid_amount_unconfirmed": "Paid {captured}. The shop has not told us the price, so we cannot "
    "say whether that is all of it.",
    "paid_several_times": "Paid more than once: {captured} for a price of {expected}. {surplus} "
    "must be given back.",
    "overpayment_returned": "Paid in full: {expected}. What was paid too much has been given back.",
    "overpayment_returned_in_part": "Paid more than once: {captured} for a price of {expected}. "
    "{refunded} has been given back, and {surplus} must still be given back.",
    "paid_with_surplus": "Paid {surplus} too much: {captured} for a price of {expected}. {surplus} "
    "must be given back.",
    "paid_with_surplus_returned_in_part": "Paid too much: {captured} for a price of {expected}. "
    "Some of it has been given back, and {surplus} must still be given back.",
    "refunded_in_full": "Paid {captured}, and all of it has been given back.",
    "refunded_in_part": "Paid {captured}, and {refunded} of it has been given back.",
    "charged_back": "Paid {captured}, and all of it has gone back: the customer disputed {lost} "
    "of it, and the shop lost.",
    "charged_back_in_part": "Paid {captured}. The customer disputed {lost} of it, and the shop "
    "lost: that money has gone back.",
    "dispute_open": "Paid {captured}. The customer disputes the payment, and that is not decided "
    "yet.",
    "dispute_without_payment": "There was a dispute about a payment that we know nothing of.",
    "amount_off_by_factor": "{captured} is said to have been paid, which is {times} times the "
    "price of {expected}. Probably the amount was sent in the wrong unit, such as cents for "
    "shillings.",
    "returned_in_other_currency": "{returned} has gone back, which is not the currency in which "
    "the customer paid.",
    "canceled_after_capture": "The payment went through, and was then said to be canceled. We "
    "cannot say whether the shop has the money.",
    "returned_more_than_captured": "More money has gone back on one payment than came on it.",
    "amount_differs": "Paid {captured}, and the price is {expected}.",
    "currency_differs": "Paid in another currency than that of the price: {moved}.",
    "amounts_conflict": "We were told different amounts for one payment, and cannot say which is "
    "right.",
    "amount_not_stated": "The customer paid, and nobody has told us how much.",
    "bodies_disagree": "The payment service sent one message in {bodies} versions that contradict "
    "each other.",
    "reference_shared": "One payment is said to be for this order, and for another one too.",
    "order_amounts_conflict": "Something was paid, and we were told different prices for it.",
    "refund_before_payment": "{refunded} has been given back, and we know of no payment.",
    # nothing did
    "money_reserved": "The money is reserved on the customer's account, and has not been taken "
    "yet.",
    "still_open": "The payment is not finished yet. We wait for it until {deadline_at}.",
    "confirmation_awaited": "We were told of a payment, and the payment service has not confirmed "
    "it yet.",
    "last_word_event_says_declined": "The payment was declined{reason}.",
    "last_word_event_says_canceled": "The payment was canceled{reason}.",
    "last_word_event_says_expired": "The payment was not made in time{reason}.",
    "last_word_event_says_timed_out": "The payment service stopped waiting for it{reason}.",
    "last_word_no_final_event_by_deadline": "The payment was begun, and by {deadline_at} nobody "
    "had told us how it ended.",
    "last_word_session_refused": "The payment service did not let the payment begin{reason}.",
    "canceled_by_merchant": "The shop canceled the order on {canceled_at}, and nothing had been "
    "paid.",
    "nothing_attempted": "We have had no word of a payment for this order.",
    "nothing_known": "We have had no word of this order.",
    # paid, and not to be shipped
    "canceled_by_shop": "The shop has canceled the order: {held} must be given back.",
    "price_unknown": "Do not ship: the price is not known.",
    "price_of_nothing": "Do not ship: that the order costs nothing, only the shop itself can say.",
    "price_not_of_shop": "Do not ship: the shop itself has not told us the price.",
    "held_back": "Do not ship: the order is on hold since {held_at}, and a person must release it.",
    "money_may_go_back": "Do not ship: some of the money may be on its way back to the customer.",
}
"""By the code of a ledger's reason; of what withholds a paid order, too."""

FINDINGS: Final[dict[FindingCode, str]] = {
    "redelivered": "The payment service told us the same {deliveries} times. It counts once.",
    "semantic_duplicate": "{events} messages tell of the same {movement}. It counts once.",
    "out_of_order": "Messages about the payment reached us in another order than things happened.",
    "delivered_late": "A message about the payment took {delay_us} to reach us.",
    "recovered_on_later_attempt": "The payment did not go through at first, and then it did.",
    "dispute_won": "The customer disputed the payment, and the shop won.",
    "success_after_deadline": "The payment went through on {occurred_at}, after we had stopped "
    "waiting for it.",
    "contradictory_claims": "We were told both that {claims}. Only one of them can be true.",
    "unrecognized_event": "The payment service sent a message of a kind that we cannot read. It "
    "is kept, and changes nothing.",
    "dated_in_future": "A message is dated {occurred_at}, later than it reached us: somebody's "
    "clock is wrong.",
    "order_unknown": "The shop has not told us of this order.",
    "session_unknown": "We asked the payment service to begin a payment, and got no answer. It may "
    "have begun.",
    "refund_without_payment": "Money was given back, and we know of no payment.",
    "paid_but_not_fulfilled": "Paid, and ready to ship since {fulfillable_at}. The shop has not "
    "said that it was shipped.",
    "price_changed": "The shop changed the price from {before} to {after}.",
    "dispute_open": "The customer disputes the payment{disputed}. The shop cannot count on that "
    "money until it is decided.",
    "dispute_lost": "The shop lost a dispute{lost}: that money has gone back to the customer.",
    "refund_pending": "A refund{pending} is on its way to the customer.",
    "refund_failed": "A refund failed: the customer has not got that money.",
    "same_id_different_body": "The payment service sent one message in {bodies} versions. All are "
    "kept.",
    "conflicting_amounts": "We were told different amounts for the same {movement}: {amounts}.",
    "paid_twice": "Paid {times} times. {owed} must be given back.",
    "amount_mismatch": "Paid {captured}, and the price is {expected}.",
    "amount_off_by_minor_unit": "{captured} was paid for a price of {expected}. Probably an amount "
    "was sent in the wrong unit, such as cents for shillings.",
    "currency_mismatch": "Paid {captured}, which is not in the currency of the price ({expected}).",
    "refund_exceeds_capture": "{refunded} has been given back, and only {captured} had been paid.",
    "fulfilled_but_not_paid": "The order was shipped on {fulfilled_at}, and it is not paid.",
    "paid_after_cancel": "Paid on {occurred_at}, after the order had been canceled on "
    "{canceled_at}.",
    "overpaid": "Paid {surplus} too much. It must be given back.",
    "other_currency_received": "{received} was paid, which is not in the currency of the price. It "
    "must be given back.",
    "unread_money_event": "The payment service sent a message that may be about money going back, "
    "and we cannot read it yet. Do not count on the money until we can.",
    "held_back": "The order is on hold since {held_at}. A person must release it before it ships.",
}

NEXT: Final[dict[Outcome, str]] = {
    "unresolved": "Finance must settle this with the payment service.",
    "failed": "No money has reached the shop.",
    "canceled": "No money has reached the shop.",
    "expired": "No money has reached the shop.",
    "timed_out": "No money has reached the shop so far. The payment may still come through.",
}
"""What follows for whoever asks, where the reason does not say it."""

SHIPPING: Final[dict[Outcome, str]] = {
    "unresolved": "Do not ship until that is done.",
    "disputed": "Do not ship until it is decided.",
    "charged_back": "Do not ship.",
    "refunded": "Do not ship.",
    "partially_refunded": "Do not ship before the shop has said what is still to be sent.",
    "succeeded": "The order can be shipped.",
    "authorized": "Do not ship before it is taken.",
    "pending": "Do not ship yet.",
    "not_attempted": "Do not ship.",
}
"""Whether an order that was not shipped yet can be. Where one is paid and withheld all the same,
the reasons that withhold it say so."""

_CLAIMS: Final = {
    "succeeded": "the payment went through",
    "authorized": "the money is reserved",
    "declined": "it was declined",
    "canceled": "it was canceled",
    "expired": "it expired",
    "dispute_won": "the shop won the dispute",
    "dispute_lost": "the shop lost it",
    "of this order": "a payment is for this order",
    "of another": "it is for another one",
}

_MOVEMENTS: Final = {
    "captured": "payment",
    "refunded": "refund",
    "reversed": "payment taken back",
    "dispute_lost": "lost dispute",
}

_OPTIONAL: Final = {
    "reason": " ({})",
    "disputed": " of {}",
    "lost": " of {}",
    "pending": " of {}",
}
"""Facts that a finding or a last word can do without, and the words around them."""


# --- sentences of a ledger ------------------------------------------------------------------------


def with_plain(document: Mapping[str, Any], ledger: Ledger, *, behind_s: int = 0) -> dict[str, Any]:
    """A ledger's document with its plain words: `plain` beside the `sentence` of each finding, and
    `plain` with `answer`, the sentences for whoever asks, the deciding one first, and `findings`,
    the same words by code, for programs of before. Its fingerprint stays that of the document.

    behind_s  for how many seconds something accepted has waited to be read; 0: nothing does
    """
    told = zip(document["findings"], ledger.findings, strict=True)
    findings = [{**each, "plain": plain_finding(finding)} for each, finding in told]
    plain = {
        "answer": list(plain_answer(ledger, behind_s=behind_s)),
        "findings": [{"code": each["code"], "sentence": each["plain"]} for each in findings],
    }
    return {**document, "findings": findings, "plain": plain}


def plain_answer(ledger: Ledger, *, behind_s: int = 0) -> tuple[str, ...]:
    """What became of the order, and what follows. Without ids. `behind_s` as above."""
    held = () if ledger.held is None else (("held", ledger.held),)
    said = [plain_reason(reason) for reason in ledger.reasons]
    said += [plain_reason(reason, held) for reason in ledger.withheld]
    said += [NEXT.get(ledger.outcome, ""), _shipping(ledger, behind_s)]
    return tuple(dict.fromkeys(filter(None, said)))


def plain_outcome(ledger: Ledger) -> tuple[str, ...]:
    """What became of the order, for whoever is not of the shop: without what it is to do next."""
    return tuple(dict.fromkeys(plain_reason(reason) for reason in ledger.reasons))


def _shipping(ledger: Ledger, behind_s: int) -> str:
    if behind_s:
        return (
            f"Messages of the last {behind_s} s have still to be read: do not ship until they are."
        )
    shipped = ledger.case.filed.fulfilled
    if shipped is not None:
        return f"The shop shipped the order on {plain_instant(shipped.at)}."
    return "" if ledger.withheld else SHIPPING.get(ledger.outcome, "")


def plain_headline(ledger: Ledger) -> str:
    """The first sentence of the answer."""
    return plain_reason(ledger.reasons[0])


def plain_reason(reason: Reason, further: Facts = ()) -> str:
    """One reason as a sentence."""
    facts = (*reason.facts, *further)
    words = _words(facts, optional=frozenset(("reason",)))
    if reason.code == "amount_off_by_factor":
        words["times"] = _times(facts)
    if reason.code == "amount_differs":
        return _differs(facts, words)
    return REASONS[reason.code].format_map(words)


def plain_finding(finding: Finding) -> str:
    """One finding as a sentence."""
    return FINDINGS[finding.code].format_map(_words(finding.facts, optional=frozenset(_OPTIONAL)))


def _words(facts: Facts, *, optional: frozenset[str]) -> dict[str, str]:
    """Facts by name, in words; `amounts` has all of several that stand against each other."""
    words = dict.fromkeys(optional, "")
    for name, value in facts:
        text = _in_words(name, value)
        if name.startswith("amount_"):
            name = "amounts"
        if name in optional:
            text = "" if value is None else _OPTIONAL[name].format(text)
        elif words.get(name):
            text = f"{words[name]} and {text}"
        words[name] = text
    return words


def _in_words(name: str, value: FactValue) -> str:
    if value is None:
        return "an unknown amount"
    if name == "claims":
        return " and that ".join(_CLAIMS[claim] for claim in str(value).split(", "))
    if name == "movement":
        return _MOVEMENTS[str(value)]
    if name == "reason":
        return str(value).replace("_", " ")
    if isinstance(value, int) and name.endswith("_at"):
        return plain_instant(Instant(value))
    if isinstance(value, int) and name.endswith("_us"):
        return format_duration(Duration(value))
    return str(value)


def _money(facts: Facts, name: str) -> list[Money]:
    return [value for given, value in facts if given == name and isinstance(value, Money)]


def _times(facts: Facts) -> str:
    """How many times the price was paid."""
    (captured,), (expected,) = _money(facts, "captured"), _money(facts, "expected")
    return f"{captured.minor // expected.minor:,}"


def _differs(facts: Facts, words: dict[str, str]) -> str:
    """Too little came, or enough of which some went back; perhaps other currencies beside it."""
    (expected,) = _money(facts, "expected")
    own = [each for each in _money(facts, "captured") if each.currency == expected.currency]
    missing = expected.minor - sum(each.minor for each in own)
    sentence = REASONS["amount_differs"].format_map(words)
    if missing > 0:
        short = new_money(minor=missing, currency=expected.currency)
        sentence = f"Paid {words['captured']}, and the price is {expected}: {short} is missing."
    if "refunded" in words:
        sentence += f" {words['refunded']} of it has been given back."
    return sentence
