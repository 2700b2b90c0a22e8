"""The code that opens a checkout session at the payment service exactly once. See README.md."""

__all__ = (
    "ask_session",
    "client",
    "open_checkout",
    "request",
    "session_api",
)
