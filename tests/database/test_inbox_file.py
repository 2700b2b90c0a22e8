"""The inbox of an SQLite database is a file: it is never taken for read when it was not, and what
has been read leaves it."""

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.context.unread import Backlog
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, StoreUnavailable
from app.database.gaps import accepted_gaps
from app.database.writer import MIB
from app.monitoring.watchdog import Watched, alarms
from app.orders.set_aside import HOLDING
from app.privacy.backup import adopt_inbox, back_up, restore
from app.privacy.replay_erasures import Replayed
from app.receiving import inbox_store, inbox_writer_store
from app.receiving.append_store import Ready, keep_arrivals
from app.receiving.inbox import Inbox, open_inbox
from app.receiving.inbox_file_store import facts_at, path_of
from app.receiving.inbox_loss_store import Left, loss_after
from app.receiving.inbox_store import adopt, suspect
from app.receiving.reader import ReaderContext, read_some
from app.receiving.refusal_store import delete_rejections
from reconcile.instants import SECOND
from tests.contexts import settings_of
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
from tests.reconcile.build import seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    put_new(tmp_path / "t.db")
    return tmp_path / "t.db"


@pytest.fixture
def url(path: Path) -> str:
    return url_of(path)


def url_of(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


async def read(inbox: Inbox) -> list[str]:
    """Read all rows of the inbox; return the stored events."""
    while await read_some(ReaderContext(context(inbox), inbox, SOURCES, "sandbox", HOLDING)):
        pass
    return await stored(inbox)


async def stored(inbox: Inbox) -> list[str]:
    """Return the event of each stored delivery."""
    return [row[0] for row in await rows(inbox, "SELECT event_id FROM deliveries ORDER BY 1")]


async def take(inbox: Inbox, *event_ids: str) -> None:
    """Take deliveries in, a row each."""
    for event_id in event_ids:
        await submit(inbox, arrival(said(event_id, order="A")))


async def look(inbox: Inbox) -> None:
    """Have the receiver see how far the file has been read, with the database's log folded."""
    assert await inbox.database.writer.try_checkpoint("PASSIVE")
    await inbox.writer._look()


def in_inbox(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement on the file, as another program."""
    with closing(sqlite3.connect(path_of(path))) as inbox, inbox:
        return inbox.execute(sql).fetchall()


async def test_a_row_is_deleted_by_later_commits_once_it_is_read(url: str, path: Path) -> None:
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2")
        await inbox.writer._look()
        await take(inbox, "e3")
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(3,)]
        assert await read(inbox) == ["e1", "e2", "e3"]
        await look(inbox)
        await take(inbox, "e4")
        assert in_inbox(path, "SELECT seq FROM inbox") == [(4,)]
        assert await read(inbox) == ["e1", "e2", "e3", "e4"]


async def test_a_row_that_only_the_log_of_the_database_has_as_read_is_not_deleted(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may vanish: then all is read again."""
    monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
    async with opened(url) as inbox:
        await take(inbox, "e1")
        await read(inbox)
        await look(inbox)
        await take(inbox, "e2")
        await read(inbox)
        await inbox.writer._look()
        await take(inbox, "e3")
        assert in_inbox(path, "SELECT seq FROM inbox") == [(2,), (3,)]
        deleted = "SELECT name, value FROM counters WHERE name LIKE '%deleted' ORDER BY name"
        assert in_inbox(path, deleted) == [("deleted", 1), ("records deleted", 1)]


@pytest.mark.parametrize(("suspects", "unread"), [(True, 1), (False, 0)])
async def test_a_row_that_becomes_a_suspect_while_the_backlog_is_counted_counts(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch, suspects: bool, unread: int
) -> None:
    """Otherwise its order would be published as if nothing had come."""
    monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
    async with opened(url) as inbox:
        await take(inbox, "e1")
        assert inbox.file is not None
        found = await inbox.next_rows(limit=9, most_bytes=10**9)
        ask = inbox.file.on_snapshot

        async def later(function: Any, *words: Any) -> Any:
            if found:
                row = found.pop()
                if suspects:
                    await inbox.database.writer.commit(suspect, [row])
                else:
                    await inbox.append([Ready(row, [])])
                await look(inbox)
                assert in_inbox(path, "SELECT count(*) FROM inbox") == [(0,)]
            return await ask(function, *words)

        monkeypatch.setattr(inbox.file, "on_snapshot", later)
        assert (await inbox.backlog()).records == unread
        assert not found


async def test_rows_that_another_reader_has_taken_become_no_suspects(url: str) -> None:
    async with opened(url) as inbox:
        await take(inbox, "e1")
        found = await inbox.next_rows(limit=9, most_bytes=10**9)
        for _ in range(2):
            await inbox.database.writer.commit(suspect, found)
        assert await rows(inbox, "SELECT count(*) FROM suspects") == [(1,)]


async def test_counting_the_backlog_ends_though_numbers_have_a_gap(url: str, path: Path) -> None:
    """A database that takes over a file begins before the rows that have left it."""
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2", "e3")
        in_inbox(path, "DELETE FROM inbox WHERE seq = 1")
        assert (await inbox.backlog()).records == 2


async def test_where_nothing_comes_it_is_deleted_all_the_same(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2")
        await read(inbox)
        await look(inbox)
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(0,)]


async def test_a_commit_without_room_to_delete_only_keeps(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise StoreUnavailable("planted", reason="disk")

    async with opened(url) as inbox:
        await take(inbox, "e1", "e2")
        await read(inbox)
        await look(inbox)
        with monkeypatch.context() as planted:
            planted.setattr(inbox_store, "delete_up_to", full)
            with pytest.raises(StoreUnavailable):
                await take(inbox, "e3")
            await take(inbox, "e3")
        await take(inbox, "e4")
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(2,)]
        assert await read(inbox) == ["e1", "e2", "e3", "e4"]


async def test_nothing_is_deleted_before_a_reader_has_synced_the_disk(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a reader that ended may be visible and not on the disk."""
    monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
    async with opened(url) as inbox:
        inbox.writer.may_delete = lambda: False
        await take(inbox, "e1")
        await read(inbox)
        await look(inbox)
        await take(inbox, "e2")
        assert in_inbox(path, "SELECT count(*) FROM inbox") == [(2,)]


async def test_the_room_that_unread_deliveries_need_is_kept_free(url: str) -> None:
    """Three times their bytes, or 4 KiB for each, whichever is more."""
    async with opened(url) as inbox:
        space = inbox.writer.writer.space
        assert space.reserved() == 0
        await take(inbox, "e1", "e2", "e3")
        assert space.reserved() == 3 * 4_096
        await submit(inbox, arrival(said("large", order="A"), body=b"x" * 100_000))
        assert 300_000 < space.reserved() < 310_000
        await read(inbox)
        await inbox.writer._look()
        assert space.reserved() == 0


async def test_what_is_read_and_kept_for_long_is_an_alarm(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes that the receiver counts; none once the log was folded."""
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2")
        watched = Watched(context(inbox))
        monkeypatch.setattr("app.monitoring.watchdog.KEPT_MOST", 0)
        assert "inbox_kept" not in await alarms(watched)
        await read(inbox)
        await inbox.writer._look()
        assert 0 < inbox.writer.kept_size == await inbox.kept_bytes()
        assert "such as a backup" in (await alarms(watched))["inbox_kept"].sentence
        monkeypatch.setattr(inbox_writer_store, "IDLE_S", 0.0)
        await look(inbox)
        assert inbox.writer.kept_size == await inbox.kept_bytes() == 0


async def test_too_much_unread_is_refused(url: str) -> None:
    async with opened(url, inbox_max_bytes=MIB) as inbox:
        await submit(inbox, arrival(said("large", order="A"), body=b"x" * MIB))
        with pytest.raises(StoreUnavailable, match="TALLYHOOK_INBOX_MAX_BYTES"):
            await take(inbox, "e1")
        await read(inbox)
        await inbox.writer._look()
        await take(inbox, "e1")


# --- a file that is not what it was --------------------------------------------------------------


def emptied(path: Path) -> None:
    """Delete all rows and the memory of their numbers."""
    in_inbox(path, "DELETE FROM inbox")
    in_inbox(path, "DELETE FROM sqlite_sequence")


async def test_rows_after_the_file_was_emptied_are_read(url: str, path: Path) -> None:
    """Their numbers were never read; else they would be lost."""
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2", "e3")
        await read(inbox)
    emptied(path)
    async with opened(url) as inbox:
        await take(inbox, "e4")
        assert await read(inbox) == ["e1", "e2", "e3", "e4"]


async def test_an_older_copy_that_is_put_back_is_read_from_where_it_was(
    url: str, path: Path, tmp_path: Path
) -> None:
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2")
    shutil.copy(path_of(path), tmp_path / "copy")
    async with opened(url) as inbox:
        await take(inbox, "e3")
        await read(inbox)
    shutil.copy(tmp_path / "copy", path_of(path))
    async with opened(url) as inbox:
        await take(inbox, "e4")
        assert await read(inbox) == ["e1", "e2", "e3", "e4"]


async def test_a_file_that_is_just_being_made_has_no_rows(url: str, path: Path) -> None:
    path_of(path).touch()
    settings = settings_of(url)
    async with open_inbox(settings, purpose="writing") as inbox:
        assert await inbox.backlog() == Backlog()
        async with opened(url) as receiving:
            await take(receiving, "e1")
            assert (await inbox.backlog()).records == 1


async def test_a_file_that_this_database_has_not_read_stops_the_start(url: str, path: Path) -> None:
    """Until `db adopt-inbox`; then all of it is read."""
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2")
        await read(inbox)
        await take(inbox, "e3")
    in_inbox(path, "UPDATE meta SET value='inbox_other' WHERE name='inbox'")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"t\.db\.inbox.*`tallyhook db adopt-inbox`"):
            async with opened(url):
                pass
    with pytest.raises(ConfigurationError, match="--accept-gap --reason"):
        await adopt_inbox(Settings(database_url=url), clock=SystemClock(), accepts=None)
    records, found = await adopt_inbox(
        Settings(database_url=url), clock=SystemClock(), accepts="gone"
    )
    async with open_inbox(Settings(database_url=url), purpose="reading") as inbox:
        (kept,) = await inbox.database.on_snapshot(accepted_gaps)
    assert found is not None
    assert (kept.kind, kept.deliveries, kept.reason) == ("inbox", None, "gone")
    assert records == in_inbox(path, "SELECT count(*) FROM inbox")[0][0]
    async with opened(url) as inbox:
        await take(inbox, "e4")
        assert await read(inbox) == ["e1", "e2", "e3", "e4"]


async def test_adopting_the_own_file_or_the_first_file_needs_no_reason(
    url: str, path: Path
) -> None:
    async with opened(url) as inbox:
        await take(inbox, "e1")
    for statement in ("SELECT 1", "DELETE FROM meta WHERE name='inbox'"):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)
        adopted = await adopt_inbox(settings_of(url), clock=SystemClock(), accepts=None)
        assert adopted == (1, None)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE meta SET value='live' WHERE name='environment'", "belongs to live"),
        (
            "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN DELETE FROM inbox; END",
            "not a Tallyhook inbox",
        ),
    ],
)
async def test_a_file_of_the_other_environment_or_with_a_trigger_stops_the_start(
    url: str, path: Path, sql: str, why: str
) -> None:
    async with opened(url):
        pass
    in_inbox(path, sql)
    with pytest.raises(ConfigurationError, match=why):
        async with opened(url):
            pass


