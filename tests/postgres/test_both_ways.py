"""On PostgreSQL a batch leaves the same whether it is one statement or goes the ordinary way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text

from app.store.arrivals.intake import Arrival, append, append_alone
from app.store.arrivals.links import LinkMemory
from app.store.store import Store
from tests.postgres.conftest import migrate
from tests.store.both_ways import live
from tests.store.builders import opened

pytestmark = pytest.mark.postgres

WORLDS, BATCHES = 20, 6


class Side:
    """A database on the server."""

    def __init__(self, store: Store, way: Any) -> None:
        self._store = store
        self._way = way
        self._memory = LinkMemory()

    async def keep(self, batch: Sequence[Arrival]) -> list[str]:
        """The verdicts of one batch."""
        appended = await self._store.writer.commit(self._way("postgresql", batch, self._memory))
        self._memory.add(appended.links)
        return list(appended.verdicts)

    def start(self) -> None:
        """Remember nothing."""
        self._memory = LinkMemory()

    async def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        async with self._store.writing() as connection:
            found = await connection.execute(text(sql), dict(zip("ab", values, strict=False)))
            return [tuple(row) for row in found] if found.returns_rows else []


async def test_both_ways_leave_the_same(url: str, empty_url: str) -> None:
    """Whatever is stored and whatever comes, row for row."""
    await migrate(empty_url)
    async with opened(url) as first, opened(empty_url) as second:
        one, other = Side(first, append_alone), Side(second, append)
        # Other tests may have used the first of the two: its rows are to be numbered from 1 too.
        await one.run("TRUNCATE events, unsealed RESTART IDENTITY")
        for seed in range(WORLDS):
            await live(random.Random(seed), one, other, batches=BATCHES)
