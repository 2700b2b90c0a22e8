"""The life of stored data: backed up, checked, pruned, and erased on request."""

__all__ = (
    "backup",
    "check",
    "check_again",
    "erase",
    "erase_finding",
    "erase_rules",
    "erasure_journal",
    "prune",
    "replay_erasures",
    "restore",
    "retention",
)
