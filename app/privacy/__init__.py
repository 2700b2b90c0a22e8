"""The life of stored data: backed up, checked, pruned, and erased on request."""

__all__ = (
    "backup",
    "check",
    "erase",
    "erase_finding",
    "erasure_journal",
    "places",
    "prune",
    "replay_erasures",
)
