"""The web console: the pages on which finance, support and the shop's developer do their work."""

__all__ = ("application", "live", "uploads", "view")
