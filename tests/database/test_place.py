"""A database that vanishes, or is cut off, under its writer is noticed before the next commit is
reported."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import StorePoisoned
from app.database.engine import writing_engine
from app.database.statements import PlainConnection
from app.database.writer import DatabaseFiles, LogLength, Space, Writer


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("other"))
    path.with_name("other").replace(path)


def _make(connection: PlainConnection, table: str) -> None:
    connection.ask(f"CREATE TABLE {table} (a)")


def _drop(connection: PlainConnection, table: str) -> None:
    connection.ask(f"DROP TABLE {table}")


def _cut(suffix: str, size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(f"{path}{suffix}", size)


def _writer(path: Path) -> Writer:
    log = LogLength(path)
    return Writer(
        writing_engine(f"sqlite+aiosqlite:///{path}"),
        lock=None,
        log=log,
        place=DatabaseFiles(path, log),
        space=Space(path.parent, low_water_mib=0),
    )


async def _commit_after(path: Path, act: Callable[[Path], object], said: str) -> None:
    writer = _writer(path)
    try:
        await writer.commit(_make, "before")
        await writer.checkpoint()
        await writer.commit(_make, "in_log")
        act(path)
        with pytest.raises(StorePoisoned, match=f"{said} while the service was running"):
            await writer.commit(_make, "after")
        assert writer.poison is not None
    finally:
        await writer.close()


@pytest.mark.parametrize(
    ("act", "said"),
    [
        pytest.param(Path.unlink, "t.db is gone", id="deleted"),
        pytest.param(_replace, "t.db was replaced", id="replaced"),
        pytest.param(lambda path: path.rename(path.with_name("moved")), "t.db is gone", id="moved"),
        pytest.param(
            lambda path: path.with_name(path.name + "-wal").unlink(),
            "t.db-wal is gone",
            id="log deleted",
        ),
        pytest.param(_cut("", 4096), "t.db was cut off", id="cut off"),
        pytest.param(_cut("", 0), "t.db was cut off", id="emptied"),
        pytest.param(_cut("-wal", 4096), "t.db-wal was cut off", id="log cut off"),
        pytest.param(_cut("-wal", 0), "t.db-wal was cut off", id="log emptied"),
        pytest.param(_cut("-shm", 16_384), "t.db-shm was cut off", id="index cut off"),
    ],
)
def test_no_commit_goes_to_files_that_are_not_as_they_were(
    tmp_path: Path, act: Callable[[Path], object], said: str
) -> None:
    """Nothing is written to them, not even what would make a file as long as it was."""
    asyncio.run(_commit_after(tmp_path / "t.db", act, said))


def test_a_database_that_was_written_anew_may_be_shorter(tmp_path: Path) -> None:
    async def shrink(path: Path) -> None:
        writer = _writer(path)
        try:
            for n in range(20):
                await writer.commit(_make, f"t{n}")
            await writer.checkpoint()
            long = os.stat(path).st_size
            for n in range(20):
                await writer.commit(_drop, f"t{n}")
            await writer.rewrite()
            await writer.commit(_make, "again")
            await writer.checkpoint()
            assert os.stat(path).st_size < long
        finally:
            await writer.close()

    asyncio.run(shrink(tmp_path / "t.db"))


def test_a_lost_file_is_named_where_another_process_reports_a_failed_disk(tmp_path: Path) -> None:
    async def lose(path: Path) -> str | None:
        writer = _writer(path)
        try:
            await writer.commit(_make, "before")
            _replace(path)
            writer.fail("the disk reported an I/O error: the process that reads the inbox met it")
            return writer.poison
        finally:
            await writer.close()

    assert "t.db was replaced" in (asyncio.run(lose(tmp_path / "t.db")) or "")
