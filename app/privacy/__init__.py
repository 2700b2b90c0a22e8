"""The life of stored data: backed up, checked, pruned, exported and erased on request."""

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
