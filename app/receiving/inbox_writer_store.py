"""The receiver's side of the inbox, which writes rows."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from app.core.clock import SystemClock
from app.core.errors import StoreUnavailable
from app.core.logs import Repeating, log
from app.core.text import counted
from app.database.gaps import LAST_COMMIT
from app.database.statements import PlainConnection
from app.database.writer import Writer
from app.receiving import inbox_store
from app.receiving.framing import Item
from app.receiving.inbox_loss_store import Kept, kept_of
from reconcile.instants import Instant

LOOK_S: Final = 0.1

LOOK_SHARED_S: Final = 1.0
"""Seconds between two checks on PostgreSQL."""

IDLE_S: Final = 1.0
"""Seconds without a new delivery after which rows that were read are deleted."""

NOTE_S: Final = 1.0
"""Minimum seconds between two transactions that only record a new commit's time."""

QUIET_S: Final = 5.0
"""Seconds without a commit after which the database's write-ahead log is checkpointed."""

ROOM_TIMES: Final = 3
"""Factor for reserved disk space: log, file and indexes take each delivery's bytes."""

ROOM_FLOOR: Final = 4_096
"""Minimum bytes of disk space reserved for each unread record's rows, leaf and ledger."""

DELETED_BYTES: Final = 256 * 1024
"""Maximum bytes of rows deleted with a new row."""

