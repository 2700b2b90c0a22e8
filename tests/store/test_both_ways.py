"""On SQLite a batch leaves the same whether it is one statement or goes the ordinary way."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.store import arriving, statements
from app.store.intake import Arrival, Whole, append, append_alone
from app.store.links import LinkMemory
from reconcile.money import Money
from tests.reconcile.build import seconds
from tests.store.builders import arrival, said
from tests.store.made import put_new

WORLDS, BATCHES = 200, 6

FILLED = {
    "deliveries": "*",
    "envelopes": "*",
    "events": "*",
    "confirmations": "*",
    "links": "*",
    "contested": "*",
    "order_due": "order_key, due_at",
    "phones": "digest, kind, thing",
    "unsealed": "*",
}
"""What an arrival can put a row into, and what of it must be the same. An order's generation only
has to rise. A number that comes twice in a batch is noted at one of two moments."""


_MADE_BY_US = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY rowid"


class Side:
    """A database in memory to which batches come in one of the two ways."""

    def __init__(self, schema: list[str], way: Any) -> None:
        self._way = way
        self._memory = LinkMemory()
        self.raw = sqlite3.connect(
            ":memory:", isolation_level=None, factory=statements.ScriptConnection
        )
        for statement in (*schema, *arriving.PREPARING):
            self.raw.execute(statement)

    def keep(self, batch: Sequence[Arrival]) -> list[str]:
        """The verdicts of one batch."""
        script = self._way("sqlite", batch, self._memory)
        crossing = statements._Crossing(script, transaction=True)
        self.raw.execute("script", crossing).close()
        assert not self.raw.in_transaction
        self._memory.add(crossing.result.linking.links)
        return list(crossing.result.verdicts)

    def start(self) -> None:
        """Like another process: nothing is remembered."""
        self._memory = LinkMemory()

    def clear(self) -> None:
        """Another world."""
        self.start()
        for table in FILLED:
            self.raw.execute(f"DELETE FROM {table}")

    def generations(self) -> dict[str, int]:
        """How often something was said of each order."""
        return dict(self.raw.execute("SELECT order_key, generation FROM order_due"))

    def holds(self) -> dict[str, list[tuple[Any, ...]]]:
        """What must be the same."""
        return {
            table: sorted(self.raw.execute(f"SELECT {columns} FROM {table}"), key=repr)
            for table, columns in FILLED.items()
        }


def drawn_arrival(chance: random.Random, number: int) -> Arrival:
    """Mostly a new event that touches no other; else one that may have to do with any other, was
    heard before, or is out of the way."""
    fields: dict[str, Any] = {"order": f"O{number % 9}", "payment": f"p{number % 9}"}
    if chance.random() < 0.3:
        fields = {
            "order": chance.choice((*"ABCABC", f"O{number % 9}", None)),
            "payment": chance.choice((None, "p", "q", f"p{number % 9}")),
            "session": chance.choice((None, "s", "p", f"s{number}")),
            "source": chance.choice(("shop", "shop", "shop", "other")),
        }
    if chance.random() < 0.5:
        fields |= {"money": Money(minor=number, currency="KES"), "reason": "r", "movement": "m"}
    drawn = chance.random()
    if drawn < 0.01:
        fields["standing"] = "unconfirmed"
    name = f"e{chance.randrange(6)}" if chance.random() < 0.1 else f"new {number}"
    event = said(name, chance.choice(("pending", "succeeded")), **fields)
    return arrival(
        None if drawn > 0.99 else event,
        at=chance.randrange(90),
        whole=Whole(digest="whole", body=b"[1, 2]") if 0.01 < drawn < 0.02 else None,
        customer=chance.choice((None, b"one", b"two")),
    )


def fold(chance: random.Random, *sides: Side) -> None:
    """What folds may have done meanwhile: a due mark is cleared, or stands anywhere."""
    order = chance.choice(("A", "B", "C", *(f"O{n}" for n in range(9))))
    due = chance.choice((None, None, seconds(-1), seconds(45), seconds(1_000)))
    for side in sides:
        side.raw.execute("UPDATE order_due SET due_at=? WHERE order_key=?", (due, order))


def live(chance: random.Random, one: Side, other: Side) -> None:
    """One world: after each batch both sides hold the same."""
    for number in range(BATCHES):
        if chance.random() < 0.6:
            one.start(), other.start()
        for _ in range(3):
            fold(chance, one, other)
        size = chance.choice((1, 1, 2, 3, 5, 18))
        batch = [drawn_arrival(chance, number * 100 + place) for place in range(size)]
        before = one.generations(), other.generations()
        assert one.keep(batch) == other.keep(batch)
        assert one.holds() == other.holds()
        assert risen(before[0], one.generations()) == risen(before[1], other.generations())


def risen(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Orders of which something more was said."""
    assert all(after[order] >= count for order, count in before.items())
    return {order for order, count in after.items() if count != before.get(order)}


def schema_in(path: Path) -> list[str]:
    """What makes the tables of a new database, and their indexes and triggers."""
    put_new(path)
    with closing(sqlite3.connect(path)) as made:
        return [row[0] for row in made.execute(_MADE_BY_US)]


def test_both_ways_leave_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is stored and whatever comes, row for row; and each way was gone often."""
    held: list[bool] = []
    holds = statements._holds

    def told(*given: Any) -> bool:
        held.append(holds(*given))
        return held[-1]

    monkeypatch.setattr(statements, "_holds", told)
    schema = schema_in(tmp_path / "t.db")
    one, other = Side(schema, append_alone), Side(schema, append)
    with closing(one.raw), closing(other.raw):
        for seed in range(WORLDS):
            one.clear(), other.clear()
            live(random.Random(seed), one, other)
    ways = held.count(True), held.count(False), WORLDS * BATCHES - len(held)
    print("one statement, taken back, ordinary at once:", ways)
    assert min(ways) > WORLDS / 2
