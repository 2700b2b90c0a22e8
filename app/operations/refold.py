"""Folds due orders and publishes what changed; rebuilds all ledgers from what is stored.

One mechanism wakes an order for new evidence and for the passing of a deadline alike: its due
mark. Publishing compares generations, so evidence that arrives during a fold is never missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from app.operations.desk import Desk
from app.store.histories import contested_with, gather, scan, side_stream
from app.store.ledgers import (
    LATEST_POSITIONS,
    Due,
    Publication,
    claim_orders,
    drop_caches,
    due_orders,
    latest_positions,
    marks_of,
    position_in,
    publish,
    unchanged,
)
from reconcile.fold import fold
from reconcile.history import History
from reconcile.instants import MINUTE, SECOND, Instant
from reconcile.ledger import Ledger
from reconcile.policy import Policy
from reconcile.revise import Position, position_of, revise

log = structlog.get_logger()

REBUILT_AT_ONCE: Final = 500
"""Ledgers written together: always as many, so that the database has the statement ready."""


PUT_ASIDE: Final = 10 * MINUTE
"""When an order that could not be folded is tried again; also when new evidence arrives."""


CLAIM: Final = 30 * SECOND
"""How long other workers pass over an order that one has taken: many times what a round takes. If
that one dies, another takes the order then."""


async def refold_due(desk: Desk, *, limit: int) -> int:
    """Fold up to `limit` due orders and publish. Returns how many were due.

    Orders that share evidence with a due one are folded with it: it may be evidence of theirs.
    Whoever else folded an order in the meantime has published it; then this fold is let go.
    """
    now = desk.clock.now()
    due = await _taken(desk, now=now, limit=limit)
    if not due:
        return 0
    async with desk.store.reading() as connection:
        sharing = await contested_with(connection, [mark.order for mark in due])
        marks = due + await marks_of(connection, sharing.difference(mark.order for mark in due))
        histories = await gather(connection, [mark.order for mark in marks])
    ledgers = _folded(histories, policy=desk.policy, now=now)
    async with desk.store.writing() as connection:
        marks = await unchanged(connection, marks)
        current = {m.order: ledgers[m.order] for m in marks if m.order in ledgers}
        before = await latest_positions(connection, current)
        await publish(
            connection, _decided(current, before), due=marks, put_aside_until=now + PUT_ASIDE
        )
    return len(due)


async def _taken(desk: Desk, *, now: Instant, limit: int) -> list[Due]:
    """Due orders to fold. Where others fold, too, they are first claimed."""
    if not desk.store.shared:
        async with desk.store.reading() as connection:
            return await due_orders(connection, now=now, limit=limit)
    async with desk.store.writing() as connection:
        return await claim_orders(connection, now=now, limit=limit, until=now + CLAIM)


def _folded(histories: Mapping[str, History], *, policy: Policy, now: Instant) -> dict[str, Ledger]:
    """The ledgers of the orders. One that cannot be folded is a fault of ours: it is logged and
    put aside, so that it does not stop the others."""
    ledgers = {}
    for order, history in histories.items():
        try:
            ledgers[order] = fold(history, policy=policy, as_of=history.instant_at(now))
        except Exception as error:
            log.error("an order cannot be folded", order=order, exc_info=error)
    return ledgers


def _decided(ledgers: dict[str, Ledger], before: dict[str, Position]) -> Publication:
    """The ledgers, and a revision for each that says something new."""
    positions = {order: position_of(ledger) for order, ledger in ledgers.items()}
    revisions = []
    for order, ledger in ledgers.items():
        revision = revise(before.get(order), ledger, after=positions[order])
        if revision is not None:
            revisions.append(revision)
    return Publication(ledgers=ledgers, positions=positions, revisions=revisions)


async def refold_all(desk: Desk, *, progress: Callable[[int], None]) -> int:
    """Rebuild every ledger from the stored history, in memory that does not grow with it.

    `progress` is told how many orders were folded since it was last called. A revision is
    published where the rebuilt ledger differs from what was published before.
    """
    now = desk.clock.now()
    folded = 0
    async with desk.store.writing() as connection:
        await drop_caches(connection)
    async with desk.store.reading() as connection:
        published = await side_stream(connection, LATEST_POSITIONS.format("WHERE"))
        before: dict[str, Position] = {}
        ledgers: dict[str, Ledger] = {}
        aside: list[str] = []
        async for histories in scan(connection):
            for history in histories:
                order = history.order
                ledgers |= _folded({order: history}, policy=desk.policy, now=now)
                if order not in ledgers:
                    aside.append(order)
                if published.upcoming is not None and published.upcoming <= order:
                    for row in await published.take(order):
                        before[order] = position_in(row)
                if len(ledgers) == REBUILT_AT_ONCE:
                    await _publish_rebuilt(desk, ledgers, before)
                    folded += len(ledgers)
                    progress(len(ledgers))
                    before, ledgers = {}, {}
        await _publish_rebuilt(desk, ledgers, before)
        await _put_aside(desk, aside, until=now + PUT_ASIDE)
        progress(len(ledgers))
    return folded + len(ledgers)


async def _publish_rebuilt(
    desk: Desk, ledgers: dict[str, Ledger], before: dict[str, Position]
) -> None:
    if ledgers:
        async with desk.store.writing() as connection:
            marks = await marks_of(connection, ledgers, to_write=True)
            due = _misplaced(marks, ledgers)
            await publish(connection, _decided(ledgers, before), due=due)


def _misplaced(marks: Sequence[Due], ledgers: dict[str, Ledger]) -> list[Due]:
    """Marks that are missing, or do not stand at their order's next decision."""
    standing = {mark.order: mark for mark in marks}
    return [
        standing.get(order) or Due(order=order, generation=0)
        for order, ledger in ledgers.items()
        if order not in standing or standing[order].due_at != ledger.next_decision_at
    ]


async def _put_aside(desk: Desk, orders: Sequence[str], *, until: Instant) -> None:
    """Let orders that could not be folded come up again."""
    if orders:
        async with desk.store.writing() as connection:
            marks = await marks_of(connection, orders, to_write=True)
            await publish(connection, _decided({}, {}), due=marks, put_aside_until=until)


async def refold_until_quiet(desk: Desk, *, limit: int, progress: Callable[[int], None]) -> int:
    """Fold due orders until none is due. Returns how many folds that took."""
    total = 0
    while folded := await refold_due(desk, limit=limit):
        total += folded
        progress(folded)
    return total
