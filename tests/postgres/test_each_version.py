"""Bringing a database on a server up to date from any version."""

from __future__ import annotations

import pytest

from tests.database.contract_each_version import EachVersionContract

pytestmark = pytest.mark.postgres


class TestPostgresql(EachVersionContract):
    """On a server."""

    every = 15  # SQLite has more of them: what an upgrade does is told to both alike

    @pytest.fixture
    def old_url(self, empty_url: str) -> str:
        """A database that has no table yet."""
        return empty_url
