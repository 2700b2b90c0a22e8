"""The write-ahead log does not grow for ever, whoever reads; a long reader holds nobody up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.core.errors import StoreUnavailable
from app.database import writer as wal
from app.database.engine import BUSY_TIMEOUT_MS
from app.database.statements import PlainConnection
from app.database.writer import MIB, LogLength, Space
from app.receiving.inbox import Inbox
from tests.database.builders import arrival, keep, opened, said

PAGES = 50
"""The length of the log here."""

BODY = bytes(20_000)
"""Some six pages with its delivery."""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", PAGES)
    monkeypatch.setattr(wal, "INSIST_S", 0)
    return f"sqlite+aiosqlite:///{tmp_path}/t.db"


async def look(inbox: Inbox, over: asyncio.Event, *, seconds: float | None) -> None:
    """Hold a snapshot for so long, or until all is over."""
    async with inbox.database.reading() as connection:
        await connection.execute(text("SELECT count(*) FROM deliveries"))
        if seconds is None:
            await over.wait()
        else:
            await asyncio.sleep(seconds)


@asynccontextmanager
async def looked_at(inbox: Inbox) -> AsyncIterator[None]:
    """Read with overlapping snapshots, one after another."""
    over, reading = asyncio.Event(), asyncio.Event()

    async def one_after_another() -> None:
        async with AsyncExitStack() as last:
            while not over.is_set():
                async with AsyncExitStack() as stack:
                    connection = await stack.enter_async_context(inbox.database.reading())
                    await connection.execute(text("SELECT count(*) FROM deliveries"))
                    reading.set()
                    await last.aclose()
                    await asyncio.sleep(0.03)
                    last.push_async_exit(stack.pop_all())

    task = asyncio.create_task(one_after_another())
    await reading.wait()
    yield
    over.set()
    await task


async def longest(inbox: Inbox) -> int:
    """Write sixty batches; return the most pages of the log."""
    log, pages = inbox.database.writer._log, 0
    assert log is not None
    for number in range(60):
        await keep(inbox, arrival(said(f"e{number}", order=f"O-{number}"), body=BODY))
        pages = max(pages, log.pages())
    return pages


@pytest.mark.usefixtures("database_in_threads")
async def test_readers_that_overlap_do_not_keep_the_log_growing(url: str) -> None:
    """It reaches twice its length, and what is written until its readers end."""
    async with opened(url) as inbox, looked_at(inbox):
        assert 2 * PAGES <= await longest(inbox) < 4 * PAGES


@pytest.mark.usefixtures("database_in_threads")
async def test_control_without_waiting_for_readers_the_log_grows(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogLength, "_may_insist", lambda log: False)
    async with opened(url) as inbox, looked_at(inbox):
        assert await longest(inbox) > 5 * PAGES


async def test_a_long_reader_is_waited_for_rarely(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries go on, and the log begins anew when the reader ends."""
    tried, over, checkpoint = [], asyncio.Event(), wal.checkpoint_log

    def checkpoint_log(
        connection: PlainConnection, mode: wal.Mode, *, wait_ms: int
    ) -> wal.CheckpointResult:
        tried.append(mode)
        return checkpoint(connection, mode, wait_ms=wait_ms)

    monkeypatch.setattr("app.database.writer.checkpoint_log", checkpoint_log)
    monkeypatch.setattr(wal, "INSIST_S", 1_000)
    async with opened(url) as inbox:
        reader = asyncio.create_task(look(inbox, over, seconds=None))
        await asyncio.sleep(0.05)
        assert await longest(inbox) > 5 * PAGES
        assert (tried.count("RESTART"), tried.count("PASSIVE") > 5) == (1, True)
        over.set()
        await reader
        for number in range(3):
            await keep(inbox, arrival(said(f"after-{number}", order="A"), body=BODY))
        assert inbox.database.writer._log is not None
        assert inbox.database.writer._log.pages() < PAGES


async def test_folding_while_it_is_quiet_waits_for_no_reader(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the turn to write."""
    waited, over, checkpoint = [], asyncio.Event(), wal.checkpoint_log

    def noted(connection: PlainConnection, mode: wal.Mode, *, wait_ms: int) -> wal.CheckpointResult:
        waited.append(wait_ms)
        return checkpoint(connection, mode, wait_ms=wait_ms)

    async with opened(url) as inbox:
        reader = asyncio.create_task(look(inbox, over, seconds=None))
        await asyncio.sleep(0.05)
        await keep(inbox, arrival(said("e1", order="A")))
        monkeypatch.setattr(wal, "checkpoint_log", noted)
        assert [await inbox.database.writer.try_checkpoint("TRUNCATE"), waited] == [False, [0]]
        over.set()
        await reader
        assert await inbox.database.writer.try_checkpoint("TRUNCATE")


async def test_room_is_kept_for_a_long_log(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free, over = [2**40], asyncio.Event()
    monkeypatch.setattr(Space, "free_bytes", lambda space: free[0])
    monkeypatch.setattr(wal, "INSIST_S", 1_000)
    async with opened(url, disk_low_water_mb=1) as inbox:
        log = inbox.database.writer._log
        assert log is not None
        reader = asyncio.create_task(look(inbox, over, seconds=None))
        await asyncio.sleep(0.05)
        assert await longest(inbox) > 5 * PAGES
        free[0] = MIB + log.excess_bytes() - 1
        with pytest.raises(StoreUnavailable, match="such as a backup"):
            await keep(inbox, arrival(said("refused", order="A"), body=BODY))
        free[0] += 1
        assert await keep(inbox, arrival(said("taken", order="A"), body=BODY)) == ["stored"]
        over.set()
        await reader
        free[0] = MIB
        log._insist_from = 0
        assert await keep(inbox, arrival(said("after", order="A"), body=BODY)) == ["stored"]


async def test_a_failed_fold_resets_the_timeout(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "ROOM_PAGES", 1)
    async with opened(url, disk_low_water_mb=1) as inbox:
        for number in range(2):
            await keep(inbox, arrival(said(f"e{number}", order="A")))
        assert inbox.database.writer._connection is not None
        raw = await inbox.database.writer._connection.get_raw_connection()
        driver: Any = raw.driver_connection
        unfinished = await driver.execute("SELECT id FROM deliveries")
        monkeypatch.setattr(Space, "free_bytes", lambda space: 0)
        with pytest.raises(StoreUnavailable, match="locked"):
            await inbox.database.writer.make_room()
        await unfinished.close()
        patience = await driver.execute_fetchall("PRAGMA busy_timeout")
        assert list(patience) == [(BUSY_TIMEOUT_MS,)]


async def test_a_full_disk_empties_the_log_rarely(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try waits for readers, and deliveries wait with it."""
    monkeypatch.setattr(wal, "ROOM_PAGES", 0)
    monkeypatch.setattr(wal, "INSIST_S", 1_000)
    modes, checkpoint = list[str](), wal.checkpoint_log

    def noted(connection: PlainConnection, mode: wal.Mode, *, wait_ms: int) -> wal.CheckpointResult:
        modes.append(mode)
        return checkpoint(connection, mode, wait_ms=wait_ms)

    monkeypatch.setattr(wal, "checkpoint_log", noted)
    async with opened(url, disk_low_water_mb=1) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
        monkeypatch.setattr(Space, "free_bytes", lambda space: 0)
        modes.clear()  # those of the start
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await inbox.database.writer.make_room()
        assert modes.count("TRUNCATE") == 1
