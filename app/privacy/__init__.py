"""Back up, check, prune and export stored data, and erase personal data on request."""

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
