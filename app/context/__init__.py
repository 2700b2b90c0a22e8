"""Context shared by all layers: settings, clock, database, inbox and signals."""

__all__ = ("context", "unread")
