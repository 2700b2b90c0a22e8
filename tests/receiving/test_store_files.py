"""The files of a store: how they are made, looked at and given back, and what poisons them."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.core.errors import ConfigurationError, StoreUnavailable, UsageError
from app.database import database as opening
from app.database.database import Database
from app.receiving.inbox import Inbox, open_inbox
from app.receiving.inbox_file_store import InboxFile, facts_at, path_of
from app.receiving.inbox_store import FileFacts
from tests.contexts import settings_of
from tests.database.builders import arrival, keep, opened, said
from tests.database.made import put_new


def identity_at(database: Path) -> str | None:
    """Return the id of the inbox beside a database."""
    facts = facts_at(database)
    return None if facts is None else facts.identity


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path without a database."""
    return tmp_path / "made" / "here" / "t.db"


def settings(path: Path, **more: Any) -> Settings:
    """Return the settings of a store there."""
    return settings_of(path, **more)


async def created(path: Path, *, anew: bool = False) -> Path:
    """Make one."""
    database = Database(settings(path))
    try:
        return await database.create(anew=anew)
    finally:
        await database.close()


def mode(path: Path) -> int:
    """Return the permission bits of a file."""
    return path.stat().st_mode & 0o777


async def test_a_database_that_is_made_is_its_owners_alone(path: Path) -> None:
    """With its folders; and a folder that is there stays as it is."""
    before = os.umask(0)
    try:
        assert await created(path) == path
        assert (mode(path), mode(path.parent)) == (0o600, 0o700)
        with pytest.raises(UsageError, match="there is a database at"):
            await created(path)
        os.unlink(path)
        with pytest.raises(ConfigurationError, match="is missing"):
            await created(path)
        os.close(os.open(path, os.O_CREAT, 0o600))
        assert await created(path, anew=True) == path
    finally:
        os.umask(before)


async def test_only_a_file_is_made_by_us() -> None:
    """PostgreSQL's databases are not."""
    database = Database(Settings(database_url="postgresql+asyncpg://nobody@127.0.0.1:1/none"))
    try:
        with pytest.raises(UsageError, match="createdb"):
            await database.create(anew=False)
    finally:
        await database.close()


async def test_a_database_that_is_not_there_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the setting's is relative, the command may run in another folder than the service."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable, match=f"no database at {tmp_path}/var/t.db yet"):
        async with open_inbox(settings(Path("var/t.db")), purpose="reading"):
            pass


async def test_what_a_service_makes_is_its_owners_alone(path: Path) -> None:
    """Folders, database and inbox; whoever only reads makes nothing."""
    with pytest.raises(StoreUnavailable, match="there is no database at"):
        async with open_inbox(settings(path), purpose="reading"):
            pass
    assert not path.parent.exists()
    before = os.umask(0)
    try:
        async with open_inbox(settings(path)) as inbox:
            assert inbox.database.path == path
            assert [mode(each) for each in (path.parent, path, path_of(path))] == [
                0o700, 0o600, 0o600,
            ]  # fmt: skip
            assert facts_at(path) is not None
    finally:
        os.umask(before)


NO_FACTS = "CREATE TABLE meta (name, value); CREATE TABLE counters (name, value)"


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        (None, None),
        ("", None),
        ("CREATE TABLE meta (name, value)", None),
        (NO_FACTS, None),
        (f"{NO_FACTS}; INSERT INTO meta VALUES ('inbox', 'i')", FileFacts("i", 0, 0, 0)),
        (
            f"{NO_FACTS}; INSERT INTO meta VALUES ('environment', 'live'), ('inbox', 'i'); "
            "INSERT INTO counters VALUES ('records deleted', 3), ('more', 4), ('deleted', 2), "
            "('last commit', 1)",
            FileFacts("i", 1, 2, 3),
        ),
    ],
)
def test_what_an_inbox_file_says_of_itself_is_read(
    tmp_path: Path, content: str | None, facts: FileFacts | None
) -> None:
    """None where it cannot be known. A counter that is missing is zero."""
    path = tmp_path / "t.db"
    if content is not None:
        with closing(sqlite3.connect(path_of(path))) as inbox:
            inbox.executescript(content)
    assert facts_at(path) == facts


@pytest.mark.parametrize(
    ("size", "small"),
    [(64 << 20, True), ((64 << 20) + 1, False)],
)
def test_how_large_a_file_is_looked_at_first(tmp_path: Path, size: int, small: bool) -> None:
    file = InboxFile(tmp_path / "t.db", low_water_mib=0)
    with file.path.open("wb") as made:
        made.truncate(size)
    assert file.is_small() is small


