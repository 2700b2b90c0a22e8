"""`tallyhook db distribute`: what lies where, and how a database that lies otherwise is refused."""

import asyncio
from pathlib import Path

import pytest

from app.database import schema
from tests.citus.cluster import Cluster
from tests.database.builders import arrival, fetch, keep, opened, said
from tests.e2e.processes import command
from tests.postgres.conftest import ask

pytestmark = pytest.mark.postgres

LIES = "SELECT table_name::text FROM citus_tables ORDER BY 1"


async def fill(url: str) -> None:
    async with opened(url) as inbox:
        assert await keep(inbox, arrival(said("e1", order="A"))) == ["stored"]
        assert await keep(inbox, arrival(said("e1", order="A"))) == ["duplicate"]


async def own(url: str) -> list[str]:
    async with opened(url) as inbox:
        assert inbox.database.spread
        return await fetch(inbox, schema.strange_objects)


def test_a_database_with_rows_is_distributed_and_compared_like_any_other(
    citus: Cluster, tmp_path: Path
) -> None:
    url = citus.database()
    early = command(tmp_path, "db", "distribute", DATABASE_URL=url)
    assert early.returncode == 3
    assert "yet; run `tallyhook db upgrade`" in early.stderr.decode()
    assert command(tmp_path, "db", "upgrade", DATABASE_URL=url).returncode == 0
    asyncio.run(fill(url))
    ask(url, "UPDATE alembic_version SET version_num = '0014'")
    old = command(tmp_path, "db", "distribute", DATABASE_URL=url)
    assert (old.returncode, ask(url, LIES)) == (3, [])
    ask(url, f"UPDATE alembic_version SET version_num = '{schema.NEWEST}'")

    done = command(tmp_path, "db", "distribute", DATABASE_URL=url)
    assert done.returncode == 0, done.stderr
    assert [row[0] for row in ask(url, LIES)] == ["deliveries", "events"]
    assert ask(url, "SELECT count(*) FROM deliveries")[0][0] == 2
    assert asyncio.run(own(url)) == []
    again = command(tmp_path, "db", "distribute", DATABASE_URL=url)
    assert "already" in again.stderr.decode()

    ask(url, "DELETE FROM meta WHERE name = 'layout'")
    refused = command(tmp_path, "orders", "list", DATABASE_URL=url)
    assert refused.returncode == 3
    assert "are not stored as recorded (on other nodes)" in refused.stderr.decode()
