"""Servers that hold rows or copies: each is asked, and named where it risks them."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.database import nodes
from tests.api.driving import Driver, driving
from tests.monitoring.alarms import told
from tests.postgres.conftest import ask_in_loop, migrate
from tests.postgres.server import Programs
from tests.postgres.test_takeover import pair, place

__all__ = ("place",)

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def always_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "AGAIN_S", 0.0)


async def readiness(driver: Driver) -> Any:
    return (await driver.client.get("/readyz")).json()


@pytest.mark.costly
async def test_standbys_that_are_missing_or_may_lose_data_are_named(
    place: tuple[Programs, Path], tmp_path: Path
) -> None:
    """The service stays ready: what it acknowledges is on one disk, as it would be without any."""
    async with (
        pair(place, "n") as servers,
        driving(tmp_path, with_worker=False, DATABASE_URL=servers.url, STANDBYS="1") as driver,
    ):
        assert "unsafe" not in await readiness(driver)
        assert await told(driver, "standbys") == []
        assert "tallyhook_synchronous_standbys 1.0" in (await driver.client.get("/metrics")).text
        own = servers.standby.url("postgres")
        await ask_in_loop(own, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        (lossy,) = await until_unsafe(driver, "fsync")
        assert lossy.startswith(
            f"the database server {servers.standby.folder}:5432 of TALLYHOOK_DATABASE"
        )
        await servers.configure("synchronous_standby_names", "")
        servers.standby.kill()
        missing, away = await until_unsafe(driver, "0 of 1")
        assert (
            "synchronous_standby_names is empty: acknowledged deliveries are on 1 copy" in missing
        )
        assert "does not answer, so it could not take over" in away
        assert await told(driver, "standbys") == [missing[:1].upper() + missing[1:] + "."]


async def until_unsafe(driver: Driver, word: str) -> list[str]:
    """Ask until a sentence has the word; return all of them."""
    while True:
        unsafe: list[str] = (await readiness(driver)).get("unsafe", [])
        if any(word in each for each in unsafe):
            return unsafe


CITUS = (
    "CREATE SCHEMA citus",
    "CREATE TABLE citus.pg_dist_node"
    " (nodename text, nodeport int, groupid int, noderole text, isactive boolean)",
    """INSERT INTO citus.pg_dist_node VALUES
    ('coordinator', 1, 0, 'primary', true), ('sound', 2, 1, 'primary', true),
    ('down', 3, 2, 'primary', true), ('frozen', 4, 3, 'primary', true),
    ('copy', 5, 1, 'secondary', true), ('removed', 6, 4, 'primary', false)""",
    """CREATE FUNCTION citus.master_run_on_worker(text[], int[], text[], boolean)
    RETURNS TABLE (success boolean, result text) LANGUAGE plpgsql AS $$ BEGIN
    IF $2[1] = 4 THEN PERFORM pg_sleep(120); END IF;
    success := $2[1] = 2;
    IF success THEN EXECUTE $3[1] INTO result; END IF;
    RETURN NEXT;
    END $$""",
)
"""Catalogs and functions of Citus, as far as they are asked."""


async def test_a_node_with_rows_that_does_not_answer_makes_the_service_unready(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is named, also one that is frozen, and the answer does not wait for it."""
    monkeypatch.setattr(nodes, "ANSWER_MS", 200)
    await migrate(empty_url)
    name = make_url(empty_url).database
    path = f'ALTER DATABASE "{name}" SET search_path = public, citus'
    await ask_in_loop(empty_url, *CITUS, path)
    async with driving(tmp_path, with_worker=False, DATABASE_URL=empty_url) as driver:
        told = await readiness(driver)
    assert told["status"] == "not ready"
    assert [each.partition(",")[0] for each in told["reasons"]] == [
        "the database node down:3 does not answer",
        "the database node frozen:4 does not answer",
    ]
