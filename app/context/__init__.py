"""Context of all layers: settings, clock, database, inbox and news of this process."""

__all__ = ("context", "signals", "unread", "work")
