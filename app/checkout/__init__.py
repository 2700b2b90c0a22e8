"""Opening a checkout session at the payment service, once and only once. See README.md."""

__all__ = (
    "answer",
    "ask_again",
    "checkout_result",
    "client",
    "faults",
    "form",
    "open_checkout",
    "request",
)
