"""The HTTP API for the shop's own programs. It parses and prints only."""

__all__ = (
    "application",
    "case_routes",
    "evidence_routes",
    "finance_routes",
    "health",
    "log_routes",
    "proposal_routes",
    "published_log",
    "report_routes",
    "routes",
)
