"""The journal on SQLite: nothing is answered before it is durable, and faults are never hidden."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import issue_token
from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable
from app.database import locks
from app.database.writer import Writer
from app.privacy.check import Rebuilding, check_database
from app.receiving.framing import items_in
from app.receiving.inbox import Inbox, open_inbox
from tests.contexts import settings_of
from tests.database.builders import (
    SOURCES,
    arrival,
    context,
    keep,
    opened,
    rejection,
    rows,
    said,
    submit,
)
from tests.waiting import PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database's file."""
    return tmp_path / "t.db"


@pytest.fixture
def url(path: Path) -> str:
    """A database that does not exist yet."""
    return f"sqlite+aiosqlite:///{path}"


def on_disk(path: Path) -> set[str]:
    """The deliveries that another process would find now, through a connection of its own."""
    with closing(sqlite3.connect(path)) as other:
        kept = {row[0] for row in other.execute("SELECT id FROM deliveries")}
    with closing(sqlite3.connect(f"{path}.inbox")) as other:
        rows = [row[0] for row in other.execute("SELECT records FROM inbox")]
    return kept | {item.delivery_id for row in rows for item in items_in(row)}


async def answered_but_not_there(inbox: Inbox, path: Path) -> list[str]:
    """Deliveries that were acknowledged while nobody else could see them yet."""
    missing = []

    async def send(number: int) -> None:
        item = arrival(said(f"e{number}", order="A"))
        await submit(inbox, item)
        if item.delivery_id not in on_disk(path):
            missing.append(item.delivery_id)

    await asyncio.gather(*(send(number) for number in range(40)))
    return missing


async def test_acknowledges_only_after_the_commit(inbox: Inbox, path: Path) -> None:
    """When `submit` returns, another connection already sees the delivery."""
    assert await answered_but_not_there(inbox, path) == []


async def test_a_journal_that_answers_too_soon_is_caught(inbox: Inbox, path: Path) -> None:
    """The check above finds a journal that answers before it commits."""
    slow, running = inbox.queue.submit, []

    async def hasty(item: Any) -> Any:
        running.append(asyncio.create_task(slow(item)))

    inbox.queue.submit = hasty  # type: ignore[method-assign]
    assert len(await answered_but_not_there(inbox, path)) == 40
    await asyncio.gather(*running)


async def test_a_failing_transaction_answers_all_with_an_error(inbox: Inbox, path: Path) -> None:
    """One arrival that cannot be written fails its whole batch, openly; later ones are kept."""
    good: list[Any] = [arrival(said(f"e{n}", order="A")) for n in range(5)]
    bad = arrival(said("bad", order="A"), received_at="never")
    answers = await asyncio.gather(
        *(submit(inbox, each) for each in [*good, bad, rejection()]), return_exceptions=True
    )
    assert all(isinstance(answer, Exception) for answer in answers)
    assert on_disk(path) == set()
    assert await keep(inbox, *good) == ["stored"] * 5
    assert on_disk(path) == {each.delivery_id for each in good}


async def test_a_full_queue_refuses(url: str) -> None:
    """What goes over the queue's limit is refused at once; what was in it is kept."""
    async with opened(url, inbox_queue=3) as inbox:
        items = [arrival(said(f"e{n}", order="A")) for n in range(5)]
        answers = await asyncio.gather(
            *[submit(inbox, each) for each in items], return_exceptions=True
        )
        assert answers[:3] == ["accepted"] * 3
        assert [type(answer) for answer in answers[3:]] == [StoreUnavailable] * 2
        assert await keep(inbox, items[3]) == ["stored"]


