"""The contract on SQLite."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.database.engine import scratch_database
from tests.database.builders import opened
from tests.database.contracts import OtherContract
from tests.database.made import put_new


class TestSqlite(OtherContract):
    """Every property of the contract but those of personal data, on a database file."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        put_new(tmp_path / "t.db")
        return f"sqlite+aiosqlite:///{tmp_path}/t.db"

    @pytest.fixture
    def empty_url(self, tmp_path: Path) -> str:
        return f"sqlite+aiosqlite:///{tmp_path}/empty.db"


async def test_connections_have_their_pragmas(tmp_path: Path) -> None:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        async with inbox.database.reading() as connection:
            with pytest.raises(OperationalError, match="readonly"):
                await connection.exec_driver_sql("DELETE FROM counters")
        async with inbox.database.writing() as connection:
            pragmas = {
                name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
                for name in ("wal_autocheckpoint", "secure_delete", "synchronous", "temp_store")
            }
        assert pragmas == {
            "wal_autocheckpoint": 0, "secure_delete": 1, "synchronous": 2, "temp_store": 2
        }  # fmt: skip


NAMES = (
    "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'index') "
    "AND name NOT LIKE 'sqlite_%'"
)


async def test_a_scratch_database_has_every_table_and_index(tmp_path: Path) -> None:
    put_new(tmp_path / "t.db")
    real = sqlite3.connect(tmp_path / "t.db")
    wanted = {row for row in real.execute(NAMES) if row != ("table", "alembic_version")}
    real.close()
    for _ in range(2):
        async with scratch_database() as scratch:
            made = {tuple(row) for row in await scratch.execute(text(NAMES))}
            assert made == wanted
            assert await scratch.scalar(text("SELECT count(*) FROM deliveries")) == 0
