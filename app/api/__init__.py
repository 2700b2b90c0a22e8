"""The HTTP API for the shop's own programs. This package parses requests and prints answers. The
work itself is done by operations of other packages."""

__all__ = (
    "api_routes",
    "application",
    "probes",
)