async def test_rejections_leave_room_for_deliveries(url: str) -> None:
    """They may fill half of the queue, rounded up, and no more; a delivery still has a place."""
    async with opened(url, inbox_queue=3) as inbox:
        items: list[Any] = [rejection(), rejection(), rejection(), arrival(said("e1", order="A"))]
        answers = await asyncio.gather(
            *[submit(inbox, each) for each in items], return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [str, str, StoreUnavailable, str]


async def test_what_was_committed_is_counted(inbox: Inbox) -> None:
    """Deliveries are, redelivered ones too; rejections are not."""
    known = said("e1", order="A")
    for item in (arrival(known), arrival(known), rejection()):
        await submit(inbox, item)
    assert inbox.queue.committed == 2
    await submit(inbox, rejection())
    assert inbox.queue.committed == 2


async def test_closing_drains(url: str, path: Path) -> None:
    """Whatever waits when the journal closes is written; later arrivals are refused."""
    async with open_inbox(settings_of(url, inbox_batch=4)) as inbox:
        items = [arrival(said(f"e{n}", order="A")) for n in range(30)]
        waiting = [asyncio.create_task(submit(inbox, item)) for item in items]
        await asyncio.sleep(0)
        inbox.queue.close()
        await inbox.queue.run()
        assert await asyncio.gather(*waiting) == ["accepted"] * 30
        with pytest.raises(StoreUnavailable):
            await submit(inbox, arrival(said("late", order="A")))
    assert on_disk(path) == {item.delivery_id for item in items}


# --- faults ---------------------------------------------------------------------------------------


@contextmanager
def files_cannot_grow(size: int) -> Iterator[None]:
    """Every write beyond `size` bytes of a file fails in the kernel, as on a broken disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def refuses_for_good(inbox: Inbox, known: Any) -> None:
    """Nothing is acknowledged any more: not the new, not the duplicate, not a rejection."""
    for item in (arrival(said("new", order="A")), arrival(known), rejection()):
        with pytest.raises(StorePoisoned):
            await submit(inbox, item)
    with pytest.raises(StorePoisoned):
        async with inbox.database.writing():
            pass
    assert inbox.database.writer.poison is not None


@asynccontextmanager
async def a_failing_disk(writer: Writer, file: Path) -> AsyncIterator[None]:
    """What would make the log longer fails."""
    with files_cannot_grow(file.with_name(f"{file.name}-wal").stat().st_size):
        yield


@asynccontextmanager
async def a_read_only_file(writer: Writer, file: Path) -> AsyncIterator[None]:
    """From now on SQLite refuses to write, as to a file that can only be opened for reading."""
    async with writer.transaction() as connection:
        await connection.exec_driver_sql("PRAGMA query_only=ON")
    yield


@pytest.mark.parametrize("fault", [a_failing_disk, a_read_only_file])
@pytest.mark.parametrize("where", ["inbox", "database"])
async def test_a_fault_of_the_disk_poisons(
    inbox: Inbox, path: Path, fault: Any, where: str
) -> None:
    """After one such error, under whichever file, nothing more is acknowledged, even where the disk
    works again."""
    reported: list[str] = []
    inbox.database.on_poison = reported.append
    known = said("e1", order="A")
    await keep(inbox, arrival(known))
    await submit(inbox, arrival(known))
    before = on_disk(path)
    new = arrival(said("e2", order="A"), body=b"x" * 100_000)
    if where == "inbox":
        assert inbox.file is not None
        async with fault(inbox.file.writer, inbox.file.path):
            with pytest.raises(StorePoisoned):
                await submit(inbox, new)
    else:
        async with fault(inbox.database.writer, path):
            with pytest.raises(StorePoisoned):
                await keep(inbox, new)
    await refuses_for_good(inbox, known)
    assert on_disk(path) == before
    assert len(reported) == 1


CORRUPT = """
import sqlite3, sys
path = sys.argv[1]
with sqlite3.connect(path) as database:
    (root,) = database.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'ix_events_event_id'"
    ).fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
with open(path, "r+b") as file:
    file.seek((root - 1) * size)
    file.write(b"\\xff" * size)
"""


def damage(path: Path) -> None:
    """Overwrite a page. In another process: closing the file in ours would drop its locks."""
    subprocess.run([sys.executable, "-c", CORRUPT, str(path)], check=True, timeout=PATIENCE_S)


async def test_a_damaged_database_is_not_served(url: str, path: Path) -> None:
    """Start-up looks at the whole file, and says what to do."""
    async with opened(url) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
    damage(path)
    with pytest.raises(
        StorePoisoned, match=r"^the database file: Page \d+.*`tallyhook restore"
    ) as raised:
        async with opened(url):
            pass
    assert "\n" not in str(raised.value)


async def test_a_damaged_page_poisons(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is found to be damaged while receiving acknowledges nothing more."""
    known = said("e1", order="A")
    async with opened(url) as inbox:
        await keep(inbox, arrival(known))
    damage(path)

    async def unseen(connection: object, **words: object) -> list[str]:
        return []

    monkeypatch.setattr("app.database.database.damage", unseen)
    async with opened(url) as inbox:
        with pytest.raises(StorePoisoned, match=r"damaged; .*: put back a backup"):
            await keep(inbox, arrival(said("e2", order="A")))
        await refuses_for_good(inbox, known)
        report = await check_database(
            context(inbox), again=Rebuilding(sources=lambda: SOURCES), progress=lambda count: None
        )
        assert report.problems


@asynccontextmanager
async def a_full_disk(inbox: Inbox) -> AsyncIterator[None]:
    """The inbox may not grow by a page."""
    async with inbox.writer.writer.transaction() as connection:
        pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
        await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    yield
    async with inbox.writer.writer.transaction() as connection:
        await connection.exec_driver_sql("PRAGMA max_page_count=1000000")