class Calls:
    """System calls that a start makes on files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dropped: list[str] = []
        self.synced: list[str] = []
        self.open: set[int] = set()
        names: dict[int, str] = {}
        opening, closing_ = os.open, os.close

        def open_(name: Any, *words: Any, **more: Any) -> int:
            descriptor = opening(name, *words, **more)
            names[descriptor] = Path(name).name
            self.open.add(descriptor)
            return descriptor

        def close(descriptor: int) -> None:
            self.open.discard(descriptor)
            closing_(descriptor)

        def advise(descriptor: int, start: int, length: int, advice: int) -> None:
            assert (start, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
            self.dropped.append(names[descriptor])

        monkeypatch.setattr(os, "open", open_)
        monkeypatch.setattr(os, "close", close)
        monkeypatch.setattr(os, "posix_fadvise", advise)
        monkeypatch.setattr(os, "fsync", lambda each: self.synced.append(names[each]))


def test_all_of_a_file_is_read_from_the_disk_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its log, as far as that is there; none stays open."""
    calls = Calls(monkeypatch)
    for name in ("t.db", "t.db-wal"):
        (tmp_path / name).touch()
    opening.drop_cached_pages(tmp_path / "t.db")
    assert calls.dropped == ["t.db", "t.db-wal"]
    assert calls.open == set()


@pytest.mark.parametrize("folded", [True, False])
async def test_a_folder_is_synced_after_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: StringIO, folded: bool
) -> None:
    """Whether its log was folded or not; where another process reads it, that is logged."""
    calls = Calls(monkeypatch)

    class Folding:
        async def checkpoint(self) -> bool:
            assert calls.synced == []
            return folded

    writer: Any = Folding()
    await opening.sync_file(writer, tmp_path / "t.db")
    assert (calls.synced, calls.open) == ([tmp_path.name], set())
    lines = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    line = (
        "another process is reading the database; the write-ahead log stays until that process "
        "has finished"
    )
    assert lines == ([] if folded else [line])


async def test_a_store_is_given_back_whole(tmp_path: Path) -> None:
    """It can be opened at once again, and nothing of it stays locked; one that was never opened is
    given back, too."""
    await Inbox(settings(tmp_path / "t.db"), purpose="serving").close()
    put_new(tmp_path / "t.db")
    for _ in range(2):
        async with open_inbox(settings(tmp_path / "t.db")) as inbox:
            database = inbox.database
            assert (database.poison, database.looked, database.shared) == (None, True, False)
            assert (database.environment, inbox.append_faults) == ("sandbox", 0)
        assert "t.db-wal" not in os.listdir(tmp_path)


