"""A large database file is checked while it is served."""

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import TextClause, text

from tests.api.driving import driving, event
from tests.database.test_journal import damage
from tests.waiting import PATIENCE_S

WITHOUT_END = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
"""A query that goes on until it is interrupted."""


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.database.database.CHECKED_BEFORE_SERVING", 0)
    monkeypatch.setattr("app.receiving.inbox_file_store.CHECKED_BEFORE_SERVING", -1)
    monkeypatch.setattr("app.wiring.service.LOOK_AFTER_S", 0)


async def test_damage_that_is_found_while_serving_ends_the_service(tmp_path: Path) -> None:
    """Nothing more is acknowledged, and the service asks to be ended."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
    damage(tmp_path / "t.db")
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        async with asyncio.timeout(PATIENCE_S):
            await driver.service.stopped()
        assert (await driver.send(event("e2"))).status_code == 503
        assert (await driver.client.get("/readyz")).status_code == 503
        (reason,) = driver.service.broken
        assert "nothing more is acknowledged" in reason


async def test_a_look_waits_until_the_start_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would delay the reading of what a crash has left."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
    looks = AsyncMock()
    monkeypatch.setattr("app.wiring.service.LOOK_AFTER_S", 600)
    monkeypatch.setattr("app.database.database.Database.look", looks)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e2"))
    looks.assert_not_called()


@pytest.mark.usefixtures("database_in_threads")
async def test_a_look_is_cut_short_when_the_service_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither waits for the end of the look nor takes the interruption for damage."""
    checks = {"PRAGMA quick_check(20)": WITHOUT_END}

    def asked(sql: str) -> TextClause:
        return text(checks.get(sql, sql))

    monkeypatch.setattr("app.database.facts.text", asked)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
    assert driver.service.broken == []
