"""Opening a checkout session at the payment service, once and only once. See README.md."""

__all__ = (
    "ask_session",
    "checkout_result",
    "client",
    "faults",
    "open_checkout",
    "request",
)
