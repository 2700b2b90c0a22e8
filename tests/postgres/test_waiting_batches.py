"""A batch that waited for another is judged by what that has written."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.engine import make_url

from app.receiving.append_store import keep_arrivals
from tests.database.builders import arrival, keep, opened, said
from tests.postgres.conftest import ask_in_loop, migrate

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_a_batch_that_waited_sees_what_the_other_wrote(
    empty_url: str, isolation: str
) -> None:
    """Whatever isolation the server has by default."""
    await migrate(empty_url)
    name = make_url(empty_url).database
    await ask_in_loop(
        empty_url, f"ALTER DATABASE {name} SET default_transaction_isolation TO '{isolation}'"
    )
    same = said("e1", order="A", payment="p")
    async with opened(empty_url) as one, opened(empty_url) as other:
        async with one.database.writing() as connection:
            await keep_arrivals(connection, [arrival(same)])
            waiting = asyncio.create_task(keep(other, arrival(same)))
            await until_one_waits(empty_url)
        assert await waiting == ["duplicate"]


async def until_one_waits(url: str) -> None:
    sql = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with asyncio.timeout(20):
        while not await ask_in_loop(url, sql):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
