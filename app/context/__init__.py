"""What passes through all layers."""

__all__ = ("context",)
