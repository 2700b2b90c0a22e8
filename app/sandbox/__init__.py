"""The simulated provider: seeded, driven by a clock, with real HTTP in a separate process.

The simulated provider shares only the signing code with the receiver. A mistake in reading events
can therefore not be hidden by an equal mistake in writing them. See README.md in this folder.
"""

__all__ = (
    "listening",
    "playing",
    "scenarios",
    "server",
    "settings",
    "webhook_sender",
)
