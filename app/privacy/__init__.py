"""Backs up, checks, prunes and exports stored data, and erases personal data on request."""

__all__ = (
    "backup",
    "check",
    "copies",
    "erase",
    "erase_finding",
    "erasure_journal",
    "export",
    "fit_journal",
    "gap",
    "pending_erasures",
    "places",
    "prune",
    "replay_erasures",
    "whose",
)
