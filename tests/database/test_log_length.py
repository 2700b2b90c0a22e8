"""The write-ahead log does not grow for ever, whoever reads; a long reader holds nobody up."""

from __future__ import annotations

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
    """A database whose log is short, and insisted on at any time."""
    monkeypatch.setattr(wal, "FOLD_PAGES", PAGES)
    monkeypatch.setattr(wal, "INSIST_S", 0)
    return f"sqlite+aiosqlite:///{tmp_path}/t.db"


async def look(inbox: Inbox, over: asyncio.Event, *, seconds: float | None) -> None:
    """Read a snapshot, and hold it for so long, or until all is over."""
    async with inbox.database.reading() as connection:
        await connection.execute(text("SELECT count(*) FROM deliveries"))
        if seconds is None:
            await over.wait()
        else:
            await asyncio.sleep(seconds)


@asynccontextmanager
async def looked_at(inbox: Inbox) -> AsyncIterator[None]:
    """Short readers, one after another: each has its snapshot before the last releases its."""
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
    """The most pages that the log has while sixty batches are written."""
    log, pages = inbox.database.writer._log, 0
    assert log is not None
    for number in range(60):
        await keep(inbox, arrival(said(f"e{number}", order=f"O-{number}"), body=BODY))
        pages = max(pages, log.pages())
    return pages


@pytest.mark.usefixtures("database_in_threads")
async def test_readers_that_overlap_do_not_keep_the_log_growing(url: str) -> None:
    """It comes to twice its length, and to what is written until its readers are done."""
    async with opened(url) as inbox, looked_at(inbox):
        assert 2 * PAGES <= await longest(inbox) < 4 * PAGES


@pytest.mark.usefixtures("database_in_threads")
async def test_without_waiting_for_them_it_grows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same readers, and a service that never waits."""
    monkeypatch.setattr(LogLength, "_may_insist", lambda log: False)
    async with opened(url) as inbox, looked_at(inbox):
        assert await longest(inbox) > 5 * PAGES


async def test_a_long_reader_is_waited_for_once_in_a_while(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a backup: deliveries go on, and the log begins anew when it is over."""
    tried, over, fold = [], asyncio.Event(), wal.fold_log

    def fold_log(connection: PlainConnection, mode: wal.Mode) -> None:
        tried.append(mode)
        fold(connection, mode)

    monkeypatch.setattr("app.database.writer.fold_log", fold_log)
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


async def test_a_log_that_is_held_up_takes_room(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has grown by must be free beside the low water, until it can be emptied."""
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


async def test_a_fold_that_fails_leaves_the_writer_as_patient_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for readers for a moment; whoever holds the database later is waited for longer."""
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


async def test_a_full_disk_empties_the_log_once_in_a_while(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try waits for readers, and deliveries with it: the next refusals come at once."""
    monkeypatch.setattr(wal, "ROOM_PAGES", 0)
    monkeypatch.setattr(wal, "INSIST_S", 1_000)
    folds, fold = list[str](), wal.fold_log

    def noted(connection: PlainConnection, mode: wal.Mode) -> None:
        folds.append(mode)
        fold(connection, mode)

    monkeypatch.setattr(wal, "fold_log", noted)
    async with opened(url, disk_low_water_mb=1) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
        monkeypatch.setattr(Space, "free_bytes", lambda space: 0)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await inbox.database.writer.make_room()
        assert folds.count("TRUNCATE") == 1
