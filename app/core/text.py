"""Small words of sentences for people."""

from __future__ import annotations

DELIVERY = ("delivery", "deliveries")
LEAF = ("leaf", "leaves")
"""Nouns of which the plural is not made by an s: `counted(2, *LEAF)`."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 order`, `2,000 orders`; `many` where the plural has no plain s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Without characters by which a text could command a terminal, or that it cannot take: they
    show as `\\x1b`. A break of lines is one of them."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
