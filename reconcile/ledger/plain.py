"""A ledger in plain words: sentences that can be read aloud to a customer, with no ids in them.

Leaves out: the proof. `explain` gives the same with the ids that each sentence rests on. These
words are made of a ledger whenever it is shown; no fingerprint covers them: they may be bettered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconcile.instants import Duration, Instant, format_duration, plain_instant
from reconcile.ledger.ledger import Facts, FactValue, Finding, Ledger, Outcome, Reason
from reconcile.ledger.vocabulary import FINDINGS, REASONS
from reconcile.money import Money, new_money

# --- what follows from an outcome -----------------------------------------------------------------

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

BESIDE_REFUNDS: Final = frozenset(("dispute_open", "charged_back_in_part"))
"""Reasons whose words speak of disputes, so that what was refunded beside them is stated, too."""

_OPTIONAL: Final = {
    "reason": " ({})",
    "disputed": " of {}",
    "lost": " of {}",
    "pending": " of {}",
    "still_lost": ", but {} of it stays lost",
    "not_lost": ", and {} of what was disputed stays with the shop",
}
"""Facts that a finding or a last word can do without, and the words around them."""


# --- sentences of a ledger ------------------------------------------------------------------------


def with_plain(document: Mapping[str, Any], ledger: Ledger, *, behind_s: int = 0) -> dict[str, Any]:
    """A ledger's document with its plain words: `plain` beside the `sentence` of each finding, and
    `plain` with `answer`, the sentences for whoever asks, the deciding one first, and `findings`,
    the same words by code, for programs of before. Its fingerprint stays that of the document.

    behind_s  for how many seconds something accepted has waited to be read; 0: nothing does
    """
    pairs = zip(document["findings"], ledger.findings, strict=True)
    findings = [{**each, "plain": plain_finding(finding)} for each, finding in pairs]
    plain = {
        "answer": list(plain_answer(ledger, behind_s=behind_s)),
        "findings": [{"code": each["code"], "sentence": each["plain"]} for each in findings],
    }
    return {**document, "findings": findings, "plain": plain}


def plain_answer(ledger: Ledger, *, behind_s: int = 0) -> tuple[str, ...]:
    """What became of the order, and what follows. Without ids. `behind_s` as above."""
    held = () if ledger.held is None else (("held", ledger.held),)
    sentences = [plain_reason(reason) for reason in ledger.reasons]
    sentences += [plain_reason(reason, held) for reason in ledger.withheld]
    sentences += [
        _owed_after_cancel(ledger),
        NEXT.get(ledger.outcome, ""),
        _shipping(ledger, behind_s),
    ]
    return tuple(dict.fromkeys(filter(None, sentences)))


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
    words = "" if ledger.withheld else SHIPPING.get(ledger.outcome, "")
    if words and ledger.case.filed.canceled is not None:
        owed = _owed_after_cancel(ledger)
        return "Do not ship." if owed else "The shop has canceled the order: do not ship it."
    return words


def _owed_after_cancel(ledger: Ledger) -> str:
    """What is held of an order that the shop has canceled is owed back. Of one that is paid the
    reason that withholds it says so; of one in doubt nobody knows how much it is."""
    held, certain = ledger.held, ledger.outcome not in ("succeeded", "unresolved")
    if not certain and ledger.reasons[0].code != "amount_differs":
        return ""
    if ledger.case.filed.canceled is None or held is None or held.minor <= 0:
        return ""
    return REASONS["canceled_by_shop"].plain.format(held=held)


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
    sentence = REASONS[reason.code].plain.format_map(words)
    return sentence + _refunded(words) if reason.code in BESIDE_REFUNDS else sentence


def plain_finding(finding: Finding) -> str:
    """One finding as a sentence."""
    return FINDINGS[finding.code].plain.format_map(
        _words(finding.facts, optional=frozenset(_OPTIONAL))
    )


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
    came, gone = [_sum_in(expected.currency, facts, name) for name in ("captured", "refunded")]
    kept = came - gone
    if kept >= expected.minor:
        return REASONS["amount_differs"].plain.format_map(words) + _refunded(words)
    short = new_money(minor=expected.minor - kept, currency=expected.currency)
    back = f", of which {words['refunded']} has been given back" if "refunded" in words else ""
    return f"Paid {words['captured']}{back}, and the price is {expected}: {short} is missing."


def _sum_in(currency: str, facts: Facts, name: str) -> int:
    return sum([each.minor for each in _money(facts, name) if each.currency == currency])


def _refunded(words: dict[str, str]) -> str:
    return f" {words['refunded']} of it has been given back." if "refunded" in words else ""
