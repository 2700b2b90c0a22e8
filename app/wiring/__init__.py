"""Connect all other packages: turn settings into open contexts, running services and processes."""

__all__ = ("opening", "serving", "work", "worker")
