"""Accepted deliveries that are not read yet, for rooms that may not import `receiving/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from app.core.clock import CLOCKS_DIFFER
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Unread records, without set-aside ones: number, bytes, and the oldest and newest arrival.

    copied_up_to  date of the newest commit that a standby has replayed; None on a primary
    """

    records: int = 0
    size: int = 0
    oldest: Instant | None = None
    newest: Instant | None = None
    copied_up_to: Instant | None = None

    def is_dated_ahead(self, now: Instant) -> bool:
        """Return whether a fast clock dated part of the backlog later than now."""
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
    """The last row numbers of the inbox's table and of its file."""

    table: int
    file: int


EVERYTHING: Final = InboxEnd(2**63 - 1, 2**63 - 1)


class UnreadInbox(Protocol):
    """The inbox, for all code except its receiver and its reader."""

    async def backlog(self, *, up_to: InboxEnd = EVERYTHING) -> Backlog:
        """Return the unread deliveries among the rows up to these numbers."""
        ...

    async def backlog_and_end(self, *, up_to: InboxEnd = EVERYTHING) -> tuple[Backlog, InboxEnd]:
        """Return the backlog as `backlog` does, and the present last row numbers of table and
        file."""
        ...

    async def kept_bytes(self) -> int:
        """Return the bytes of read rows that are not deleted yet from an SQLite database's
        inbox."""
        ...

    async def tidy(self) -> bool:
        """Delete all read rows from the inbox. Return False if this was not done in time."""
        ...

    async def damage(self) -> list[str]:
        """Return a sentence for each damage to the inbox's own file."""
        ...

    async def rewrite(self) -> None:
        """Rewrite the inbox's own file, so that no deleted content is left in it."""