@pytest.mark.parametrize("judged_again", [False, True])
async def test_a_rejection_read_twice_is_kept_and_counted_once(
    url: str, path: Path, judged_again: bool
) -> None:
    """Also where it was reverified meanwhile and is a delivery now."""
    refused = rejection()
    async with opened(url) as inbox:
        await inbox.queue.submit(refused)
        await read(inbox)
        if judged_again:
            arrived = arrival(said("e1", order="A"))._replace(delivery_id=refused.delivery_id)
            async with inbox.database.writing() as connection:
                await delete_rejections(connection, [refused.delivery_id])
                await keep_arrivals(connection, [arrived])
        await inbox.database.writer.commit(adopt, facts_at(path))
        await read(inbox)
        kept = await rows(inbox, "SELECT id FROM rejections")
        assert kept == ([] if judged_again else [(refused.delivery_id,)])
        assert await rows(inbox, "SELECT sum(refused) FROM arrivals") == [(1,)]


# --- backups and erasures ------------------------------------------------------------------------


async def test_a_backup_holds_unread_deliveries_which_are_read_once(
    url: str, path: Path, tmp_path: Path
) -> None:
    """Also where it is restored beside an inbox that has them, too."""
    async with opened(url) as inbox:
        await take(inbox, "e1")
        await read(inbox)
        await take(inbox, "e2", "e3")
        copy = tmp_path / "copy.db"
        await back_up(settings_of(url), copy, replace=False, progress=lambda done, total: None)
        await read(inbox)
    with closing(sqlite3.connect(copy)) as database:
        database.execute("DELETE FROM meta WHERE name='inbox'")  # as `restore` does where none is
        database.commit()
    async with opened(url_of(copy)) as inbox:
        assert await stored(inbox) == ["e1"]
        assert await read(inbox) == ["e1", "e2", "e3"]
        assert await rows(inbox, "SELECT count(*) FROM inbox") == [(0,)]
    shutil.copy(copy, tmp_path / "again.db")


