"""The inbox of an SQLite database is a file: it is never taken for read when it was not, and what
has been read leaves it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, StoreUnavailable
from app.orders.set_aside import HOLDING
from app.privacy.backup import adopt_inbox, back_up, restore
from app.privacy.replay_erasures import Replayed
from app.receiving import inbox_writer_store
from app.receiving.append_store import Ready, keep_arrivals
from app.receiving.inbox_file_store import InboxFile, path_of
from app.receiving.inbox_store import IDENTITY, Backlog, adopt, fact, suspect
from app.receiving.reader import ReaderContext, read_some
from app.receiving.refusal_store import delete_rejections
from app.receiving.store import Store, StoreSettings, open_store
from tests.database.builders import (
    SOURCES,
    arrival,
    context,
    opened,
    rejection,
    rows,
    said,
    submit,
)
from tests.database.made import put_new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a new database."""
    put_new(tmp_path / "t.db")
    return tmp_path / "t.db"


@pytest.fixture
def url(path: Path) -> str:
    """Its URL."""
    return url_of(path)


def url_of(path: Path) -> str:
    """The URL of a database's file."""
    return f"sqlite+aiosqlite:///{path}"


async def read(store: Store) -> list[str]:
    """Read all that is in the inbox. The events that are stored then."""
    while await read_some(ReaderContext(context(store), SOURCES, "sandbox", HOLDING)):
        pass
    return await stored(store)


async def stored(store: Store) -> list[str]:
    """The events that are stored, one for each delivery."""
    return [row[0] for row in await rows(store, "SELECT event_id FROM deliveries ORDER BY 1")]


async def take(store: Store, *event_ids: str) -> None:
    """Take deliveries in, a row each."""
    for event_id in event_ids:
        await submit(store, arrival(said(event_id, order="A")))


def in_inbox(path: Path, sql: str) -> list[tuple[int]]:
    """What another program does to the file."""
    with closing(sqlite3.connect(path_of(path))) as inbox, inbox:
        return inbox.execute(sql).fetchall()


async def test_what_is_kept_is_read_once_and_leaves(url: str, path: Path) -> None:
    """It is deleted by the commits of what comes after it, and only once it has been read."""
    async with opened(url) as store:
        await take(store, "e1", "e2")
        await store.receiving.inbox._look()
        await take(store, "e3")
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(3,)]
        assert await read(store) == ["e1", "e2", "e3"]
        await store.receiving.inbox._look()
        await take(store, "e4")
        assert in_inbox(path, "SELECT seq FROM inbox") == [(4,)]
        assert await read(store) == ["e1", "e2", "e3", "e4"]


@pytest.mark.parametrize(("suspects", "unread"), [(True, 1), (False, 0)])
async def test_a_row_that_leaves_while_the_backlog_is_counted_is_counted_where_it_has_gone(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch, suspects: bool, unread: int
) -> None:
    """The database was asked before it had suspects, and the file after it had the row. An order
    that they speak of would be published as if nothing had come."""
    monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
    async with opened(url) as store:
        await take(store, "e1")
        assert store.inbox_file is not None
        found = await store.inbox.next_rows(limit=9, most_bytes=10**9)
        ask = store.inbox_file.on_snapshot

        async def later(function: Any, *words: Any) -> Any:
            if found:
                row = found.pop()
                if suspects:
                    await store.writer.commit(suspect, [row])
                else:
                    await store.append([Ready(row, [])])
                await store.receiving.inbox._look()
                assert in_inbox(path, "SELECT count(*) FROM inbox") == [(0,)]
            return await ask(function, *words)

        monkeypatch.setattr(store.inbox_file, "on_snapshot", later)
        assert (await store.inbox.backlog()).records == unread
        assert not found


async def test_a_gap_that_nobody_makes_meanwhile_is_no_reason_to_ask_for_ever(
    url: str, path: Path
) -> None:
    """A database that takes over a file begins before all that was read of it and has left."""
    async with opened(url) as store:
        await take(store, "e1", "e2", "e3")
        in_inbox(path, "DELETE FROM inbox WHERE seq = 1")
        assert (await store.inbox.backlog()).records == 2


async def test_where_nothing_comes_it_is_deleted_all_the_same(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
    async with opened(url) as store:
        await take(store, "e1", "e2")
        await read(store)
        await store.receiving.inbox._look()
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(0,)]


async def test_no_delivery_is_held_up_by_what_cannot_be_deleted(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To delete takes room in the log: where there is just none, the next commit keeps only."""

    def full(*given: object) -> None:
        raise StoreUnavailable("planted", reason="disk")

    async with opened(url) as store:
        await take(store, "e1", "e2")
        await read(store)
        await store.receiving.inbox._look()
        with monkeypatch.context() as planted:
            planted.setattr(inbox_writer_store, "delete_up_to", full)
            with pytest.raises(StoreUnavailable):
                await take(store, "e3")
            await take(store, "e3")
        await take(store, "e4")
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(2,)]
        assert await read(store) == ["e1", "e2", "e3", "e4"]


async def test_nothing_is_deleted_while_no_reader_has_made_sure_of_the_disk(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a reader wrote that ended may be seen, and not be on the disk."""
    monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
    async with opened(url) as store:
        store.receiving.inbox.may_delete = lambda: False
        await take(store, "e1")
        await read(store)
        await store.receiving.inbox._look()
        await take(store, "e2")
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(2,)]


