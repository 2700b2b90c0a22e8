"""Earlier purchases as evidence: each condition of a network's rule is needed, and is
named where it is not met."""

from dataclasses import replace
from typing import Any

from app.evidence.first_party import (
    MASTERCARD,
    NETWORK_RULES,
    VISA,
    NetworkRule,
    Purchase,
    network_of,
    qualifications,
)
from reconcile.instants import DAY, Instant
from tests.reconcile.build import T
from tests.rows import for_each

SAME = {
    "credential": ("fp_1",), "ip": ("192.0.2.7",), "device": ("D-1",), "account": ("amina",),
    "shipping": ("Moi Avenue 12, Nairobi",), "email": ("a@example.com",),
}  # fmt: skip


def purchase(order: str, days: int, stated: dict[str, Any] | None = None, **more: Any) -> Purchase:
    """Make a purchase so many days before the disputed one."""
    given = {"settled": True, "disputed": False, "stated": SAME if stated is None else stated}
    return Purchase(order=order, processed_at=Instant(T - days * DAY), **(given | more))


def disputed(rule: NetworkRule, **stated: tuple[str, ...]) -> Purchase:
    own = {"network": (rule.network,), "reason_code": (rule.code,)}
    return purchase("ORD-9", 0, SAME | own | stated, disputed=True)


TWO = (purchase("ORD-1", 130), purchase("ORD-2", 300))


@for_each("rule", NETWORK_RULES)
def test_two_earlier_purchases_by_the_same_card_with_matching_elements_qualify(
    rule: NetworkRule,
) -> None:
    (found,) = qualifications(disputed(rule), TWO, fraud=True)
    assert found.document() | {"sentence": ""} == {
        "rule": rule.name, "qualifies": True, "sentence": "", "orders": ["ORD-1", "ORD-2"],
        "source": rule.source, "read": "2026-11-29",
    }  # fmt: skip
    assert "IP address and " in found.sentence
    assert qualifications(disputed(rule), TWO, fraud=False) == []


@for_each("days", [120, 365])
def test_the_first_and_the_last_day_count(days: int) -> None:
    (found,) = qualifications(disputed(VISA), (TWO[0], purchase("ORD-3", days)), fraud=True)
    assert found.orders == ("ORD-1", "ORD-3")


def _without(*members: str) -> dict[str, Any]:
    return {name: values for name, values in SAME.items() if name not in members}


@for_each(
    ("rule", "stated", "earlier", "because"),
    [
        (VISA, {"reason_code": ("10.3",)}, TWO, "code 10.4, and this dispute has 10.3"),
        (VISA, {"reason_code": ()}, TWO, "for reason code 10.4, and no message states it"),
        (VISA, {}, TWO[:1], "only one earlier payment is known, but two are required"),
        (VISA, {}, (TWO[0], purchase("b", 119)), "only one earlier payment was made 120 to 365"),
        (VISA, {}, (TWO[0], purchase("b", 366)), "only one earlier payment was made 120 to 365"),
        (VISA, {}, (TWO[0], purchase("b", 200, settled=False)), "of these was captured"),
        (VISA, {}, (TWO[0], purchase("b", 200, disputed=True)), "is free of a dispute"),
        (VISA, {"credential": ("fp_2",)}, TWO, "no earlier payment of these is known to be by"),
        (VISA, {}, (TWO[0], purchase("b", 200, _without("credential"))), "by the same card"),
        (VISA, {"ip": ("::1",), "device": ("D-2",)}, TWO, "one of them IP address or device"),
        (VISA, {}, (TWO[0], purchase("b", 200, _without("device", "account", "shipping"))),
         "share with this payment two matching elements"),
        (MASTERCARD, {"shipping": (), "billing": ()}, TWO, "for device, delivery and identity"),
        (MASTERCARD, {"reason_code": ("4853",)}, TWO, "for reason code 4837"),
    ],
)  # fmt: skip
def test_it_does_not_qualify_and_the_letter_says_why(
    rule: NetworkRule, stated: dict[str, Any], earlier: tuple[Purchase, ...], because: str
) -> None:
    (found,) = qualifications(disputed(rule, **stated), earlier, fraud=True)
    assert found.orders == ()
    assert found.sentence.startswith(f"This payment does not qualify for {rule.name}, because ")
    assert because in found.sentence


def test_without_a_network_no_rule_is_said_to_be_met() -> None:
    found = qualifications(replace(disputed(VISA), stated=SAME), TWO, fraud=True)
    assert [each.because for each in found] == ["no message states the card network"] * 2
    assert (network_of(("mc", "Mastercard")), network_of(("visa", "mc"))) == ("mastercard", None)
