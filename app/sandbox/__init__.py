"""The simulated provider: seeded, driven by a clock, with real HTTP in a separate process.

It shares only the signing code with the receiver, so that a mistake in reading events is not hidden
by an equal one in writing.
"""

__all__ = (
    "listening",
    "playing",
    "scenarios",
    "server",
    "settings",
    "webhook_sender",
)
