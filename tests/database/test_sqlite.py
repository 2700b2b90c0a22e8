"""The contract on SQLite."""

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from tests.database.builders import opened
from tests.database.contracts import Contract
from tests.database.made import put_new


class TestSqlite(Contract):
    """Every property of the contract, on a database file."""

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
