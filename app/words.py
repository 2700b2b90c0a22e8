"""Small words of sentences for people."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 order`, `2,000 orders`; `many` where the plural has no plain s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
