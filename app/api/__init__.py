"""The HTTP API for the shop's own programs. It parses and prints only."""

__all__ = (
    "application",
    "probes",
    "routes",
)
