"""The simulated provider: seeded, clock-driven, speaking real HTTP in a process of its own.

It shares the signing code with the receiver and nothing else, so that a mistake in reading
events cannot be cancelled out by the same mistake in writing them. See README.md beside this.
"""

__all__ = (
    "listening",
    "playing",
    "scenarios",
    "server",
    "settings",
    "webhook_sender",
)
