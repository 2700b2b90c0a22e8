"""Access: operators with their roles, tokens, sessions, proposals, and the audit trail."""

__all__ = (
    "bookmarks",
    "credentials",
    "names",
    "operator_store",
    "operators",
    "proposal",
    "proposal_store",
    "proposals",
    "session_store",
    "sessions",
    "tokens",
)
