"""What no key brought together, kept for a second look; bounded in number.

Leaves out: the second look itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

from reconcile.matching.funds import Capture
from reconcile.matching.rows import BookRow, StatementRow, TakingRow

MOST_LEFT: Final = 30_000
"""Rows kept of each kind: about a kilobyte each with its break and the indexes that it is searched
by, so that all six kinds together, all of them full, take about 200 MB. What is beyond is decided
at once, by its key alone, and says so; `Control.unsearched` counts it."""

Kept = TypeVar("Kept")


@dataclass(slots=True)
class Left:
    """Rows that wait for the second look.

    orders    orders with money, and no book line of their own that fits
    book      lines of one reference that claim money that was not found
    idle      lines of one reference that claim nothing, in case their payment went astray
    captures  money that a statement ought to hold
    awaited   money that a statement may hold later, in case a stray line is of it
    lines     statement lines of payments that nobody knows
    """

    orders: list[TakingRow] = field(default_factory=list)
    book: list[tuple[BookRow, ...]] = field(default_factory=list)
    idle: list[tuple[BookRow, ...]] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)
    awaited: list[Capture] = field(default_factory=list)
    lines: list[StatementRow] = field(default_factory=list)

    def sort(self) -> None:
        """In an order that does not depend on how they came."""
        self.orders.sort(key=lambda row: (row.key, row.order))
        self.book.sort(key=_of_book)
        self.idle.sort(key=_of_book)
        self.captures.sort(key=_of_capture)
        self.awaited.sort(key=_of_capture)
        self.lines.sort(key=lambda row: row.line_id)


def keep(pool: list[Kept], row: Kept) -> bool:
    """Put it aside; False where there is no room."""
    if len(pool) >= MOST_LEFT:
        return False
    pool.append(row)
    return True


def _of_book(rows: tuple[BookRow, ...]) -> tuple[str, str]:
    return rows[0].key, rows[0].line_id


def _of_capture(capture: Capture) -> tuple[str, ...]:
    return (capture.key, capture.order, capture.source, capture.payment)
