"""The only package that connects all others: it turns settings into open contexts, running services
and processes."""

__all__ = ("opening", "serving", "work", "worker")
