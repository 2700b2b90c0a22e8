"""The journal on SQLite: nothing is answered before it is durable, and faults are never hidden."""

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
from app.receiving.framing import items_in
from app.receiving.inbox import Inbox, open_inbox
from tests.contexts import settings_of
from tests.database.builders import (
    arrival,
    checked,
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
    return tmp_path / "t.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


def on_disk(path: Path) -> set[str]:
    """Return the deliveries that another connection sees now."""
    with closing(sqlite3.connect(path)) as other:
        kept = {row[0] for row in other.execute("SELECT id FROM deliveries")}
    with closing(sqlite3.connect(f"{path}.inbox")) as other:
        rows = [row[0] for row in other.execute("SELECT records FROM inbox")]
    return kept | {item.delivery_id for row in rows for item in items_in(row)}


async def answered_but_not_there(inbox: Inbox, path: Path) -> list[str]:
    """Return deliveries that were acknowledged before another connection saw them."""
    missing = []

    async def send(number: int) -> None:
        item = arrival(said(f"e{number}", order="A"))
        await submit(inbox, item)
        if item.delivery_id not in on_disk(path):
            missing.append(item.delivery_id)

    await asyncio.gather(*(send(number) for number in range(40)))
    return missing


async def test_acknowledges_only_after_the_commit(inbox: Inbox, path: Path) -> None:
    assert await answered_but_not_there(inbox, path) == []


async def test_control_an_answer_before_the_commit_is_caught(inbox: Inbox, path: Path) -> None:
    slow, running = inbox.queue.submit, []

    async def hasty(item: Any) -> Any:
        running.append(asyncio.create_task(slow(item)))

    inbox.queue.submit = hasty  # type: ignore[method-assign]
    assert len(await answered_but_not_there(inbox, path)) == 40
    await asyncio.gather(*running)


async def test_one_arrival_that_cannot_be_written_fails_its_batch(inbox: Inbox, path: Path) -> None:
    """Later ones are kept."""
    good: list[Any] = [arrival(said(f"e{n}", order="A")) for n in range(5)]
    bad = arrival(said("bad", order="A"), received_at="never")
    answers = await asyncio.gather(
        *(submit(inbox, each) for each in [*good, bad, rejection()]), return_exceptions=True
    )
    assert all(isinstance(answer, Exception) for answer in answers)
    assert on_disk(path) == set()
    assert await keep(inbox, *good) == ["stored"] * 5
    assert on_disk(path) == {each.delivery_id for each in good}


async def test_a_full_queue_refuses_at_once_and_keeps_what_it_has(url: str) -> None:
    async with opened(url, inbox_queue=3) as inbox:
        items = [arrival(said(f"e{n}", order="A")) for n in range(5)]
        answers = await asyncio.gather(
            *[submit(inbox, each) for each in items], return_exceptions=True
        )
        assert answers[:3] == ["accepted"] * 3
        assert [type(answer) for answer in answers[3:]] == [StoreUnavailable] * 2
        assert await keep(inbox, items[3]) == ["stored"]


async def test_rejections_may_fill_half_of_the_queue(url: str) -> None:
    """Rounded up."""
    async with opened(url, inbox_queue=3) as inbox:
        items: list[Any] = [rejection(), rejection(), rejection(), arrival(said("e1", order="A"))]
        answers = await asyncio.gather(
            *[submit(inbox, each) for each in items], return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [str, str, StoreUnavailable, str]


async def test_committed_deliveries_are_counted_and_rejections_not(inbox: Inbox) -> None:
    known = said("e1", order="A")
    for item in (arrival(known), arrival(known), rejection()):
        await submit(inbox, item)
    assert inbox.queue.committed == 2
    await submit(inbox, rejection())
    assert inbox.queue.committed == 2


async def test_closing_the_queue_writes_what_waits_and_refuses_more(url: str, path: Path) -> None:
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
    """Fail every write beyond `size` bytes of a file in the kernel, as a broken disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def refuses_for_good(inbox: Inbox, known: Any) -> None:
    """Check that nothing is acknowledged any more."""
    for item in (arrival(said("new", order="A")), arrival(known), rejection()):
        with pytest.raises(StorePoisoned):
            await submit(inbox, item)
    with pytest.raises(StorePoisoned):
        async with inbox.database.writing():
            pass
    assert inbox.database.writer.poison is not None


@asynccontextmanager
async def a_failing_disk(writer: Writer, file: Path) -> AsyncIterator[None]:
    """Fail writes that make the log longer."""
    with files_cannot_grow(file.with_name(f"{file.name}-wal").stat().st_size):
        yield


@asynccontextmanager
async def a_read_only_file(writer: Writer, file: Path) -> AsyncIterator[None]:
    """Have SQLite refuse to write, as to a read-only file."""
    async with writer.transaction() as connection:
        await connection.exec_driver_sql("PRAGMA query_only=ON")
    yield


@pytest.mark.parametrize("fault", [a_failing_disk, a_read_only_file])
@pytest.mark.parametrize("where", ["inbox", "database"])
async def test_a_disk_fault_poisons_both_files(
    inbox: Inbox, path: Path, fault: Any, where: str
) -> None:
    """Even where the disk works again."""
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
    """Overwrite a page, in another process: closing the file here would drop its locks."""
    subprocess.run([sys.executable, "-c", CORRUPT, str(path)], check=True, timeout=PATIENCE_S)


async def test_a_damaged_database_is_not_served(url: str, path: Path) -> None:
    async with opened(url) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
    damage(path)
    with pytest.raises(
        StorePoisoned, match=r"^the database file: Page \d+.*`tallyhook restore"
    ) as raised:
        async with opened(url):
            pass
    assert "\n" not in str(raised.value)


async def test_damage_found_later_poisons(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = said("e1", order="A")
    async with opened(url) as inbox:
        await keep(inbox, arrival(known))
    damage(path)

    async def unseen(connection: object, **words: object) -> list[str]:
        return []

    monkeypatch.setattr("app.database.database.damage", unseen)
    async with opened(url) as inbox:
        with pytest.raises(StorePoisoned, match=r"damaged; .*: restore a backup"):
            await keep(inbox, arrival(said("e2", order="A")))
        await refuses_for_good(inbox, known)
        report = await checked(context(inbox))
        assert report.problems


@asynccontextmanager
async def a_full_disk(inbox: Inbox) -> AsyncIterator[None]:
    async with inbox.writer.writer.transaction() as connection:
        pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
        await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    yield
    async with inbox.writer.writer.transaction() as connection:
        await connection.exec_driver_sql("PRAGMA max_page_count=1000000")


@asynccontextmanager
async def a_busy_inbox(inbox: Inbox) -> AsyncIterator[None]:
    """Write to the inbox as a program that does not know our lock."""
    async with inbox.writer.writer.transaction() as connection:
        await connection.exec_driver_sql("PRAGMA busy_timeout=20")
    assert inbox.file is not None
    other = sqlite3.connect(inbox.file.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize("trouble", [a_full_disk, a_busy_inbox])
async def test_a_full_disk_or_busy_inbox_is_passing(inbox: Inbox, trouble: Any, path: Path) -> None:
    big = arrival(said("e1", order="A"), body=b"x" * 500_000)
    async with trouble(inbox):
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await submit(inbox, big)
    assert inbox.database.poison is None
    assert await submit(inbox, big) == "accepted"
    assert on_disk(path) == {big.delivery_id}


async def test_readiness_tries_a_commit_after_one_failed(
    inbox: Inbox,
) -> None:
    """Before, it writes nothing."""
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
    """Others may read and write beside it."""
    settings = settings_of(url)
    with pytest.raises(ConfigurationError, match=r"another process already serves \S+t\.db;"):
        async with open_inbox(settings, purpose="serving"):
            pass
    for purpose in ("writing", "reading"):
        async with open_inbox(settings, purpose=purpose):
            pass
    assert await keep(inbox, arrival(said("e1", order="A"))) == ["stored"]


async def test_a_database_can_be_served_again_after_its_process_ended(url: str) -> None:
    for _ in range(2):
        async with opened(url) as inbox:
            await keep(inbox, arrival(said("e1", order="A")))
    async with opened(url) as inbox:
        assert len(await rows(inbox, "SELECT id FROM deliveries")) == 2


async def test_nothing_is_written_while_another_process_holds_the_lock(
    inbox: Inbox, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_two_writing_processes_keep_all(inbox: Inbox, url: str, tmp_path: Path) -> None:
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
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


async def test_no_byte_of_a_token_but_its_kind_is_in_any_file(url: str, path: Path) -> None:
    async with opened(url) as inbox:
        tokens = [await issue_token(context(inbox), name=f"t{number}") for number in range(3)]
        files = all_bytes(path.parent)
    files += all_bytes(path.parent)
    assert b"t2" in files
    for token in tokens:
        chance = token.removeprefix("thk_sandbox_")
        assert chance.encode() not in files
        assert chance[:12].encode() not in files
