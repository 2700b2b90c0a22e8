"""Simulated provider with a seed, a clock and real HTTP."""

__all__ = (
    "listening",
    "playing",
    "scenarios",
    "server",
    "settings",
    "webhook_sender",
)
