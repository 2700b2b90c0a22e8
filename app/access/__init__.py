"""Who may come in: operators with their roles, tokens, and the audit trail."""

__all__ = (
    "operator_store",
    "operators",
    "tokens",
)
