"""The HTTP API for the shop's own programs: it parses requests and prints answers."""

__all__ = (
    "api_routes",
    "application",
    "probes",
)
