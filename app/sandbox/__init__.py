"""The simulated provider: seeded, driven by a clock, with real HTTP in a separate process.

It shares only the signing code with the receiver, so that no mistake in reading events is hidden by
the same mistake in writing them. See README.md in this folder.
"""

__all__ = (
    "listening",
    "playing",
    "scenarios",
    "server",
    "settings",
    "webhook_sender",
)
