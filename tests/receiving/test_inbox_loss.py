"""An inbox file that is lost: what is unread in it is saved, and the rest is named."""

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable
from app.database.gaps import accepted_gaps
from app.database.statements import PlainConnection
from app.privacy.backup import adopt_inbox
from app.receiving import inbox_loss_store
from app.receiving.inbox import open_inbox
from app.receiving.inbox_file_store import path_of
from app.receiving.inbox_loss_store import move_aside, readable
from reconcile.instants import format_instant
from tests.contexts import settings_of
from tests.database.builders import arrival, opened, said, submit
from tests.database.made import put_new
from tests.database.test_inbox_file import read, take, url_of

Act = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    put_new(tmp_path / "here" / "t.db")
    return tmp_path / "here" / "t.db"


def cut(size: int, suffix: str = "") -> Act:
    """Cut the inbox off, or a file beside it."""
    return lambda path: os.truncate(f"{path_of(path)}{suffix}", size)


def removed(path: Path) -> None:
    path_of(path).unlink()


def replaced(path: Path) -> None:
    shutil.copy(path_of(path), path.with_name("copy"))
    path.with_name("copy").replace(path_of(path))


def log_removed(path: Path) -> None:
    Path(f"{path_of(path)}-wal").unlink()


LOSSES = [
    pytest.param(cut(8_192), "was cut off", id="cut off"),
    pytest.param(cut(0), "was cut off", id="emptied"),
    pytest.param(removed, "is gone", id="removed"),
    pytest.param(replaced, "was replaced", id="replaced"),
    pytest.param(cut(4_152, "-wal"), "was cut off", id="log cut off"),
    pytest.param(cut(0, "-wal"), "was cut off", id="log emptied"),
    pytest.param(log_removed, "is gone", id="log removed"),
]


async def lose(path: Path, act: Act, said: str) -> None:
    """Take three in, read the first, and lose the file."""
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e1")
        await read(inbox)
        await take(inbox, "e2", "e3")
        assert inbox.file is not None
        await inbox.file.writer.checkpoint()
        await take(inbox, "e4")
        act(path)
        with pytest.raises(StorePoisoned, match=said):
            await take(inbox, "e5")


@pytest.mark.parametrize(("act", "said"), LOSSES)
async def test_what_a_service_had_not_read_is_saved(path: Path, act: Act, said: str) -> None:
    """It has the pages of its rows; the next start makes a new file, and reads them."""
    await lose(path, act, said)
    async with opened(url_of(path)) as inbox:
        assert await read(inbox) == ["e1", "e2", "e3", "e4"]
        await take(inbox, "e6")
        assert await read(inbox) == ["e1", "e2", "e3", "e4", "e6"]
    assert path.with_name("t.db.inbox.lost-1").exists()


def without(*numbers: int) -> Callable[..., list[Any]]:
    """Return a reading of rows to which these are lost."""

    def some(connection: PlainConnection, wanted: Collection[int]) -> list[Any]:
        return readable(connection, [number for number in wanted if number not in numbers])

    return some


async def gaps(path: Path) -> list[tuple[str, int | None, str, str]]:
    async with open_inbox(settings_of(url_of(path)), purpose="alone") as inbox:
        found = await inbox.database.on_snapshot(accepted_gaps)
    return [(gap.kind, gap.deliveries, gap.reason, gap.detail) for gap in found]


async def accept(path: Path, reason: str | None) -> None:
    settings = settings_of(url_of(path))
    await adopt_inbox(settings, clock=SystemClock(), accepts=reason)


async def refused(path: Path) -> str:
    """Return why neither a start nor an adoption without a reason goes on."""
    with pytest.raises(ConfigurationError, match="db adopt-inbox --accept-gap") as start:
        async with opened(url_of(path)):
            pass
    with pytest.raises(ConfigurationError, match="db adopt-inbox --accept-gap"):
        await accept(path, None)
    return str(start.value)


