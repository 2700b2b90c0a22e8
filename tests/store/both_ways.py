"""Small worlds in which a batch leaves the same whether it is one statement or goes the ordinary
way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from app.store.arrivals.intake import Arrival, Whole
from reconcile.money import Money
from tests.reconcile.build import seconds
from tests.store.builders import arrival, said

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


class Side(Protocol):
    """A database to which batches come in one of the two ways."""

    async def keep(self, batch: Sequence[Arrival]) -> list[str]:
        """The verdicts of one batch."""

    def start(self) -> None:
        """Like another process: nothing is remembered."""

    async def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement, in a transaction of its own; values where it has `:a`, `:b`."""


def drawn_arrival(chance: random.Random, number: int) -> Arrival:
    """Mostly a new event that touches no other; else one that may have to do with any other, was
    heard before, or is out of the way."""
    fields: dict[str, Any] = {"order": f"O{number % 4}", "payment": f"p{number % 4}"}
    if chance.random() < 0.3:
        fields = {
            "order": chance.choice((*"ABCABC", f"O{number % 4}", None)),
            "payment": chance.choice((None, "p", "q", f"p{number % 4}")),
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


async def live(chance: random.Random, one: Side, other: Side, *, batches: int) -> None:
    """One world: after each batch both sides hold the same."""
    for side in (one, other):
        side.start()
        for table in FILLED:
            await side.run(f"DELETE FROM {table}")
    for number in range(batches):
        if chance.random() < 0.6:
            one.start(), other.start()
        for _ in range(3):
            await fold(chance, one, other)
        size = chance.choice((1, 1, 2, 3, 5, 18))
        batch = [drawn_arrival(chance, number * 100 + place) for place in range(size)]
        before = await generations(one), await generations(other)
        assert await one.keep(batch) == await other.keep(batch)
        assert await holds(one) == await holds(other)
        after = await generations(one), await generations(other)
        assert risen(before[0], after[0]) == risen(before[1], after[1])


async def fold(chance: random.Random, *sides: Side) -> None:
    """What folds may have done meanwhile: a due mark is cleared, or stands anywhere."""
    order = chance.choice(("A", "B", "C", *(f"O{n}" for n in range(4))))
    due = chance.choice((None, None, seconds(-1), seconds(45), seconds(1_000)))
    for side in sides:
        await side.run("UPDATE order_due SET due_at=:a WHERE order_key=:b", due, order)


async def generations(side: Side) -> dict[str, int]:
    """How often something was said of each order."""
    return dict(await side.run("SELECT order_key, generation FROM order_due"))


def risen(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Orders of which something more was said."""
    assert all(after[order] >= count for order, count in before.items())
    return {order for order, count in after.items() if count != before.get(order)}


async def holds(side: Side) -> dict[str, list[tuple[Any, ...]]]:
    """What must be the same."""
    return {
        table: sorted(await side.run(f"SELECT {columns} FROM {table}"), key=repr)
        for table, columns in FILLED.items()
    }
