"""Rules by which card networks accept earlier purchases as evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Final, TypedDict

from reconcile.documents import Keywords
from reconcile.instants import DAY, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """Payment by a customer, as card networks' rules compare payments."""

    order: str
    processed_at: Instant | None
    settled: bool
    """True if the payment was captured and nothing was returned."""
    disputed: bool
    stated: Mapping[str, tuple[str, ...]]
    """Values of messages, by member of [transaction], or `email`."""

    def shares(self, member: str, other: "Purchase") -> bool:
        """Check whether two purchases have an equal `member`, ignoring case."""
        mine, theirs = (
            {each.casefold() for each in one.stated.get(member, ())} for one in (self, other)
        )
        return bool(mine & theirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRule:
    """Rule of a card network that counts earlier purchases as evidence."""

    name: str
    network: str
    code: str
    groups: tuple[tuple[str, ...], ...]
    """Groups of fields. One field of each group must agree."""
    at_least: int
    """Minimum number of fields that must agree."""
    one_of: tuple[str, ...]
    """Fields of which at least one must agree."""
    source: str
    read: str
    earliest_days: int = 120
    latest_days: int = 365


VISA: Final = NetworkRule(
    name="Visa Compelling Evidence 3.0",
    network="visa",
    code="10.4",
    groups=(("ip", "device", "account", "shipping"),),
    at_least=2,
    one_of=("ip", "device"),
    source="https://support.stripe.com/questions/how-does-stripe-support-visa-compelling-evidence-3-0"
    " (code, days, credential) and https://perseuspayments.freshdesk.com/support/solutions/articles/"
    "154000138527 (elements)",
    read="2026-11-29",
)
MASTERCARD: Final = NetworkRule(
    name="Mastercard First-Party Trust",
    network="mastercard",
    code="4837",
    groups=(("ip", "device"), ("shipping", "billing"), ("email", "account")),
    at_least=3,
    one_of=("ip", "device"),
    source="https://developers.justt.ai/docs/visa-ce-30-mastercard-fptp-evidence-guide (code, days "
    "and credential) and https://cside.com/en/blog/mastercard-fpt-how-it-reduces-chargebacks "
    "(device, delivery and identity)",
    read="2026-11-29",
)
NETWORK_RULES: Final = (VISA, MASTERCARD)

MEMBER_WORDS: Final[Mapping[str, str]] = {
    "ip": "IP address", "device": "device", "account": "account at the shop",
    "shipping": "shipping address", "billing": "billing address", "email": "email address",
}  # fmt: skip

NETWORK_NAMES: Final[Mapping[str, str]] = {
    "mc": "mastercard", "american express": "amex", "american_express": "amex",
    "diners_club": "diners",
}  # fmt: skip


def network_of(words: Sequence[str]) -> str | None:
    """Return the one card network that a payment's messages name."""
    found = {NETWORK_NAMES.get(each.casefold(), each.casefold()) for each in words}
    return found.pop() if len(found) == 1 else None


class NetworkRuleDocument(TypedDict):
    """Answer to the question whether a disputed payment qualifies under a card network's rule on
    earlier purchases."""

    rule: Annotated[str, Keywords(examples=["Visa Compelling Evidence 3.0"])]
    qualifies: bool
    sentence: str
    orders: Annotated[list[str], "The earlier orders by which the payment qualifies."]
    source: Annotated[str, "The pages that state the rule."]
    read: Annotated[str, "The day on which these pages were read."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """Verdict on a dispute under a card network's rule."""

    rule: NetworkRule
    because: str
    orders: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return a sentence on whether the payment qualifies under the rule, and why."""
        if self.orders:
            return f"This payment qualifies for {self.rule.name}: {self.because}."
        return f"This payment does not qualify for {self.rule.name}, because {self.because}."

    def document(self) -> NetworkRuleDocument:
        return {
            "rule": self.rule.name, "qualifies": bool(self.orders), "sentence": self.sentence,
            "orders": list(self.orders), "source": self.rule.source, "read": self.rule.read,
        }  # fmt: skip


def qualifications(
    disputed: Purchase, earlier: Sequence[Purchase], *, fraud: bool
) -> list[Qualification]:
    """Apply the card network's rules to a disputed purchase.

    For an unknown network, all rules apply. Without `fraud`, no rule applies.
    """
    network = network_of(disputed.stated.get("network", ()))
    if not any(disputed.stated.get(each) for each in ("network", "reason_code", "credential")):
        return []  # as far as is known, no card paid
    rules = [each for each in NETWORK_RULES if network in (None, each.network)]
    return [_judged(each, disputed, earlier, network) for each in rules] if fraud else []


def _judged(
    rule: NetworkRule, disputed: Purchase, earlier: Sequence[Purchase], network: str | None
) -> Qualification:
    codes = disputed.stated.get("reason_code", ())
    if network is None:
        return Qualification(rule=rule, because="no message states the card network")
    if codes != (rule.code,):
        stated = f"this dispute has {' and '.join(codes)}" if codes else "no message states it"
        return Qualification(
            rule=rule, because=(f"the rule is for reason code {rule.code}, and {stated}")
        )
    paid_at = disputed.processed_at
    if paid_at is None:
        return Qualification(rule=rule, because="no message dates the disputed payment")
    others = [each for each in earlier if each.processed_at is not None]
    within = f"{rule.earliest_days} to {rule.latest_days} days before it"
    steps = (
        ("is known", lambda each: True),
        (
            f"was made {within}",
            lambda each: (
                rule.earliest_days * DAY
                <= paid_at - (each.processed_at or paid_at)
                < (rule.latest_days + 1) * DAY
            ),
        ),
        ("of these was captured in full and not refunded", lambda each: each.settled),
        ("of these is free of a dispute", lambda each: not each.disputed),
        (
            "of these is known to be by the same card",
            lambda each: each.shares("credential", disputed),
        ),
    )
    for words, holds in steps:
        others = [each for each in others if holds(each)]
        if len(others) < 2:
            count = "no earlier payment" if not others else "only one earlier payment"
            return Qualification(rule=rule, because=f"{count} {words}, but two are required")
    for pair in combinations(sorted(others, key=lambda each: each.order), 2):
        matching = _matching(rule, disputed, pair)
        if matching:
            return Qualification(
                rule=rule,
                because=f"orders {pair[0].order} and {pair[1].order} were paid by the same card "
                f"{within}, no dispute of them is known, and they share with this "
                f"payment: {' and '.join(MEMBER_WORDS[each] for each in matching)}",
                orders=tuple(each.order for each in pair),
            )
    needed = "two matching elements, one of them IP address or device"
    if len(rule.groups) > 1:
        needed = "one matching element each for device, delivery and identity"
    because = f"no two earlier payments by the same card share with this payment {needed}"
    return Qualification(rule=rule, because=because)


def _matching(rule: NetworkRule, disputed: Purchase, pair: Sequence[Purchase]) -> tuple[str, ...]:
    found: list[str] = []
    for group in rule.groups:
        shared = [each for each in group if all(one.shares(each, disputed) for one in pair)]
        if len(rule.groups) > 1 and not shared:
            return ()
        found += shared if len(rule.groups) == 1 else shared[:1]
    enough = len(found) >= rule.at_least and any(each in rule.one_of for each in found)
    return tuple(found) if enough else ()