async def test_what_a_service_cannot_save_is_named_exactly_and_accepted_with_a_reason(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(inbox_loss_store, "readable", without(2, 3))
        async with opened(url_of(path)) as inbox:
            await take(inbox, "e1", "e2", "e3", "e4")
            kept = [inbox.writer.kept[number] for number in (2, 3)]
            removed(path)
            with pytest.raises(StorePoisoned):
                await take(inbox, "e5")
    since, until = format_instant(kept[0].since), format_instant(kept[1].until)
    said = await refused(path)
    assert f"t.db.inbox was removed while it was served ({since} to {until}): at most 2 " in said
    await accept(path, "the disk was replaced")
    ((kind, deliveries, reason, detail),) = await gaps(path)
    assert (kind, deliveries, reason) == ("inbox", 2, "the disk was replaced")
    assert detail in said
    async with opened(url_of(path)) as inbox:
        assert await read(inbox) == ["e1", "e4"]


async def killed(path: Path, elsewhere: Path, *, reads: bool = True) -> Path:
    """Return a database as a kill leaves it: two deliveries read, and two, or all, not."""
    os.mkdir(elsewhere)
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e1", "e2")
        if reads:
            await read(inbox)
        await take(inbox, "e3", "e4")
        for each in path.parent.glob("t.db*"):
            if not each.name.endswith("-shm"):
                shutil.copy(each, elsewhere / each.name)
    return elsewhere / "t.db"


@pytest.mark.parametrize(
    ("act", "said", "left"),
    [
        (removed, "is gone", []),
        (cut(0), "was emptied", []),
        (cut(5_000), "was cut off or overwritten", []),
        (log_removed, "is older than before", []),
        (cut(0, "-wal"), "is older than before", []),
        (cut(8_000, "-wal"), "is older than before", []),
    ],
)
async def test_a_start_after_a_kill_names_what_may_be_lost(
    path: Path, tmp_path: Path, act: Act, said: str, left: list[str]
) -> None:
    """Nobody knows how many; none came before the last that was read."""
    there = await killed(path, tmp_path / "there")
    if not said.startswith("is older"):
        log_removed(there)
    act(there)
    sentence = await refused(there)
    assert f"t.db.inbox {said}" in sentence
    assert "how many acknowledged deliveries are lost is unknown" in sentence
    await accept(there, "no copy is left")
    ((_, deliveries, _, detail),) = await gaps(there)
    assert (deliveries, detail in sentence) == (None, True)
    async with opened(url_of(there)) as inbox:
        await take(inbox, "e5")
        assert await read(inbox) == ["e1", "e2", *left, "e5"]


async def test_rows_that_can_still_be_read_are_saved_when_a_loss_is_accepted(
    path: Path, tmp_path: Path
) -> None:
    """The last page of the file is cut off, and with it the end of a long row."""
    there = tmp_path / "there"
    os.mkdir(there)
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e1", "e2")
        await submit(inbox, arrival(said("long", order="A"), body=b"x" * 20_000))
        assert inbox.file is not None
        await inbox.file.writer.checkpoint()
        for name in ("t.db", "t.db-wal", "t.db.inbox"):
            shutil.copy(path.with_name(name), there / name)
    last = path_of(there / "t.db")
    os.truncate(last, os.stat(last).st_size - 4_096)
    await refused(there / "t.db")
    await accept(there / "t.db", "no copy is left")
    async with opened(url_of(there / "t.db")) as inbox:
        assert await read(inbox) == ["e1", "e2"]


@pytest.mark.parametrize("act", [removed, cut(0), cut(5_000)], ids=["removed", "emptied", "cut"])
@pytest.mark.parametrize("again", [False, True], ids=["closed", "opened and killed since"])
async def test_nothing_is_lost_with_a_file_of_which_all_was_read(
    path: Path, tmp_path: Path, act: Act, again: bool
) -> None:
    """An orderly end notes where the file ended, and a start takes that back."""
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e1", "e2")
        await read(inbox)
    if again:
        path = await killed(path, tmp_path / "there")
        log_removed(path)
    act(path)
    if again:
        await refused(path)
        return
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e3")
        assert await read(inbox) == ["e1", "e2", "e3"]


@pytest.mark.parametrize("lost", [log_removed, cut(0, "-wal")], ids=["removed", "emptied"])
async def test_a_log_that_is_lost_before_anything_was_read_is_missed(
    path: Path, tmp_path: Path, lost: Act
) -> None:
    """The receiver notes the last number beside the file, as no other trace of it is left."""
    there = await killed(path, tmp_path / "there", reads=False)
    lost(there)
    assert "is older than before" in await refused(there)


@pytest.mark.parametrize("act", [cut(4_096), cut(0), removed], ids=["cut", "emptied", "removed"])
@pytest.mark.parametrize("looked_at", [False, True])
async def test_a_file_that_was_cut_off_is_given_up_where_its_log_still_has_all_rows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Act, looked_at: bool
) -> None:
    """Few rows are looked at, and held in memory, at once; no command that only reads destroys
    the log of a file that is lost."""
    there, at_once = await killed(path, tmp_path / "there"), list[int]()

    def some(connection: PlainConnection, numbers: Collection[int]) -> list[Any]:
        at_once.append(len(numbers))
        return readable(connection, numbers)

    monkeypatch.setattr(inbox_loss_store, "AT_ONCE", 1)
    monkeypatch.setattr(inbox_loss_store, "readable", some)
    act(there)
    if looked_at:
        async with open_inbox(settings_of(url_of(there)), purpose="reading") as inbox:
            await inbox.backlog()
            await inbox.gap()
    async with opened(url_of(there)) as inbox:
        await take(inbox, "e5")
        assert await read(inbox) == ["e1", "e2", "e3", "e4", "e5"]
    assert there.with_name("t.db.inbox.lost-1").exists()
    assert at_once == [1] * 4


