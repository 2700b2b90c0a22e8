"""Context shared by all layers: settings, clock, database, inbox and signals."""

__all__ = ("configured", "context", "unread")
