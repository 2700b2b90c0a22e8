"""What every database must keep when it is brought up to date from any version there has been."""

from __future__ import annotations

from typing import Any

import pytest
from alembic import command

from app.store.database import schema
from app.store.store import Store, StoreSettings
from tests.store.builders import differences, dump
from tests.store.contract_retention import NEW_COLUMNS
from tests.store.contract_upgrading import make_first_version, version_of


def bring_to(connection: Any, version: str) -> None:
    """The database as the program of that version left it."""
    config = schema.alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, version)


class EachVersionContract:
    """From each version in turn. A subclass gives `old_url`, a database without any table."""

    async def test_an_upgrade_from_some_versions(self, old_url: str) -> None:
        """Every seventh: each row is there afterwards, and the tables are as new ones are."""
        assert await self.upgraded(old_url, sorted(schema.known_versions())[1::7]) >= 2

    @pytest.mark.soak
    async def test_an_upgrade_from_each_version(self, old_url: str) -> None:
        """The same of all."""
        known = sorted(schema.known_versions())
        assert await self.upgraded(old_url, known) == len(known)
        print(f"upgraded from each of {len(known)} versions: no row lost")

    async def upgraded(self, url: str, versions: list[str]) -> int:
        """From how many versions it was brought up to date."""
        store = Store(StoreSettings(url=url, environment="sandbox"))
        try:
            for version in versions:
                old = await make_first_version(store)
                before = await dump(store, *old, leave_out=NEW_COLUMNS)
                assert sum(map(len, before.values())) >= 8
                async with store.writing() as connection:
                    await connection.run_sync(bring_to, version)
                assert await version_of(store) == version
                await store.upgrade()
                assert await version_of(store) == schema.newest_version()
                assert await dump(store, *old, leave_out=NEW_COLUMNS) == before, version
                async with store.reading() as connection:
                    assert await connection.run_sync(differences) == [], version
            return len(versions)
        finally:
            await store.close()
