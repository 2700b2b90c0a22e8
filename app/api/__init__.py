"""The HTTP API for the shop's own programs. This package only parses requests and prints answers;
operations elsewhere do the work."""

__all__ = (
    "api_routes",
    "application",
    "probes",
)