@asynccontextmanager
async def a_busy_inbox(inbox: Inbox) -> AsyncIterator[None]:
    """A program that knows nothing of our lock is writing."""
    async with inbox.writer.writer.transaction() as connection:
        await connection.exec_driver_sql("PRAGMA busy_timeout=20")
    assert inbox.file is not None
    other = sqlite3.connect(inbox.file.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize("trouble", [a_full_disk, a_busy_inbox])
async def test_passing_trouble_passes(inbox: Inbox, trouble: Any, path: Path) -> None:
    """While the disk is full or the inbox busy, arrivals are refused; afterwards all is well."""
    big = arrival(said("e1", order="A"), body=b"x" * 500_000)
    async with trouble(inbox):
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await submit(inbox, big)
    assert inbox.database.poison is None
    assert await submit(inbox, big) == "accepted"
    assert on_disk(path) == {big.delivery_id}


async def test_after_a_commit_that_was_not_made_it_is_tried_whether_one_can_be(
    inbox: Inbox,
) -> None:
    """As readiness asks, to which no delivery may come any more; before, nothing is written."""
    writer, item = inbox.writer.writer, arrival(said("e1", order="A"))
    async with a_busy_inbox(inbox):
        await writer.check()
        with pytest.raises(StoreUnavailable):
            await submit(inbox, item)
        with pytest.raises(StoreUnavailable):
            await writer.check()
    assert writer.trouble is not None
    await writer.check()
    assert writer.trouble is None


# --- several processes ----------------------------------------------------------------------------


async def test_a_second_serving_process_is_refused(inbox: Inbox, url: str) -> None:
    """Only one process serves a database; others may read and write beside it."""
    settings = settings_of(url)
    with pytest.raises(ConfigurationError, match=r"another process already serves \S+t\.db;"):
        async with open_inbox(settings, purpose="serving"):
            pass
    for purpose in ("writing", "reading"):
        async with open_inbox(settings, purpose=purpose):
            pass
    assert await keep(inbox, arrival(said("e1", order="A"))) == ["stored"]


async def test_a_database_may_be_served_again(url: str) -> None:
    """A process that ended leaves nothing behind that would refuse the next one."""
    for _ in range(2):
        async with opened(url) as inbox:
            await keep(inbox, arrival(said("e1", order="A")))
    async with opened(url) as inbox:
        assert len(await rows(inbox, "SELECT id FROM deliveries")) == 2


async def test_one_writer_at_a_time_among_processes(
    inbox: Inbox, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process holds the writers' lock nothing is written, and then all is well."""
    monkeypatch.setattr(locks, "WAIT_S", 0.05)
    other = os.open(path.with_name("t.db.writing"), os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    item = arrival(said("e1", order="A"))
    with pytest.raises(StoreUnavailable, match="another process"):
        await keep(inbox, item)
    assert on_disk(path) == set()
    assert await submit(inbox, arrival(said("e2", order="A"))) == "accepted"  # nobody waits for it
    fcntl.flock(other, fcntl.LOCK_UN)
    os.close(other)
    assert await keep(inbox, item) == ["stored"]


BESIDE = """
import asyncio, os, sys
from app.core.clock import SystemClock
from app.access.tokens import issue_token
from app.config.settings import Settings
from app.receiving.inbox import open_inbox

async def work(url, ended):
    async with open_inbox(Settings(database_url=url), purpose="writing") as inbox:
        context, number = inbox.context(clock=SystemClock()), 0
        while not os.path.exists(ended):
            await issue_token(context, name=f"t{number}")
            number += 1
    print(number)

asyncio.run(work(*sys.argv[1:]))
"""
"""Writes until a file is there, and says how much."""


async def test_another_process_writes_beside_the_service(
    inbox: Inbox, url: str, tmp_path: Path
) -> None:
    """Two processes that write at the same time both keep all that they wrote."""
    tokens, sent, ended = "SELECT count(*) FROM tokens", 0, tmp_path / "ended"
    words = [sys.executable, "-c", BESIDE, url, str(ended)]
    other = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE_S):
        while sent < 30 or (await rows(inbox, tokens))[0][0] < 60:
            await keep(inbox, *(arrival(said(f"e{sent + n}", order="A")) for n in range(3)))
            sent += 3
    ended.touch()
    written, _ = await other.communicate()
    assert other.returncode == 0
    assert await rows(inbox, "SELECT count(*) FROM deliveries") == [(sent,)]
    assert await rows(inbox, tokens) == [(int(written),)]
    assert await rows(inbox, "PRAGMA integrity_check") == [("ok",)]


def all_bytes(folder: Path) -> bytes:
    """Every file of the folder, one after another."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


async def test_only_hashes_of_tokens_are_in_the_file(url: str, path: Path) -> None:
    """No byte of a token but its kind is in any file of the database."""
    async with opened(url) as inbox:
        tokens = [await issue_token(context(inbox), name=f"t{number}") for number in range(3)]
        files = all_bytes(path.parent)
    files += all_bytes(path.parent)
    assert b"t2" in files
    for token in tokens:
        chance = token.removeprefix("thk_sandbox_")
        assert chance.encode() not in files
        assert chance[:12].encode() not in files
