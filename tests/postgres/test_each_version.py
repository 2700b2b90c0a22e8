"""Bringing a database on a server up to date from any version."""

from __future__ import annotations

import pytest

from tests.database.contract_each_version import EachVersionContract

pytestmark = pytest.mark.postgres


class TestPostgresql(EachVersionContract):
    """On a server."""

    @pytest.fixture
    def old_url(self, empty_url: str) -> str:
        """A database that has no table yet."""
        return empty_url
