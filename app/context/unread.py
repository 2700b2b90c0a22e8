"""Interface of the inbox's unread deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from app.core.clock import CLOCKS_DIFFER
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Number, size and arrivals of the inbox's unread deliveries."""

    records: int = 0
    size: int = 0
    oldest: Instant | None = None
    newest: Instant | None = None
    copied_up_to: Instant | None = None

    def is_dated_ahead(self, now: Instant) -> bool:
        """Check if the newest unread delivery is dated in the future."""
        return self.newest is not None and self.newest > now + CLOCKS_DIFFER

    def __add__(self, other: Backlog) -> Backlog:
        oldest = [each.oldest for each in (self, other) if each.oldest is not None]
        newest = [each.newest for each in (self, other) if each.newest is not None]
        return Backlog(
            records=self.records + other.records,
            size=self.size + other.size,
            oldest=min(oldest, default=None),
            newest=max(newest, default=None),
            copied_up_to=self.copied_up_to or other.copied_up_to,
        )


class InboxEnd(NamedTuple):
    """Last row numbers in the database's table and the inbox file."""

    table: int
    file: int


EVERYTHING: Final = InboxEnd(2**63 - 1, 2**63 - 1)


class UnreadInbox(Protocol):
    """Interface of the inbox for all code except the receiver and the reader."""

    async def backlog(self, *, up_to: InboxEnd = EVERYTHING) -> Backlog:
        """Return the number, bytes and arrivals of unread deliveries."""
        ...

    async def backlog_and_end(self, *, up_to: InboxEnd = EVERYTHING) -> tuple[Backlog, InboxEnd]:
        """Return the unread deliveries and the last row numbers."""
        ...

    async def kept_bytes(self) -> int:
        """Return the bytes of read inbox rows that are still stored."""
        ...

    async def tidy(self) -> bool:
        """Delete all read rows from the inbox. Return False if time ran out."""
        ...

    async def damage(self) -> list[str]:
        """Return a sentence for each fault in the inbox file."""
        ...

    async def rewrite(self) -> None:
        """Rewrite the inbox file without deleted rows."""