async def test_the_room_that_unread_deliveries_need_is_kept_free(url: str) -> None:
    """Beside the low water: three times their bytes, or 4 KiB for each, whichever is more."""
    async with opened(url) as store:
        inbox = store.receiving.inbox
        assert inbox.writer.space.reserved() == 0
        await take(store, "e1", "e2", "e3")
        assert inbox.writer.space.reserved() == 3 * 4_096
        await submit(store, arrival(said("large", order="A"), body=b"x" * 100_000))
        assert 300_000 < inbox.writer.space.reserved() < 310_000
        await read(store)
        await inbox._look()
        assert inbox.writer.space.reserved() == 0


async def test_too_much_unread_is_refused(url: str) -> None:
    async with opened(url, inbox_max_bytes=2_000) as store:
        await submit(store, arrival(said("large", order="A"), body=b"x" * 2_000))
        with pytest.raises(StoreUnavailable, match="TALLYHOOK_INBOX_MAX_BYTES"):
            await take(store, "e1")
        await read(store)
        await store.receiving.inbox._look()
        await take(store, "e1")


# --- a file that is not what it was --------------------------------------------------------------


def emptied(path: Path) -> None:
    """Somebody has deleted all rows, and the memory of their numbers."""
    in_inbox(path, "DELETE FROM inbox")
    in_inbox(path, "DELETE FROM sqlite_sequence")


@pytest.mark.parametrize("given_after", [True, False], ids=["numbers go on", "control"])
async def test_a_file_that_was_emptied_is_not_taken_for_read(
    url: str, path: Path, given_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes next has a number that was never read under. Where it had not, it would be
    lost."""
    async with opened(url) as store:
        await take(store, "e1", "e2", "e3")
        await read(store)
    emptied(path)

    async def nothing(file: InboxFile, position: int) -> None:
        pass

    if not given_after:
        monkeypatch.setattr(InboxFile, "begin_after", nothing)
    async with opened(url) as store:
        await take(store, "e4")
        assert await read(store) == ["e1", "e2", "e3", *(["e4"] if given_after else [])]


async def test_an_older_copy_that_is_put_back_is_read_from_where_it_was(
    url: str, path: Path, tmp_path: Path
) -> None:
    async with opened(url) as store:
        await take(store, "e1", "e2")
    shutil.copy(path_of(path), tmp_path / "copy")
    async with opened(url) as store:
        await take(store, "e3")
        await read(store)
    shutil.copy(tmp_path / "copy", path_of(path))
    async with opened(url) as store:
        await take(store, "e4")
        assert await read(store) == ["e1", "e2", "e3", "e4"]


async def test_a_file_that_is_just_being_made_has_no_rows(url: str, path: Path) -> None:
    """Whoever asks while the first start makes it finds nothing unread, and no fault."""
    path_of(path).touch()
    settings = StoreSettings(url=url, environment="sandbox")
    async with open_store(settings, purpose="writing") as store:
        assert await store.inbox.backlog() == Backlog()
        async with opened(url) as receiving:
            await take(receiving, "e1")
            assert (await store.inbox.backlog()).records == 1


def gone(path: Path) -> None:
    """Somebody has deleted the file."""
    path_of(path).unlink()


def another(path: Path) -> None:
    """It is another database's."""
    in_inbox(path, "UPDATE meta SET value='inbox_other' WHERE name='inbox'")


@pytest.mark.parametrize("what", [gone, another])
async def test_a_file_that_this_database_has_not_read_stops_the_start(
    url: str, path: Path, what: Callable[[Path], None]
) -> None:
    """Until somebody says that it is meant; then all that is in it is read."""
    async with opened(url) as store:
        await take(store, "e1", "e2")
        await read(store)
        await take(store, "e3")
    what(path)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"t\.db\.inbox.*`tallyhook db adopt-inbox`"):
            async with opened(url):
                pass
    async with open_store(StoreSettings(url=url), purpose="alone") as store:
        records = await adopt_inbox(context(store))
    assert records == (0 if what is gone else in_inbox(path, "SELECT count(*) FROM inbox")[0][0])
    async with opened(url) as store:
        await take(store, "e4")
        assert await read(store) == ["e1", "e2", *([] if what is gone else ["e3"]), "e4"]


async def test_a_file_of_the_other_environment_stops_the_start(url: str, path: Path) -> None:
    async with opened(url):
        pass
    in_inbox(path, "UPDATE meta SET value='live' WHERE name='environment'")
    with pytest.raises(ConfigurationError, match="belongs to live"):
        async with opened(url):
            pass


