"""Prepare going live: the rehearsal, the trial of the public endpoint, and the checklist."""

__all__ = (
    "capacity",
    "examine",
    "golive",
    "rehearse",
)
