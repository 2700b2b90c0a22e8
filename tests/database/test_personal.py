"""The contract's part on personal data, on SQLite."""

from pathlib import Path

import pytest

from tests.database.contract_personal import PersonalContract
from tests.database.made import put_new


class TestPersonal(PersonalContract):
    """Phones by digest, erasure, and append-only tables, on a database file."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        put_new(tmp_path / "t.db")
        return f"sqlite+aiosqlite:///{tmp_path}/t.db"
