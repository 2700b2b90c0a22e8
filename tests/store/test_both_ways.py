"""On SQLite a batch leaves the same whether it is one statement or goes the ordinary way."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.store.arrivals import arriving
from app.store.arrivals.intake import Arrival, append, append_alone
from app.store.arrivals.links import LinkMemory
from app.store.sql import statements
from tests.store.both_ways import live
from tests.store.made import put_new

WORLDS, BATCHES = 200, 6

_MADE_BY_US = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY rowid"


class Side:
    """A database in memory."""

    def __init__(self, schema: list[str], way: Any) -> None:
        self._way = way
        self._memory = LinkMemory()
        self.raw = sqlite3.connect(
            ":memory:", isolation_level=None, factory=statements.ScriptConnection
        )
        for statement in (*schema, *arriving.PREPARING):
            self.raw.execute(statement)

    async def keep(self, batch: Sequence[Arrival]) -> list[str]:
        """The verdicts of one batch."""
        script = self._way("sqlite", batch, self._memory)
        crossing = statements._Crossing(script, transaction=True)
        self.raw.execute("script", crossing).close()
        assert not self.raw.in_transaction
        self._memory.add(crossing.result.links)
        return list(crossing.result.verdicts)

    def start(self) -> None:
        """Remember nothing."""
        self._memory = LinkMemory()

    async def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return self.raw.execute(sql, dict(zip("ab", values, strict=False))).fetchall()


def schema_in(path: Path) -> list[str]:
    """What makes the tables of a new database, and their indexes and triggers."""
    put_new(path)
    with closing(sqlite3.connect(path)) as made:
        return [row[0] for row in made.execute(_MADE_BY_US)]


async def test_both_ways_leave_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is stored and whatever comes, row for row; and each way was gone often."""
    held: list[bool] = []
    writes = statements._holds

    def told(*given: Any) -> bool:
        held.append(writes(*given))
        return held[-1]

    monkeypatch.setattr(statements, "_holds", told)
    schema = schema_in(tmp_path / "t.db")
    one, other = Side(schema, append_alone), Side(schema, append)
    with closing(one.raw), closing(other.raw):
        for seed in range(WORLDS):
            await live(random.Random(seed), one, other, batches=BATCHES)
    ways = held.count(True), held.count(False), WORLDS * BATCHES - len(held)
    print("one statement, taken back, ordinary at once:", ways)
    assert min(ways) > WORLDS / 2
