"""Context shared by all layers: settings, clock, database, inbox and signals of this process."""

__all__ = ("context", "signals", "unread")
