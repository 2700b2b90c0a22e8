"""The console: pages where finance, support and the shop's developer do their work."""

__all__ = ("application", "live", "uploads", "view")
