"""Every provider that is promised by name has a profile that one may rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.providers.profile import SHIPPED, load_profile

VECTORS = Path(__file__).parents[1] / "vectors"
LEAST_VECTORS = 5
PROMISED = """
    adyen adyen_platform bitso braintree cashfree chapa chargebee checkout checkout_com
    coinbase_cdp coinbase_commerce convoy finch flutterwave flutterwave_v3 github gocardless
    intasend integrated_finance kopokopo korapay lemonsqueezy line lithic mercadopago midtrans
    modern_treasury mollie monnify moonpay moov mpesa_stk mtn_momo nowpayments openai paddle
    pawapay payfast paymob paypal paystack peach_checkout peach_oppwa pesapal plaid razorpay
    revolut rfc9421 sendgrid shopify slack snap_winpay square standard_webhooks stripe svix
    twilio wise wise_sha1 woovi workos xendit yoco
"""
OURS = ("checkout",)
"""Whose form is this project's own choice: it rests on nobody's word."""


@pytest.mark.parametrize("name", PROMISED.split())
def test_each_promised_profile_has_known_answers_and_sources(name: str) -> None:
    profile = load_profile(name)
    assert name in OURS or (profile.rests_on is not None and profile.rests_on.source)
    assert (SHIPPED / f"{name}.toml").read_text(encoding="utf-8").startswith("# ")
    vectors = (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(vectors) >= LEAST_VECTORS
