"""Context that all layers share: settings, clock, database, inbox and signals."""

__all__ = ("configured", "context", "unread")