def test_a_file_that_is_kept_beside_overwrites_none_of_another(tmp_path: Path) -> None:
    """Of the last loss only the log was left."""
    for name in ("t.lost-1-wal", "t", "t-wal"):
        (tmp_path / name).write_text(name)
    assert move_aside(tmp_path / "t") == tmp_path / "t.lost-2"
    found = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert found == {"t.lost-1-wal": "t.lost-1-wal", "t.lost-2": "t", "t.lost-2-wal": "t-wal"}


async def test_a_service_whose_reader_could_not_begin_does_not_start(path: Path) -> None:
    """Deliveries would be acknowledged, and never read."""
    path.with_name("t.db.reading").mkdir()
    with pytest.raises(StoreUnavailable, match="the database cannot be opened: Is a directory"):
        async with opened(url_of(path)):
            pass


async def test_nothing_is_lost_with_the_file_of_a_killed_service_that_had_read_all(
    path: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    os.mkdir(there)
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e1", "e2")
        await read(inbox)
        for name in ("t.db", "t.db-wal", "t.db.serving"):
            shutil.copy(path.with_name(name), there / name)
    async with opened(url_of(there / "t.db")) as inbox:
        await take(inbox, "e3")
        assert await read(inbox) == ["e1", "e2", "e3"]


async def test_a_file_that_was_closed_with_unread_rows_is_missed(path: Path) -> None:
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e1", "e2")
    removed(path)
    assert "is unknown" in await refused(path)


async def test_a_file_that_was_closed_before_is_missed_if_a_killed_service_lost_it(
    path: Path, tmp_path: Path
) -> None:
    """Its last number is not beside it any more; that it was closed counts only until a start."""
    there = tmp_path / "there"
    os.mkdir(there)
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e1")
        await read(inbox)
    async with opened(url_of(path)) as inbox:
        await take(inbox, "e2", "e3")
        for name in ("t.db", "t.db-wal"):
            shutil.copy(path.with_name(name), there / name)
    assert "is unknown" in await refused(there / "t.db")
