"""The running inbox, which accepts and later stores deliveries."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import Clock, SystemClock
from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable
from app.core.logs import log
from app.core.signals import Signals
from app.database.database import (
    AGAIN_S,
    SERVER_S,
    Database,
    drop_cached_pages,
    once_there,
    sync_file,
    system_errors_explained,
)
from app.database.engine import writing_engine
from app.database.faults import is_conflict
from app.database.gaps import ACCEPT, FoundGap
from app.database.holders import Holder
from app.database.locks import HeldFile
from app.database.postgresql import Purpose
from app.database.statements import PlainConnection, run
from app.database.takeover import gap_of_server
from app.database.writer import TURN_S, Writer
from app.receiving import append_store, inbox_loss_store, inbox_store
from app.receiving.correlation_store import LinkMemory, Links
from app.receiving.inbox_file_store import InboxFile, facts_at, mend_emptied
from app.receiving.inbox_queue import InboxQueue
from app.receiving.inbox_writer_store import InboxWriter
from app.receiving.refusal_store import RejectionRing
from reconcile.instants import SECOND, Duration
from reconcile.ledger.policy import Policy

TIDY_S: Final = 5.0
"""Maximum wait of an erasure for deleted rows, in seconds."""


class Intake(NamedTuple):
    """Queue of accepted deliveries, and the writer that moves deliveries from the queue to the
    inbox."""

    queue: InboxQueue
    writer: InboxWriter


class Inbox(inbox_store.InboxRows):
    """Inbox of a database. `open_inbox` creates it."""

    append_faults = 0

    def __init__(self, settings: Settings, *, purpose: Purpose, refuses_gap: bool = True) -> None:
        """Prepare an unopened inbox. With `refuses_gap`, lost commits prevent writing."""
        self.settings = settings
        self.database = Database(settings, purpose=purpose)
        if refuses_gap:
            self.database.check = self._check_gap
        self.file: InboxFile | None = None
        if self.database.path is not None:
            low_water_mib = settings.disk_low_water_mb
            self.file = InboxFile(self.database.path, low_water_mib=low_water_mib)
            self.database.writer.on_checkpoint = inbox_store.cover
        super().__init__(self.database, self.file)
        self.signals = Signals()
        path = self.database.path
        self.turn = None if path is None else HeldFile(path, ".reading")
        """Lock held by the only reader of an SQLite database."""
        self._ring = RejectionRing(
            max_count=settings.rejections_max_count, max_bytes=settings.rejections_max_bytes
        )
        self._memory = LinkMemory()
        self._intake: Intake | None = None
        self._opened = False
        """True while the file is open for writing. Closing it is then noted."""

    def context(self, *, clock: Clock, policy: Policy | None = None) -> AppContext:
        """Build a context with this inbox and its database."""
        return AppContext(
            settings=self.settings,
            database=self.database,
            inbox=self,
            signals=self.signals,
            clock=clock,
            policy=policy or self.settings.policy(),
        )

    @property
    def queue(self) -> InboxQueue:
        """Return the queue through which a receiver's deliveries enter the inbox."""
        assert self._intake is not None
        return self._intake.queue

    @property
    def writer(self) -> InboxWriter:
        """Return the writer that moves a receiver's deliveries from the queue to the inbox."""
        assert self._intake is not None
        return self._intake.writer

    async def append(
        self, ready: Sequence[append_store.Ready]
    ) -> list[tuple[append_store.Arrival, append_store.StoredVerdict]]:
        """Store the content of inbox rows and delete these rows, in one transaction.

        Return the newly stored deliveries. Raise StoreUnavailable or StorePoisoned on failure.
        """
        try:
            if self.database.spread:
                self._memory.add(await self._append_ahead(ready))
            appended = await self.database.writer.commit(
                append_store.append_ready, ready, memory=self._memory, ring=self._ring
            )
        except Exception:
            self._memory.forget()
            self.append_faults += 1
            raise
        self.append_faults = 0
        self._memory.add(appended.links)
        if appended.arrivals:
            self.signals.evidence_arrived.set()
        self.signals.read.set()
        return list(zip(appended.arrivals, appended.verdicts, strict=True))

    async def _append_ahead(self, ready: Sequence[append_store.Ready]) -> Links:
        try:
            return await self.database.writer.commit(
                append_store.append_ahead, ready, memory=self._memory
            )
        except Exception as error:
            if not is_conflict(error):
                raise
            raise StoreUnavailable(
                "a database node does not show a commit yet", reason="busy"
            ) from error

    async def cannot_append(self) -> str | None:
        """Return the reason why no delivery can be stored."""
        try:
            async with self.database.writer.transaction() as connection:
                await run(connection, append_store.append, [append_store.TRIAL], LinkMemory())
                raise _RolledBack
        except _RolledBack:
            self.append_faults = 0
            return None
        except StoreUnavailable as error:
            return str(error)
        except Exception as error:
            kind = type(error.__cause__ or error).__name__
            return (
                f"accepted deliveries cannot be appended ({kind}), but none is lost: run "
                "`tallyhook db check`, and check the log"
            )

    async def tidy(self) -> bool:
        """Delete all read rows from SQLite's inbox file. Return False after a timeout."""
        file, lock = self.file, self.database.service
        if file is None or lock is None or not file.is_there():
            return True
        up_to = (await self.backlog_and_end())[1].file
        if self._intake is None:
            with lock.if_free() as free:
                if free:
                    await self.database.writer.checkpoint()
                    progress = await self.progress()
                    emptied = await file.empty(progress.covered)
                    return emptied and progress.covered == progress.position
        await self.database.writer.commit(inbox_store.ask_to_tidy, up_to)
        ends = monotonic() + TIDY_S
        while monotonic() < ends:
            async with file.reading() as connection:
                if await run(connection, inbox_store.tidied) >= up_to:
                    return True
            await asyncio.sleep(AGAIN_S)
        return False

    async def damage(self) -> list[str]:
        """Return a sentence for each damage in the inbox file."""
        there = self.file is not None and self.file.is_there()
        return await self.file.damage() if self.file is not None and there else []

    async def rewrite(self) -> None:
        """Rewrite the inbox file without its deleted rows, if there is a file."""
        if self.file is not None and self.file.is_there():
            await self.file.writer.rewrite()

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self, purpose: Purpose) -> None:
        """Open the database and the inbox. Raise ConfigurationError or StoreUnavailable on
        failure."""
        with system_errors_explained():
            if purpose in ("serving", "working"):
                await once_there(self.database, partial(self._open, purpose))
            else:
                await self._open(purpose)

    async def _open(self, purpose: Purpose) -> None:
        ends = monotonic() + SERVER_S
        while purpose == "working" and self.turn is not None and not self.turn.take():
            if monotonic() > ends:
                raise StoreUnavailable("another process reads this inbox; end it", reason="busy")
            await asyncio.sleep(AGAIN_S)
        if self.file is not None and purpose in ("serving", "working", "alone"):
            drop_cached_pages(self.file.path)  # opening the database reads it, too
        await self.database.open(purpose)
        if self.file is not None and purpose in ("serving", "alone"):
            mend_emptied(self.file.path)
        if purpose in ("working", "folding"):
            await self.database.on_snapshot(self.database.check)
        if purpose == "serving":
            if self.turn is not None:  # else a reader that cannot open it would restart forever
                self.turn.take()
                self.turn.release()
            await self._open_intake()

    async def gap(self) -> FoundGap | None:
        """Return the time span of possibly lost commits, if any."""
        return await self.database.on_snapshot(self._found_gap)

    def _found_gap(self, connection: PlainConnection) -> FoundGap | None:
        path, now = self.database.path, SystemClock().now()
        if path is None:
            return gap_of_server(connection, now=now)
        return inbox_store.found_gap(connection, facts_at(path), now=now)

    def _check_gap(self, connection: PlainConnection) -> None:
        found = self._found_gap(connection)
        if found is not None:
            what = (
                f"continue with `tallyhook db restored {ACCEPT}`"
                if self.database.shared
                else (
                    "its write-ahead log (-wal) was removed, cut off or replaced, or an "
                    "older file was put in its place: restore a newer backup, or continue "
                    f"with `tallyhook serve {ACCEPT}` (or `tallyhook db restored` for a copy "
                    "that you put there by hand)"
                )
            )
            raise ConfigurationError([f"TALLYHOOK_DATABASE_URL: {found.sentence()}; {what}"])

    async def _open_intake(self) -> None:
        settings, database, file = self.settings, self.database, self.file
        if file is not None:
            writer = file.writer
        else:  # a separate connection, so that no other write delays a sender
            holder, space = Holder("serving"), database.writer.space
            engine = writing_engine(
                database.url, purpose="serving", hosts=database.hosts, holder=holder
            )
            writer = Writer(
                engine,
                holder=holder,
                watch=database.watch,
                lock=None,
                log=None,
                place=None,
                space=space,
            )
        database.fail_together(writer)
        inbox = InboxWriter(
            writer,
            self,
            database=database.writer,
            shared=database.shared,
            max_bytes=settings.inbox_max_bytes,
        )
        queue = InboxQueue(
            inbox,
            queue_limit=settings.inbox_queue,
            batch_limit=settings.inbox_batch,
            on_commit=lambda count: self.signals.accepted.set(),
        )
        self._intake = Intake(queue, inbox)
        if file is not None:
            await self._open_file(file)
        await inbox.load()

    async def _open_file(self, file: InboxFile) -> None:
        assert self.database.environment is not None
        if (loss := await self.loss()) is not None:
            if loss.deliveries != 0:
                raise inbox_loss_store.refusal(loss)
            log.warning("the inbox was lost", problem=loss.sentence())
            await self.make_way()
            await self.database.writer.commit(inbox_loss_store.go_on_without)
        async with self.database.writer.transaction() as connection:
            known = await run(connection, inbox_store.fact, inbox_store.IDENTITY)
            await file.open(self.database.environment, known=known)
            facts = facts_at(file.database)
            assert facts is not None
            if known is None:
                await run(connection, inbox_store.adopt, facts)
            last = await file.on_snapshot(inbox_store.last_number)
            await run(connection, inbox_loss_store.note_open, last=last, now=SystemClock().now())
        if (lock := self.database.service) is not None:
            identity = facts.identity
            lock.write(inbox_loss_store.note_of(identity, last))
            self.writer.on_kept = lambda seq: lock.write(inbox_loss_store.note_of(identity, seq))
            # So the database records, even without its log, that the file is being written.
            await self.database.writer.try_checkpoint("TRUNCATE")
        await sync_file(file.writer, file.path)
        self._opened = True

    # --- a file that is lost ---------------------------------------------------------------------

    async def loss(self) -> FoundGap | None:
        """Return the loss of the inbox file, or None for an intact file.

        Only the holder of the serving lock may call this method.
        """
        file, state = self.file, await self.database.on_snapshot(inbox_loss_store.left)
        if state.lost is not None or file is None or state.known is None:
            return state.lost
        what = inbox_loss_store.wrong_with(file.path, look=file.is_small)
        found, least = set[int](), max(state.position, state.closed or 0)
        if self.database.service is not None:
            noted = inbox_loss_store.noted_in(self.database.service.read(), state.known)
            # The note of a reopened file may be in a lost log, so the later number counts.
            if noted is not None and (state.closed is None or noted.last > state.closed):
                least = max(least, noted.last)
                state = state._replace(closed=noted.last if noted.complete else None)
        if what is None:
            if await file.on_snapshot(inbox_store.last_number) >= least:
                return None
            what = inbox_loss_store.WITHOUT_LOG
        if state.closed is not None and file.is_there():
            for at in range(state.position + 1, state.closed + 1, inbox_loss_store.AT_ONCE):
                some = range(at, min(at + inbox_loss_store.AT_ONCE, state.closed + 1))
                found |= {row[0] for row in await file.on_snapshot(inbox_loss_store.readable, some)}
        now = SystemClock().now()
        lost = inbox_loss_store.loss_after(
            state,
            detail=f"the inbox {file.path} {what}",
            found=found,
            on_its_way=Duration((self.settings.receive_deadline_s + TURN_S) * SECOND),
            now=now,
        )
        return await self.database.on_snapshot(inbox_store.until_now, lost, now=now)

    async def make_way(self) -> None:
        """Save a damaged file's unread rows, and rename the file.

        The caller must then commit `go_on_without`.
        """
        file, state = self.file, await self.database.on_snapshot(inbox_loss_store.left)
        assert file is not None
        facts = facts_at(file.database) if state.lost is not None else None
        put_back = facts is not None and facts.identity == state.known
        if file.path.exists() and (state.lost is None or put_back):
            inbox_loss_store.mend_length(file.path)
            numbers = sorted(await file.on_snapshot(inbox_loss_store.numbers_in, state.position))
            for at in range(0, len(numbers), inbox_loss_store.AT_ONCE):
                some = numbers[at : at + inbox_loss_store.AT_ONCE]
                rows = await file.on_snapshot(inbox_loss_store.readable, some)
                await self.database.writer.commit(inbox_loss_store.save, rows, some[-1])
        await file.make_way()

    async def _conclude(self, file: InboxFile, kept: InboxWriter) -> None:
        if kept.writer.poison is None:
            last = await file.on_snapshot(inbox_store.last_number)
            await self.database.writer.commit(inbox_loss_store.note_closed, last)
            return
        if (gone_of_database := self.database.writer.lost()) is not None:
            if gone_of_database[0].name.endswith("-wal"):
                await kept.note_lost_commits()
            return
        lost = file.files.lost()
        if lost is None or lost[0].name.endswith("-shm"):
            return
        gone, saved = set[int](), 0
        writer, position = self.database.writer, (await self.progress()).position
        numbers = kept.unread_after(position)
        # The pages of the last rows are in this connection's memory, and nowhere else.
        with writer.though_poisoned():
            for at in range(0, len(numbers), inbox_loss_store.AT_ONCE):
                some = numbers[at : at + inbox_loss_store.AT_ONCE]
                rows = await file.writer.read_on(inbox_loss_store.readable, some)
                await writer.commit(inbox_loss_store.save, rows, some[-1])
                gone |= set(some) - {row[0] for row in rows}
                saved += sum(row[1] for row in rows)
            what = "was removed" if lost[1] == "is gone" else lost[1]
            what = what if lost[0] == file.path else f"lost its log, which {what},"
            detail = f"the inbox {file.path} {what} while it was served"
            now = SystemClock().now()
            found = inbox_loss_store.loss_among(gone, kept.kept, detail=detail, now=now)
            found = await writer.commit(inbox_loss_store.note_lost, found, now=now)
        log.error("the inbox was lost", problem=found.sentence(), count=saved)

    async def close(self) -> None:
        """Close the inbox and its database. Do nothing if nothing was opened."""
        try:
            if self.turn is not None:
                self.turn.release()
            if self.file is not None and self._opened:
                await self._conclude(self.file, self.writer)
        except (StorePoisoned, StoreUnavailable) as error:
            log.warning("the inbox's state at its closing was not stored", exc_info=error)
        finally:
            if self.file is not None:
                await self.file.close()
            elif self._intake is not None:
                await self._intake.writer.writer.close()
            await self.database.close()


def inbox_of(context: AppContext) -> Inbox:
    """Return the inbox of a context."""
    assert isinstance(context.inbox, Inbox)
    return context.inbox


class _RolledBack(Exception):
    """Error that rolls back a trial transaction."""


@asynccontextmanager
async def open_inbox(
    settings: Settings, *, purpose: Purpose = "serving", refuses_gap: bool = True
) -> AsyncIterator[Inbox]:
    """Open a database with its inbox, and close both after the block.

    Raise ConfigurationError or StoreUnavailable on failure.
    """
    inbox = Inbox(settings, purpose=purpose, refuses_gap=refuses_gap)
    try:
        await inbox.open(purpose)
        yield inbox
    finally:
        await inbox.close()
