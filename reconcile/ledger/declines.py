"""Explain to a customer why a payment was declined.

No words help a thief, as Stripe and Adyen advise: docs.stripe.com/declines/codes,
docs.adyen.com/development-resources/refusal-reasons.
"""

import re
from typing import Final

FUNDS: Final = "there was not enough money available"
EXPIRED: Final = "the card has expired"
DETAILS: Final = "a detail of the card or account was not right"
PIN: Final = "the PIN was not right"
CONFIRM: Final = "the bank wants the payment to be confirmed, and it was not"
LIMIT: Final = "a limit of the card or account has been reached"
TROUBLE: Final = "the bank could not be reached, or had a technical problem; it may work later"
UNSUITED: Final = "this kind of payment is not possible with the card or account"
TWICE: Final = "an equal payment had been made shortly before"
STOPPED: Final = "it was stopped before it was finished"

CUSTOMER_WORDS: Final[dict[str, str]] = {
    # Stripe
    "authentication_required": CONFIRM,
    "authentication_not_handled": CONFIRM,
    "mobile_device_authentication_required": CONFIRM,
    "payment_intent_authentication_failure": CONFIRM,
    "setup_intent_authentication_failure": CONFIRM,
    "approve_with_id": TROUBLE,
    "issuer_not_available": TROUBLE,
    "processing_error": TROUBLE,
    "reenter_transaction": TROUBLE,
    "try_again_later": TROUBLE,
    "card_not_supported": UNSUITED,
    "currency_not_supported": UNSUITED,
    "service_not_allowed": UNSUITED,
    "card_velocity_exceeded": LIMIT,
    "withdrawal_count_limit_exceeded": LIMIT,
    "insufficient_funds": FUNDS,
    "duplicate_transaction": TWICE,
    "expired_card": EXPIRED,
    "incorrect_address": DETAILS,
    "incorrect_cvc": DETAILS,
    "incorrect_number": DETAILS,
    "incorrect_zip": DETAILS,
    "invalid_cvc": DETAILS,
    "invalid_expiry_month": DETAILS,
    "invalid_expiry_year": DETAILS,
    "invalid_number": DETAILS,
    "incorrect_pin": PIN,
    "invalid_pin": PIN,
    "pin_try_exceeded": LIMIT,
    "offline_pin_required": CONFIRM,
    "online_or_offline_pin_required": CONFIRM,
    "abandoned": STOPPED,
    "requested_by_customer": STOPPED,
    # Adyen: the texts of `refusalReason`
    "3d_not_authenticated": CONFIRM,
    "authentication_required_by_issuer": CONFIRM,
    "acquirer_error": TROUBLE,
    "issuer_unavailable": TROUBLE,
    "not_submitted": TROUBLE,
    "not_supported": UNSUITED,
    "no_checking_account_available_on_card": UNSUITED,
    "no_savings_account_available_on_card": UNSUITED,
    "not_enough_balance": FUNDS,
    "invalid_card_number": DETAILS,
    "cvc_declined": DETAILS,
    "avs_declined": DETAILS,
    "pin_tries_exceeded": LIMIT,
    "withdrawal_amount_exceeded": LIMIT,
    "withdrawal_count_exceeded": LIMIT,
    "card_requires_online_pin": CONFIRM,
    "mobile_pin_required": CONFIRM,
    "shopper_cancelled": STOPPED,
}
"""Words for a customer, for each decline code.

Codes that Stripe and Adyen ask shops to keep from customers are missing.
"""

WITHOUT_REASON: Final = "The customer's bank can say more, and another way to pay may work."

_BETWEEN: Final = re.compile(r"[^a-z0-9]+")


def customer_words(code: str | None) -> str | None:
    """Return the words that explain a decline code to a customer."""
    return None if code is None else CUSTOMER_WORDS.get(_BETWEEN.sub("_", code.lower()).strip("_"))