async def test_a_restore_reads_all_of_the_inbox(url: str, path: Path, tmp_path: Path) -> None:
    """The backup may have read beyond the numbers of the inbox, where the machine itself was put
    back."""
    async with opened(url):
        pass
    machine = (path, path_of(path), path.with_name(f"{path.name}.serving"))
    for each in machine:
        shutil.copy(each, tmp_path / f"before-{each.name}")
    backup = tmp_path / "copy.db"
    async with opened(url) as inbox:
        await take(inbox, "e1", "e2", "e3")
        await read(inbox)
        await back_up(settings_of(url), backup, replace=False, progress=lambda done, total: None)
    for each in machine:
        shutil.copy(tmp_path / f"before-{each.name}", each)
    async with opened(url) as inbox:
        await take(inbox, "e4", "e5")
    await put_back(url, backup)
    async with opened(url) as inbox:
        await take(inbox, "e6")
        assert await read(inbox) == ["e1", "e2", "e3", "e4", "e5", "e6"]
        assert await read(inbox) == ["e1", "e2", "e3", "e4", "e5", "e6"]


async def put_back(url: str, backup: Path) -> None:
    async def nobody(inbox: Inbox) -> Replayed:
        return Replayed()

    await restore(
        settings_of(url),
        backup,
        replace=True,
        clock=SystemClock(),
        erase_again=nobody,
        progress=lambda done, total: None,
        accepts="a test",
    )


