"""The life of stored data: backed up, checked, pruned, and erased on request."""

__all__ = (
    "backup",
    "backup_moment",
    "check",
    "erase",
    "erase_finding",
    "erasure_journal",
    "fit_journal",
    "places",
    "prune",
    "replay_erasures",
)
