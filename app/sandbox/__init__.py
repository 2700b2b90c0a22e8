"""Simulated provider with a seed, a clock and real HTTP. Only the signing code is shared with the
receiver."""

__all__ = (
    "listening",
    "playing",
    "scenarios",
    "server",
    "settings",
    "webhook_sender",
)
