"""The state of the store in a few numbers; also the proof that it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.errors import StorePoisoned
from app.operations.desk import Desk
from app.store.ledgers import count_due, outcome_counts
from reconcile.ledger import OUTCOMES


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """Orders whose fold is due, arrivals not yet committed, and orders by outcome (all of them)."""

    due: int
    queue: int
    outcomes: Mapping[str, int]


async def store_state(desk: Desk) -> StoreState:
    """Raises StoreUnavailable or StorePoisoned when the store does not work."""
    store = desk.store
    if store.writer.poison is not None:
        raise StorePoisoned(store.writer.poison)
    await store.writer.check()
    async with store.reading() as connection:
        due = await count_due(connection, now=desk.clock.now())
        counts = await outcome_counts(connection)
    return StoreState(
        due=due, queue=store.journal.depth, outcomes=dict.fromkeys(OUTCOMES, 0) | counts
    )
