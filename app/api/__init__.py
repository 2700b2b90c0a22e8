"""The HTTP API for the shop's own programs. It parses and prints only."""

__all__ = (
    "application",
    "evidence_routes",
    "finance_routes",
    "health",
    "log_routes",
    "proposal_routes",
    "published_log",
    "routes",
)
