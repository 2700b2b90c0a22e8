"""The HTTP API for the shop's own programs. It parses and prints only."""

__all__ = (
    "api_routes",
    "application",
    "probes",
)
