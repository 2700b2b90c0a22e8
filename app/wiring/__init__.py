"""The only wiring: from settings to open contexts, running services and processes."""

__all__ = ("opening", "serving", "work")
