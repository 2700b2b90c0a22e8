"""Before real money moves: the rehearsal, the trial of the endpoint, the checklist."""

__all__ = (
    "examine",
    "golive",
    "rehearse",
)