@pytest.mark.parametrize("which", ["database", "inbox"])
async def test_a_fault_of_one_file_ends_what_is_written_to_both(tmp_path: Path, which: str) -> None:
    """Whoever is to be notified is notified once."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        reported: list[str] = []
        inbox.database.on_poison = reported.append
        assert inbox.file is not None
        writers = {"database": inbox.database.writer, "inbox": inbox.file.writer}
        for reason in ("planted", "again"):
            writers[which].on_poison(reason)
        assert reported == ["planted"]
        assert {each.poison for each in writers.values()} == {"planted"}
        assert inbox.database.poison == "planted"


# --- a server that is not there yet ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("fails", "shared", "not_yet", "opened_", "waits"),
    [
        (0, True, True, True, []),
        (3, True, True, True, [0.2, 0.2, 0.2]),
        (99, True, True, False, [0.2, 0.2, 0.1]),
        (1, False, True, False, []),
        (1, True, False, False, []),
    ],
)
@pytest.mark.parametrize("full", [False, True])
async def test_a_server_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    log: StringIO,
    fails: int,
    shared: bool,
    not_yet: bool,
    opened_: bool,
    waits: list[float],
    full: bool,
) -> None:
    """For so long, where it is one, and where it only does not answer yet, or has no connection
    free; the log says once which of the two it is."""
    now, waited, tries = [100.0], list[float](), [0]
    length = 60.0 if fails < 99 else 0.5
    monkeypatch.setattr(opening, "SERVER_S", length)
    monkeypatch.setattr(opening, "monotonic", lambda: now[0])
    monkeypatch.setattr(opening, "is_not_there_yet", lambda error: not_yet)
    cause = Exception()
    if full:
        cause.sqlstate = "53300"  # type: ignore[attr-defined]

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 9))
        now[0] = round(now[0] + seconds, 9)

    async def tried() -> None:
        tries[0] += 1
        if tries[0] <= fails:
            raise StoreUnavailable("planted", reason="database") from cause

    monkeypatch.setattr("asyncio.sleep", sleep)
    inbox: Any = type("Shared", (), {"shared": shared})()
    if opened_:
        await opening.once_there(inbox, tried)
    else:
        with pytest.raises(StoreUnavailable, match="planted"):
            await opening.once_there(inbox, tried)
    assert waited == waits
    lines = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    which = "has no free connection" if full else "does not answer yet"
    assert lines == [f"waiting for the database server, which {which}"] * bool(waits)


@pytest.mark.parametrize(
    ("version", "said"),
    [(None, "is empty and has no table of Tallyhook's"), ("0.0.9", "is at version 0.0.9")],
)
def test_an_upgrade_that_is_due_is_reported(version: str | None, said: str) -> None:
    assert said in str(opening._upgrade_is_due(version))


async def test_the_inbox_is_left_as_it_was_where_it_is_not_ours(tmp_path: Path) -> None:
    """A file of another environment, of another form, or of another database is not written to."""
    put_new(tmp_path / "t.db")
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    async with opened(url):
        pass
    inbox = path_of(tmp_path / "t.db")
    for sql, why in (
        ("UPDATE meta SET value='live' WHERE name='environment'", "belongs to live"),
        ("CREATE TABLE more (a)", "is not a Tallyhook inbox"),
    ):
        kept = inbox.read_bytes()
        with closing(sqlite3.connect(inbox)) as other, other:
            other.execute(sql)
        with pytest.raises(ConfigurationError, match=why):
            async with opened(url):
                pass
        inbox.write_bytes(kept)
    file = InboxFile(tmp_path / "t.db", low_water_mib=0)
    try:
        for known in (None, identity_at(tmp_path / "t.db")):
            assert await file.open("sandbox", known=known) == identity_at(tmp_path / "t.db")
        with pytest.raises(
            ConfigurationError, match="is not the one that this database was reading"
        ):
            await file.open("sandbox", known="inbox_other")
    finally:
        await file.close()
    inbox.unlink()
    gone = InboxFile(tmp_path / "t.db", low_water_mib=0)
    assert not gone.is_there()


@pytest.mark.parametrize(("poison", "order"), [(None, ["reader", "writer"]),
                                               ("planted", ["writer", "reader"])])  # fmt: skip
async def test_who_is_closed_last(tmp_path: Path, poison: str | None, order: list[str]) -> None:
    """The last one checkpoints the log: after an error nobody may, and readers cannot."""
    closed: list[str] = []

    def closes(name: str) -> Callable[[], Any]:
        async def close() -> None:
            closed.append(name)

        return close

    class Given:
        def __init__(self, name: str) -> None:
            self.poison = poison
            self.close = self.dispose = closes(name)

    file = InboxFile(tmp_path / "t.db", low_water_mib=0)
    vars(file).update(_reader=Given("reader"), writer=Given("writer"))
    await file.close()
    assert closed == order
    closed.clear()
    database = Database(settings(tmp_path / "t.db"))
    await database.reader.dispose()
    await database.writer.close()
    whole: Any = database
    whole.reader, whole.writer = Given("reader"), Given("writer")
    await database.close()
    assert closed == order


@pytest.mark.parametrize("cause", [None, KeyError("of the driver")])
async def test_why_nothing_can_be_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception | None
) -> None:
    """By what the driver calls it, or the error itself; over as soon as one can be."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        await _cannot_append(inbox, monkeypatch, cause)


async def _cannot_append(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, cause: Exception | None
) -> None:
    error: Exception = ValueError("planted")
    error.__cause__ = cause
    appended = inbox.database.writer.commit

    async def commit(*words: Any, **more: Any) -> Any:
        raise error

    monkeypatch.setattr(inbox.database.writer, "commit", commit)
    for faults in (1, 2):
        with pytest.raises(ValueError, match="planted"):
            await keep(inbox, arrival(said("e1", order="A")))
        assert inbox.append_faults == faults
    monkeypatch.setattr(inbox.database.writer, "transaction", lambda: (_ for _ in ()).throw(error))
    name = type(cause or error).__name__
    assert f"cannot be appended ({name}), but none is lost" in str(await inbox.cannot_append())
    assert inbox.append_faults == 2
    error = StoreUnavailable("planted; free some", reason="disk")
    assert await inbox.cannot_append() == "planted; free some"
    monkeypatch.undo()
    assert await inbox.cannot_append() is None
    assert (inbox.append_faults, inbox.database.writer.commit) == (0, appended)


async def test_what_is_strange_in_a_file_is_reported_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody who writes is held up by a check."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        async with inbox.database.writing() as connection:
            await connection.exec_driver_sql("CREATE TABLE not_ours (a)")
        monkeypatch.setattr(inbox.database.writer, "transaction", None)
        (found,) = await inbox.database.strange_objects()
        monkeypatch.undo()
    assert "not_ours" in found
