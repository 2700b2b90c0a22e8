"""Facts about a payment for the answer to a dispute are read where the profile says."""

import json
from typing import Any

from app.providers.profile import load_profile
from app.providers.reader import MAX_STATED, EventReader
from app.providers.request import Incoming
from tests.rows import for_each

CARD = {"network": "visa", "fingerprint": "fp_1", "last4": "4242", "checks": {"cvc_check": "pass"}}
CHARGE = {
    "object": "charge", "payment_method_details": {"card": CARD}, "description": "Two lamps",
    "billing_details": {"email": "a@example.com", "address": {"line1": "Moi Avenue 12",
                                                              "line2": None, "city": "Nairobi"}},
}  # fmt: skip
DISPUTE = {
    "object": "dispute", "evidence": {"customer_purchase_ip": "192.0.2.7"},
    "payment_method_details": {"card": {"brand": "visa", "network_reason_code": "10.4"}},
}  # fmt: skip
ADYEN = {
    "eventCode": "CHARGEBACK", "paymentMethod": "mc",
    "additionalData": {
        "chargebackReasonCode": "4837", "arn": "74987500000000000000000", "shopperIP": "192.0.2.8",
        "billingAddress.houseNumberOrName": "12", "billingAddress.street": "Moi Avenue",
        "billingAddress.city": "Nairobi",
    },
}  # fmt: skip
CHECKED = {"avs_status": "AVS_ACCEPTED", "cvv_status": "CVV_ACCEPTED"}
SQUARE = {"payment": {"card_details": CHECKED | {"card": {"card_brand": "VISA", "last_4": "1111"}}}}


@for_each(
    ("profile", "body", "stated"),
    [
        ("stripe", {"data": {"object": CHARGE}}, {
            "network": "visa", "credential": "fp_1", "card": "4242", "cvv": "pass",
            "sold": "Two lamps", "email": "a@example.com", "billing": "Moi Avenue 12, Nairobi"}),
        ("stripe", {"data": {"object": DISPUTE}}, {
            "network": "visa", "reason_code": "10.4", "ip": "192.0.2.7"}),
        ("square", {"data": {"object": SQUARE}}, {
            "network": "VISA", "card": "1111", "avs": "AVS_ACCEPTED", "cvv": "CVV_ACCEPTED"}),
        ("checkout_com", {"data": {"reason_code": "13.1"}}, {"reason_code": "13.1"}),
        ("checkout", {"data": {"customer": {"ip": 5, "device": ["x"], "account": "x\x1b[0m",
                                            "shipping": "x" * (MAX_STATED + 1)}}}, {"ip": "5"}),
        ("checkout", {"data": {"order": {"description": ""}}}, {}),
    ],
)  # fmt: skip
def test_it_is_read_in_each_form_and_what_is_of_another_form_is_left_out(
    profile: str, body: dict[str, Any], stated: dict[str, str]
) -> None:
    reader = EventReader("shop", load_profile(profile))
    content = json.dumps(body).encode()
    assert reader.transaction(content, Incoming([], content), digest="") == stated


def test_of_several_events_in_a_body_the_one_counts_that_is_asked_for() -> None:
    items = [{"NotificationRequestItem": each} for each in (ADYEN, ADYEN | {"paymentMethod": "x"})]
    content = json.dumps({"notificationItems": items}).encode()
    reader, incoming = EventReader("shop", load_profile("adyen")), Incoming([], content)
    digests = [each.digest for each in reader._each(content, incoming)]
    found = [reader.transaction(content, incoming, digest=each) for each in digests]
    assert [each["network"] for each in found] == ["mc", "x"]
    assert found[0] | {"network": ""} == {
        "network": "", "reason_code": "4837", "arn": "74987500000000000000000",
        "ip": "192.0.2.8", "billing": "12 Moi Avenue, Nairobi",
    }  # fmt: skip
