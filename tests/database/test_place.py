"""A database that vanishes under its writer is noticed before the next commit is reported."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import StorePoisoned
from app.database.engine import writing_engine
from app.database.statements import PlainConnection
from app.database.writer import DatabaseFiles, Space, Writer


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("other"))
    path.with_name("other").replace(path)


def _make(connection: PlainConnection, table: str) -> None:
    connection.ask(f"CREATE TABLE {table} (a)")


async def _commit_after(path: Path, act: Callable[[Path], object]) -> None:
    writer = Writer(
        writing_engine(f"sqlite+aiosqlite:///{path}"),
        lock=None,
        log=None,
        place=DatabaseFiles(path),
        space=Space(path.parent, low_water_mib=0),
    )
    try:
        await writer.commit(_make, "before")
        act(path)
        with pytest.raises(StorePoisoned, match="while the service was running"):
            await writer.commit(_make, "after")
        assert writer.poison is not None
    finally:
        await writer.close()


@pytest.mark.parametrize(
    "act",
    [
        Path.unlink,
        _replace,
        lambda path: path.rename(path.with_name("moved")),
        lambda path: path.with_name(path.name + "-wal").unlink(),
    ],
    ids=["deleted", "replaced", "renamed", "log deleted"],
)
def test_no_commit_goes_to_a_file_that_is_gone(
    tmp_path: Path, act: Callable[[Path], object]
) -> None:
    """Deleted, replaced, renamed or without its log: the next commit fails for good."""
    asyncio.run(_commit_after(tmp_path / "t.db", act))
