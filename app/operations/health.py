"""The state of the store in a few numbers; also the proof that it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.errors import StorePoisoned, StoreUnavailable
from app.operations.desk import Desk
from app.store.ledgers import count_due, outcome_counts
from app.store.outbox import notification_counts
from app.store.safety import unsafe_standbys
from app.store.unsealed import count_unsealed, log_size
from reconcile.ledger import OUTCOMES


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """Orders whose fold is due, arrivals not yet committed, and orders by outcome (all of them).

    notifications  how many wait for the shop, and how many were given up
    sealed   how many leaves the log has, and how many rows wait for one
    free     bytes that are free on the database's disk; None where a server looks after it
    refuses  why nothing can be written now, one sentence; None when it can
    """

    due: int
    queue: int
    outcomes: Mapping[str, int]
    free: int | None
    refuses: str | None
    notifications: tuple[int, int]
    sealed: tuple[int, int]


async def unsafe(desk: Desk) -> list[str]:
    """What would be lost if a standby of the database took over, one sentence each."""
    async with desk.store.reading() as connection:
        return await unsafe_standbys(connection)


async def store_state(desk: Desk) -> StoreState:
    """Raises StoreUnavailable or StorePoisoned when the store cannot even be read."""
    store = desk.store
    if store.writer.poison is not None:
        raise StorePoisoned(store.writer.poison)
    refuses = None
    try:
        await store.writer.check()
    except StoreUnavailable as error:
        refuses = str(error)
    async with store.reading() as connection:
        due = await count_due(connection, now=desk.clock.now())
        counts = await outcome_counts(connection)
        notifications = await notification_counts(connection)
        sealed = await log_size(connection), await count_unsealed(connection)
    return StoreState(
        due=due,
        queue=store.journal.depth,
        outcomes=dict.fromkeys(OUTCOMES, 0) | counts,
        free=store.writer.space.free_bytes(),
        refuses=refuses,
        notifications=notifications,
        sealed=sealed,
    )