async def test_a_file_with_a_trigger_of_anybodys_stops_the_start(url: str, path: Path) -> None:
    async with opened(url):
        pass
    in_inbox(path, "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN DELETE FROM inbox; END")
    with pytest.raises(ConfigurationError, match="no inbox of ours"):
        async with opened(url):
            pass


@pytest.mark.parametrize("judged_again", [False, True])
async def test_a_refused_request_that_is_read_again_is_neither_kept_nor_counted_again(
    url: str, judged_again: bool
) -> None:
    """Also where it was judged again meanwhile, and is a delivery now: it would be judged for ever,
    and could not be stored."""
    refused = rejection()
    async with opened(url) as store:
        await store.queue.submit(refused)
        await read(store)
        if judged_again:
            arrived = replace(arrival(said("e1", order="A")), delivery_id=refused.delivery_id)
            async with store.writing() as connection:
                await delete_rejections(connection, [refused.delivery_id])
                await keep_arrivals(connection, [arrived])
        identity = await store.on_snapshot(fact, IDENTITY)
        await store.writer.commit(adopt, identity)
        await read(store)
        kept = await rows(store, "SELECT id FROM rejections")
        assert kept == ([] if judged_again else [(refused.delivery_id,)])
        assert await rows(store, "SELECT sum(refused) FROM arrivals") == [(1,)]


# --- backups and erasures ------------------------------------------------------------------------


async def test_a_backup_has_what_was_accepted_and_not_read(
    url: str, path: Path, tmp_path: Path
) -> None:
    """It is one file. Put in another's place it is read from there; in its own place, where the
    inbox has the same, it is read once."""
    async with opened(url) as store:
        await take(store, "e1")
        await read(store)
        await take(store, "e2", "e3")
        copy = tmp_path / "copy.db"
        await back_up(
            url, copy, environment="sandbox", replace=False, progress=lambda done, total: None
        )
        await read(store)
    with closing(sqlite3.connect(copy)) as database:
        database.execute("DELETE FROM meta WHERE name='inbox'")  # as `restore` does where none is
        database.commit()
    async with opened(url_of(copy)) as store:
        assert await stored(store) == ["e1"]
        assert await read(store) == ["e1", "e2", "e3"]
        assert await rows(store, "SELECT count(*) FROM inbox") == [(0,)]
    shutil.copy(copy, tmp_path / "again.db")


async def test_a_restore_reads_all_of_the_inbox_that_is_there(
    url: str, path: Path, tmp_path: Path
) -> None:
    """By another history of the same file the backup had read beyond its numbers: the machine was
    put back to what it was before the backup, and served from there."""
    async with opened(url):
        pass
    for each in (path, path_of(path)):
        shutil.copy(each, tmp_path / f"before-{each.name}")
    backup = tmp_path / "copy.db"
    async with opened(url) as store:
        await take(store, "e1", "e2", "e3")
        await read(store)
        await back_up(
            url, backup, environment="sandbox", replace=False, progress=lambda done, total: None
        )
    for each in (path, path_of(path)):
        shutil.copy(tmp_path / f"before-{each.name}", each)
    async with opened(url) as store:
        await take(store, "e4", "e5")
    await put_back(url, backup)
    async with opened(url) as store:
        await take(store, "e6")
        assert await read(store) == ["e1", "e2", "e3", "e4", "e5", "e6"]
        assert await read(store) == ["e1", "e2", "e3", "e4", "e5", "e6"]


async def put_back(url: str, backup: Path) -> None:
    """Restore a backup in the database's place, of which nobody was erased."""

    async def nobody(store: Store) -> Replayed:
        return Replayed()

    await restore(
        url,
        backup,
        environment="sandbox",
        replace=True,
        clock=SystemClock(),
        erase_again=nobody,
        progress=lambda done, total: None,
    )


def holding(path: Path, text: str) -> list[str]:
    """Files of the inbox that hold this. Looked at by another process: to close a file in ours
    would drop the locks that SQLite holds on it."""
    files = sorted(path.parent.glob("t.db.inbox*"))
    found = subprocess.run(
        ["grep", "-laF", text, *files], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


async def test_nothing_of_what_was_read_is_left_when_it_is_tidied(url: str, path: Path) -> None:
    """Neither in the file nor in its log: while a receiver runs, by it; else by who asks."""
    body = b'{"phone": "+254700000001"}'
    async with opened(url) as store:
        await submit(store, arrival(said("e1", order="A"), body=body))
        await read(store)
    async with opened(url) as store:
        task = asyncio.create_task(store.receiving.inbox.watch(store.closing))
        await submit(store, arrival(said("e2", order="A"), body=body + b" "))
        assert holding(path, "+254700000001") != []
        await read(store)
        assert await store.tidy_inbox()
        assert holding(path, "+254700000001") == []
        store.closing.set()
        await task
    async with opened(url) as store:
        await submit(store, arrival(said("e3", order="A"), body=body + b"  "))
        await read(store)
    async with open_store(StoreSettings(url=url), purpose="writing") as store:
        assert await store.tidy_inbox()
    assert holding(path, "+254700000001") == []
