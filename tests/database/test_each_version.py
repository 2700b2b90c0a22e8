"""Bringing an SQLite database up to date from any version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.database.contract_each_version import EachVersionContract


class TestSqlite(EachVersionContract):
    """On a database file."""

    @pytest.fixture
    def old_url(self, tmp_path: Path) -> str:
        """A database that does not exist yet."""
        return f"sqlite+aiosqlite:///{tmp_path}/old.db"
