"""The database for the time of one check has what the real one has."""

import sqlite3
from pathlib import Path

from sqlalchemy import text

from app.database.engine import scratch_database
from tests.database.made import put_new

NAMES = (
    "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'index') "
    "AND name NOT LIKE 'sqlite_%'"
)


async def test_it_has_every_table_and_index_and_can_be_made_again(tmp_path: Path) -> None:
    put_new(tmp_path / "t.db")
    real = sqlite3.connect(tmp_path / "t.db")
    wanted = {row for row in real.execute(NAMES) if row != ("table", "alembic_version")}
    real.close()
    for _ in range(2):
        async with scratch_database() as scratch:
            made = {tuple(row) for row in await scratch.execute(text(NAMES))}
            assert made == wanted
            assert await scratch.scalar(text("SELECT count(*) FROM deliveries")) == 0
