"""A ledger in plain words: sentences without ids that can be read aloud to a customer.

Leaves out: the proof; `explain` gives sentences with cited ids. These words are made whenever a
ledger is shown, and no fingerprint covers them: they may be improved.
"""

from collections.abc import Mapping
from typing import Any, Final

from reconcile.instants import Duration, Instant, format_duration, plain_instant
from reconcile.ledger.ledger import Facts, FactValue, Finding, Ledger, Outcome, Reason
from reconcile.ledger.vocabulary import FINDINGS, REASONS
from reconcile.money import Money, new_money

NEXT: Final[dict[Outcome, str]] = {
    "unresolved": "Finance must settle this with the payment service.",
    "failed": "No money has reached the shop.",
    "canceled": "No money has reached the shop.",
    "expired": "No money has reached the shop.",
    "timed_out": "No money has reached the shop so far. The payment may still come through.",
}
"""What follows for the customer, if the reason does not say it."""

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
"""Whether an order can be shipped. For a paid order that is withheld, the reasons say so."""

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
"""Reasons that mention disputes only, so that refunds beside them are added."""

_OPTIONAL: Final = {
    "reason": " ({})",
    "disputed": " of {}",
    "lost": " of {}",
    "pending": " of {}",
    "still_lost": ", but {} of it stays lost",
    "not_lost": ", and {} of what was disputed stays with the shop",
}
"""Optional facts, and the words around them if they are present."""


def with_plain(document: Mapping[str, Any], ledger: Ledger, *, behind_s: int = 0) -> dict[str, Any]:
    """Add plain words to a ledger's document; its fingerprint stays.

    Each finding gets `plain` beside its `sentence`. The document gets `plain` with `answer`, the
    sentences for the customer, the deciding one first, and `findings`, the sentences by code.

    behind_s  seconds that an accepted delivery has waited to be read; 0: none waits
    """
    pairs = zip(document["findings"], ledger.findings, strict=True)
    findings = [{**each, "plain": plain_finding(finding)} for each, finding in pairs]
    plain = {
        "answer": list(plain_answer(ledger, behind_s=behind_s)),
        "findings": [{"code": each["code"], "sentence": each["plain"]} for each in findings],
    }
    return {**document, "findings": findings, "plain": plain}


def plain_answer(ledger: Ledger, *, behind_s: int = 0) -> tuple[str, ...]:
    """Return what happened to the order and what follows, without ids. `behind_s` as above."""
    held, filed = ledger.held, ledger.case.filed
    facts = () if held is None else (("held", held),)
    sentences = [plain_reason(reason) for reason in ledger.reasons]
    sentences += [plain_reason(reason, facts) for reason in ledger.withheld]
    owed = ""
    if filed.canceled is not None and held is not None and held.minor > 0:
        # A paid order's reason says it; nobody knows the amount of an order in doubt.
        certain = ledger.outcome not in ("succeeded", "unresolved")
        if certain or ledger.reasons[0].code == "amount_differs":
            owed = REASONS["canceled_by_shop"].plain.format(held=held)
    shipping = "" if ledger.withheld else SHIPPING.get(ledger.outcome, "")
    if behind_s:
        shipping = (
            f"Messages of the last {behind_s} s have still to be read: do not ship until they are."
        )
    elif filed.fulfilled is not None:
        shipping = f"The shop shipped the order on {plain_instant(filed.fulfilled.at)}."
    elif shipping and filed.canceled is not None:
        shipping = "Do not ship." if owed else "The shop has canceled the order: do not ship it."
    sentences += [owed, NEXT.get(ledger.outcome, ""), shipping]
    return tuple(dict.fromkeys(filter(None, sentences)))


def plain_outcome(ledger: Ledger) -> tuple[str, ...]:
    """Return what happened to the order, without what the shop should do next."""
    return tuple(dict.fromkeys(plain_reason(reason) for reason in ledger.reasons))


def plain_headline(ledger: Ledger) -> str:
    """Return the first sentence of the answer."""
    return plain_reason(ledger.reasons[0])


def plain_reason(reason: Reason, further: Facts = ()) -> str:
    """Return a reason as a sentence. `further`: facts to use beside its own."""
    facts = (*reason.facts, *further)
    words = _words(facts, optional=frozenset(("reason",)))
    if reason.code == "amount_off_by_factor":
        (captured,), (expected,) = _money(facts, "captured"), _money(facts, "expected")
        words["times"] = f"{captured.minor // expected.minor:,}"
    if reason.code == "amount_differs":
        return _differs(facts, words)
    sentence = REASONS[reason.code].plain.format_map(words)
    return sentence + _refunded(words) if reason.code in BESIDE_REFUNDS else sentence


def plain_finding(finding: Finding) -> str:
    return FINDINGS[finding.code].plain.format_map(
        _words(finding.facts, optional=frozenset(_OPTIONAL))
    )


def _words(facts: Facts, *, optional: frozenset[str]) -> dict[str, str]:
    """Return facts in words, by name; `amounts` joins all `amount_…` facts."""
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


def _differs(facts: Facts, words: dict[str, str]) -> str:
    """Return how much is missing, or what went back if enough had been paid."""
    (expected,) = _money(facts, "expected")
    kept = 0
    for name, sign in (("captured", 1), ("refunded", -1)):
        amounts = [m.minor for m in _money(facts, name) if m.currency == expected.currency]
        kept += sign * sum(amounts)
    if kept >= expected.minor:
        return REASONS["amount_differs"].plain.format_map(words) + _refunded(words)
    short = new_money(minor=expected.minor - kept, currency=expected.currency)
    back = f", of which {words['refunded']} has been given back" if "refunded" in words else ""
    return f"Paid {words['captured']}{back}, and the price is {expected}: {short} is missing."


def _refunded(words: dict[str, str]) -> str:
    return f" {words['refunded']} of it has been given back." if "refunded" in words else ""
