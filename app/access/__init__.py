"""Operators and their access: roles, tokens, sessions, proposals and the audit trail."""

__all__ = (
    "bookmarks",
    "challenges",
    "company_account",
    "credentials",
    "names",
    "operator_store",
    "operators",
    "passkeys",
    "proposal",
    "proposal_store",
    "proposals",
    "session_store",
    "sessions",
    "tokens",
)