DELETED_IDLE_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of rows deleted while no sender waits."""


class InboxWriter:
    """Writer of accepted deliveries. The writer deletes read rows only while `watch` runs."""

    def __init__(
        self,
        writer: Writer,
        inbox: inbox_store.InboxRows,
        *,
        database: Writer,
        shared: bool,
        max_bytes: int,
    ) -> None:
        """Prepare a writer, before the stored rows are counted.

        shared     whether the database is PostgreSQL, where the reader deletes the rows
        max_bytes  limit on unread rows; beyond the limit, deliveries are refused
        """
        self.writer = writer
        self._database = database
        self._inbox = inbox
        self._shared = shared
        self._max_bytes = max_bytes
        self.may_delete: Callable[[], bool] = lambda: True
        """Function that returns whether a position that was read is certainly on the disk."""
        self.records = 0
        """Number of stored deliveries and rejections that are not known to be read."""
        self.size = 0
        """Bytes of the rows with these records."""
        self.kept_size = 0
        """Bytes of rows that are read and not deleted yet."""
        self.oldest: Instant | None = None
        """Arrival of the oldest record that is not known to be read."""
        self.on_look: Callable[[], None] = lambda: None
        """Called after each check of how far the inbox has been read."""
        self.on_kept: Callable[[int], None] = lambda seq: None
        """Called with the number of each durable row, before its senders are answered."""
        self.kept: dict[int, Kept] = {}
        """Content of each row that was stored here and is not known to be read."""
        self._unread: deque[tuple[int, int, int, Instant]] = deque()
        """(number, records, bytes, arrival) of each row that is not known to be read."""
        self._read: deque[tuple[int, int]] = deque()
        """(number, bytes) of each row that is read and must still be deleted."""
        self._covered = 0
        """Number up to which rows may be deleted."""
        self._seen = self._noted = self._checkpointed = 0
        """LAST_COMMIT as last read, as last noted in the file, and as last checkpointed."""
        self._seen_at = self._noted_at = self._wrote_at = 0.0
        self._tidied = 0
        writer.space.reserved = lambda: max(ROOM_TIMES * self.size, ROOM_FLOOR * self.records)

    async def load(self) -> None:
        """Load the numbers and sizes of the rows that are stored."""
        if self._shared:
            await self._look()
            return
        rows, self._tidied, self._noted = await self._inbox.rows_of_file()
        for row in rows:
            self._count(*row)
        progress = await self._inbox.progress()
        self._covered, self._seen = progress.covered, progress.last_commit
        self._read_up_to(progress.position)

    async def keep(self, items: Sequence[Item]) -> None:
        """Write a row with these items, and return after a durable commit.

        Raise StoreUnavailable or StorePoisoned on failure.
        """
        if self.size > self._max_bytes:
            raise StoreUnavailable(
                f"more than {counted(self._max_bytes, 'byte')} of deliveries are unread "
                "(TALLYHOOK_INBOX_MAX_BYTES); try again",
                reason="queue",
            )
        if self._shared:
            await self.writer.commit_statement(inbox_store.KEEP_HELD, inbox_store.inbox_row(items))
            return
        size = sum(len(item.body) for item in items)
        # Deleting takes disk space, too: after a failed commit the next one only inserts.
        keeps_only = self.writer.trouble is not None or not self.may_delete()
        deleted = None if keeps_only else self._next_deleted(max(size, DELETED_BYTES))
        note = self._to_note()
        seq, size = await self.writer.commit(_keep, items, deleted, note)
        self._database.check_place()
        self._wrote(deleted, note)
        self._wrote_at = monotonic()
        self._count(seq, len(items), size, min(item.received_at for item in items))
        self.kept[seq] = kept_of(items)
        self.on_kept(seq)

    def unread_after(self, position: int) -> list[int]:
        """Return the known numbers of unread rows above a position."""
        return [seq for seq, *_ in self._unread if seq > position]

    def _count(self, seq: int, records: int, size: int, came: Instant) -> None:
        self._unread.append((seq, records, size, came))
        self.records += records
        self.size += size
        self.oldest = self._unread[0][-1]

    def _read_up_to(self, position: int) -> None:
        while self._unread and self._unread[0][0] <= position:
            seq, records, size, _ = self._unread.popleft()
            self.kept.pop(seq, None)
            self._read.append((seq, size))
            self.records -= records
            self.size -= size
            self.kept_size += size
        self.oldest = self._unread[0][-1] if self._unread else None

    def _next_deleted(self, size: int) -> int | None:
        last = None
        for seq, its_size in self._read:
            if seq > self._covered or (last is not None and its_size > size):
                break
            last, size = seq, size - its_size
        return last

    def _to_note(self) -> int | None:
        return self._seen if self._seen > self._noted else None

    def _wrote(self, deleted: int | None, noted: int | None) -> None:
        if noted is not None:
            self._noted, self._noted_at = noted, monotonic()
        while deleted is not None and self._read and self._read[0][0] <= deleted:
            self.kept_size -= self._read.popleft()[1]

    async def watch(self, closing: asyncio.Event) -> None:
        """Follow the reader's progress until `closing` is set, and delete rows that were read."""
        failing = Repeating()
        while not closing.is_set():
            try:
                await self._look()
            except StoreUnavailable as error:  # read rows stay a little longer
                if times := failing.times(error.reason):
                    log.warning(
                        "read deliveries cannot be deleted from the inbox yet",
                        reason=error.reason,
                        count=times,
                    )
            self.on_look()
            try:
                async with asyncio.timeout(LOOK_SHARED_S if self._shared else LOOK_S):
                    await closing.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        self._database.check_place()
        if self._shared:
            found = await self._inbox.backlog()
            self.records, self.size, self.oldest = found.records, found.size, found.oldest
            return
        self.writer.check_place()
        may_delete = self.may_delete()
        progress = await self._inbox.progress()
        self._database.check_place()  # the position must be read from the present file
        if may_delete and self.may_delete():  # no reader has ended meanwhile
            self._covered = progress.covered
            self._read_up_to(progress.position)
            if progress.tidy_up_to > self._tidied:
                await self._tidy(progress)
            elif monotonic() - self._wrote_at > IDLE_S:
                await self._delete()
        await self._note(progress.last_commit)

    async def _delete(self) -> None:
        last, note = self._next_deleted(DELETED_IDLE_BYTES), self._to_note()
        if last is not None:
            await self.writer.commit(_keep, (), last, note)
            self._wrote(last, note)

    async def _tidy(self, progress: inbox_store.Progress) -> None:
        up_to = progress.tidy_up_to
        if progress.covered < min(up_to, progress.position):
            await self._database.try_checkpoint("PASSIVE")  # the next look sees how far it got
            return
        while self._read and self._read[0][0] <= up_to:
            await self._delete()
        if await self.writer.checkpoint():
            await self.writer.commit(inbox_store.put_counter, inbox_store.TIDIED, up_to)
            self._tidied = up_to

    async def note_lost_commits(self) -> None:
        """Record that the database's write-ahead log was lost."""
        newer = max(SystemClock().now(), self._seen + 1)
        with self.writer.though_poisoned():
            await self.writer.commit(_keep, (), None, newer)

    async def _note(self, last_commit: int) -> None:
        now = monotonic()
        if last_commit != self._seen:
            self._seen, self._seen_at = last_commit, now
        elif self._checkpointed != last_commit and now - self._seen_at >= QUIET_S:
            self._seen_at = now
            if await self._database.try_checkpoint("TRUNCATE"):
                self._checkpointed = last_commit
        note = self._to_note()
        if note is not None and now - self._noted_at >= NOTE_S:
            await self.writer.commit(_keep, (), None, note)
            self._wrote(None, note)


def _keep(
    connection: PlainConnection,
    items: Sequence[Item],
    deleted: int | None,
    last_commit: int | None,
) -> tuple[int, int]:
    if deleted is not None:
        inbox_store.delete_up_to(connection, deleted)
    if last_commit is not None:
        inbox_store.put_counter(connection, LAST_COMMIT, last_commit)
    return inbox_store.keep_row(connection, items) if items else (0, 0)
