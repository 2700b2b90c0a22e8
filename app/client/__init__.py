"""Client for a shop's program, which needs only the standard library."""

__all__ = ()
