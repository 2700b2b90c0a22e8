"""Opening a database on SQLite while others look at it, and where it cannot be opened at all."""

import errno
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.core.errors import ConfigurationError, StoreUnavailable
from app.core.logs import configure_logging
from app.database import database as opening
from app.database import engine
from app.database.faults import why_not_opened
from app.database.postgresql import Purpose
from app.database.statements import statement
from app.database.writer import Writer
from app.receiving import inbox as inbox_module
from app.receiving.inbox import open_inbox
from tests.contexts import settings_of
from tests.database.builders import arrival, keep, opened, rows, said

READER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN")
database.execute("SELECT count(*) FROM deliveries").fetchone()
print("looking", flush=True)
sys.stdin.readline()
database.execute("ROLLBACK")
print("done", flush=True)
sys.stdin.readline()
"""


class Reader:
    """Another process that holds a snapshot until asked to release it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def heard(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def release(self) -> None:
        """End the snapshot. The process stays connected, so that it does not checkpoint the log."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.heard("done")


@contextmanager
def a_reader(path: Path) -> Iterator[Reader]:
    words = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            reader = Reader(process)
            reader.heard("looking")
            yield reader
        finally:
            process.kill()


def warnings(log: io.StringIO) -> list[str]:
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line["event"] for line in lines if line["level"] == "warning"]


async def test_a_reader_of_another_process_keeps_no_service_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later start empties the log."""
    monkeypatch.setattr(engine, "SET_BUSY_TIMEOUT", statement("PRAGMA busy_timeout={ms}", ms="50"))
    path = tmp_path / "t.db"
    url, written = f"sqlite+aiosqlite:///{path}", path.with_name("t.db-wal")
    log = io.StringIO()
    configure_logging(format="json", level="info", stream=log)
    async with opened(url) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
    with a_reader(path) as reader:
        async with opened(url) as inbox:
            assert warnings(log) == []
            await keep(inbox, arrival(said("e2", order="A")))
        async with opened(url) as inbox:
            assert warnings(log) == [
                "another process is reading the database; the write-ahead log stays until that "
                "process has finished"
            ]
            assert not await inbox.database.writer.checkpoint()
            assert await keep(inbox, arrival(said("e3", order="A"))) == ["stored"]
        assert written.stat().st_size > 0
        reader.release()
        async with opened(url) as inbox:
            assert written.stat().st_size < 5_000  # one page, which says that the inbox is open
            assert len(warnings(log)) == 1
            assert await inbox.database.writer.checkpoint()
            assert await rows(inbox, "SELECT count(*) FROM deliveries") == [(3,)]


async def test_a_file_that_cannot_be_inspected_is_unavailable(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/{'x' * 300}.db"
    with pytest.raises(StoreUnavailable, match="cannot be opened: File name too long"):
        async with open_inbox(settings_of(url), purpose="reading"):
            pass


def test_a_file_of_another_user_is_named_with_what_to_do() -> None:
    said = why_not_opened(PermissionError(errno.EACCES, "Permission denied", "var/t.db"))
    assert said.startswith("Permission denied: var/t.db; run this as the service's user, or")


async def test_an_unreadable_database_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite does not name the file."""
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    async with opened(url):
        pass
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)  # root may read all
    with pytest.raises(
        StoreUnavailable, match=r"Permission denied: .*/t\.db; run this as the service's user"
    ):
        async with open_inbox(settings_of(url), purpose="reading"):
            pass


@pytest.mark.parametrize("purpose", ["serving", "writing"])
async def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, purpose: Purpose) -> None:
    (tmp_path / "file").write_text("in the way")
    url = f"sqlite+aiosqlite:///{tmp_path}/file/t.db"
    with pytest.raises(StoreUnavailable, match="cannot be opened: "):
        async with open_inbox(settings_of(url), purpose=purpose):
            pass


PAGE = 4_096


def share_cached(path: Path) -> float:
    """Return the share of a file that is in the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    pages, found, room = range(0, path.stat().st_size, PAGE), 0, bytearray(PAGE)
    try:
        for place in pages:
            try:
                found += os.preadv(descriptor, [room], place, os.RWF_NOWAIT) > 0
            except BlockingIOError:
                continue
            except OSError:
                pytest.skip("this file system does not say what is in the page cache")
    finally:
        os.close(descriptor)
    return found / len(pages)


async def large(path: Path) -> Settings:
    """Make a database of four MB, and close it."""
    url = f"sqlite+aiosqlite:///{path}"
    async with opened(url) as inbox:
        for number in range(16):
            await keep(inbox, arrival(said(f"e{number}"), body=bytes(250_000)))
    return settings_of(url)


@pytest.mark.disk
@pytest.mark.parametrize(("purpose", "whole"), [("alone", True), ("serving", False)])
async def test_a_command_alone_reads_the_file_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purpose: Purpose, whole: bool
) -> None:
    monkeypatch.setattr(opening, "CHECKED_BEFORE_SERVING", 0)
    path = tmp_path / "t.db"
    settings = await large(path)
    found = []
    for _ in range(3):  # the kernel may keep pages that it is asked to drop, when it is busy
        async with open_inbox(settings, purpose=purpose):
            pass
        found.append(share_cached(path))
    assert (min(found) > 0.99) is whole  # a machine short of memory takes single pages back


@pytest.mark.disk
async def test_a_file_larger_than_memory_is_not_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CHECKED_BEFORE_SERVING", 0)
    path = tmp_path / "t.db"
    settings = await large(path)
    monkeypatch.setattr(engine, "_room_for_pages", lambda: path.stat().st_size - 1)
    found = []
    for _ in range(3):  # as above
        async with open_inbox(settings, purpose="alone"):
            pass
        found.append(share_cached(path))
    assert min(found) < 1


@pytest.mark.parametrize(
    ("said", "room"),
    [
        ("MemTotal: 100 kB\nMemAvailable:  40 kB\n", 36 * 1024),
        ("MemTotal: 100 kB\n", 50 * 1024),  # an old kernel
        (None, 50 * 1024),  # another system
    ],
)
def test_room_for_a_file_is_most_of_the_available_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, room: int
) -> None:
    """Or half of all memory, where that is unknown."""
    pages = {"SC_PHYS_PAGES": 100, "SC_PAGE_SIZE": 1024}
    if said is not None:
        (tmp_path / "meminfo").write_text(said)
    monkeypatch.setattr(engine, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert engine._room_for_pages() == room


def test_reading_ahead_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, shown = tmp_path / "t.db", list[tuple[int, int]]()
    path.write_bytes(bytes(250))
    monkeypatch.setattr(engine, "READ_BYTES", 100)
    engine.read_ahead(path, progress=lambda done, whole: shown.append((done, whole)))
    assert shown == [(100, 250), (200, 250), (250, 250)]


class Unreadable(io.RawIOBase):
    """A file on a disk that has failed."""

    def read(self, _size: int = -1) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_a_disk_that_cannot_be_read_ahead_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing stays locked."""
    path = tmp_path / "t.db"
    settings = await large(path)
    real = Path.open
    with monkeypatch.context() as broken:
        broken.setattr(
            Path,
            "open",
            lambda self, *a, **k: Unreadable() if self == path else real(self, *a, **k),
        )
        with pytest.raises(StoreUnavailable, match="cannot be opened: Input/output error"):
            async with open_inbox(settings, purpose="alone"):
                pass
    async with open_inbox(settings, purpose="alone"):
        pass


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TABLE users (a)", "another program's"),
        ("CREATE TABLE alembic_version AS SELECT '9f3a' AS version_num", "another program's"),
        ("CREATE TABLE alembic_version AS SELECT '9.0.0' AS version_num", "the newer program"),
        ("CREATE TABLE alembic_version AS SELECT '0031' AS version_num", "older than 0.1.0"),
    ],
)
async def test_a_database_that_is_not_ours_is_refused_and_left_alone(
    tmp_path: Path, statement: str, words: str
) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    path.chmod(0o600)
    settings = settings_of(path)
    purposes: tuple[Purpose, ...] = ("serving", "writing", "reading")
    for purpose in purposes:
        with pytest.raises(ConfigurationError, match=words):
            async with open_inbox(settings, purpose=purpose):
                pass
    whole = opening.Database(settings)
    with pytest.raises(ConfigurationError, match=words):
        await whole.upgrade()
    await whole.close()
    with closing(sqlite3.connect(path)) as database:
        assert len(database.execute("SELECT name FROM sqlite_master").fetchall()) == 1


async def test_only_one_reader_opens_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second waits for a time, and is let in once the first has ended."""
    settings = Settings(database_url=f"sqlite+aiosqlite:///{tmp_path}/t.db", environment="sandbox")
    monkeypatch.setattr(inbox_module, "SERVER_S", 0.0)
    async with open_inbox(settings, purpose="serving"):
        for _ in range(2):
            async with open_inbox(settings, purpose="working"):
                with pytest.raises(StoreUnavailable, match="another process reads this inbox"):
                    async with open_inbox(settings, purpose="working"):
                        pass


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sqlite+aiosqlite:////srv/t.db", "/srv/t.db"),
        ("sqlite+aiosqlite:///t.db", str(Path("t.db").resolve())),
        ("postgresql+asyncpg://user:word@host/shop?password=word", "host/shop"),
        ("postgresql+asyncpg://user:word@/shop?host=one,two&port=5432,5432", "one,two/shop"),
        ("postgresql+asyncpg://user:word@/shop?host=one&host=two", "one,two/shop"),
        ("postgresql+asyncpg:///shop", "localhost/shop"),
    ],
)
def test_where_a_database_is_is_said_without_user_and_password(url: str, place: str) -> None:
    assert engine.database_place(url) == place


async def test_a_worker_drops_cached_pages_and_folds_the_log_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on the receiver deletes what it has read."""
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    async with opened(url):
        pass
    done: list[str] = []
    for module in (opening, inbox_module):
        monkeypatch.setattr(module, "drop_cached_pages", lambda path: done.append(path.name))
    checkpoint, connect = Writer.checkpoint, Writer.connect

    async def connected(writer: Writer) -> None:
        done.append("connected")
        await connect(writer)

    async def folded(writer: Writer) -> bool:
        done.append("folded")
        return await checkpoint(writer)

    monkeypatch.setattr(Writer, "connect", connected)
    monkeypatch.setattr(Writer, "checkpoint", folded)
    settings = settings_of(url)
    async with open_inbox(settings, purpose="working"):
        assert done == ["t.db.inbox", "t.db", "connected", "folded"]