def holding(path: Path, text: str) -> list[str]:
    """Return files of the inbox that contain this. Another process looks: closing a file here would
    drop SQLite's locks."""
    files = sorted(path.parent.glob("t.db.inbox*"))
    found = subprocess.run(
        ["grep", "-laF", text, *files], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


@pytest.mark.parametrize(
    ("closed", "found", "lost"),
    [
        (7, {6, 7}, 0),
        (7, {5, 6, 7}, 0),
        (5, set[int](), 0),
        (7, {7}, None),
        (7, {6}, None),
        (None, {6, 7}, None),
    ],
    ids=["all", "and one read before", "none unread", "no first", "no last", "not closed"],
)
def test_nothing_was_lost_if_all_unread_rows_of_a_closed_file_are_there(
    closed: int | None, found: set[int], lost: int | None
) -> None:
    left = Left(known="file", position=5, closed=closed, lost=None, since=seconds(60))
    gap = loss_after(left, detail="", found=found, on_its_way=5 * SECOND, now=seconds(90))
    since = seconds(90) if lost == 0 else seconds(55)
    assert (gap.deliveries, gap.since, gap.until) == (lost, since, seconds(90))


async def test_tidying_leaves_nothing_read_in_file_or_log(url: str, path: Path) -> None:
    """Done by the receiver while one runs, else by the caller."""
    body = b'{"phone": "+254700000001"}'
    async with opened(url) as inbox:
        await submit(inbox, arrival(said("e1", order="A"), body=body))
        await read(inbox)
    async with opened(url) as inbox:
        task = asyncio.create_task(inbox.writer.watch(inbox.signals.closing))
        await submit(inbox, arrival(said("e2", order="A"), body=body + b" "))
        assert holding(path, "+254700000001") != []
        await read(inbox)
        assert await inbox.tidy()
        assert holding(path, "+254700000001") == []
        inbox.signals.closing.set()
        await task
    async with opened(url) as inbox:
        await submit(inbox, arrival(said("e3", order="A"), body=body + b"  "))
        await read(inbox)
    async with open_inbox(Settings(database_url=url), purpose="writing") as inbox:
        assert await inbox.tidy()
    assert holding(path, "+254700000001") == []
