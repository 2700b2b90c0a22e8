"""Folds due orders and publishes what changed; rebuilds all ledgers from what is stored.

One mechanism wakes an order for new evidence and for the passing of a deadline alike: its due
mark. Publishing compares generations, so evidence that arrives during a fold is never missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from app.operations.desk import Desk
from app.operations.folding.holds import hold_back
from app.operations.folding.take_up_policy import tell_of_several
from app.store.arrivals.inbox import backlog
from app.store.database.engine import Connection
from app.store.folding.due_marks import (
    Due,
    call_up,
    claim_orders,
    due_orders,
    marks_of,
    marks_without_reason,
    put_marks_right,
    unchanged,
)
from app.store.folding.folded_by import forget_policy, note_folded, note_policy, rules_of
from app.store.folding.histories import SideStream, contested_with, gather, scan, side_stream
from app.store.folding.ledgers import (
    ALL_POSITIONS,
    Publication,
    drop_ledgers_without_history,
    drop_takings,
    latest_positions,
    new_publication,
    position_in,
    publish,
)
from app.store.folding.outbox import LEASE, call_up_notifications
from reconcile.fold import fold
from reconcile.history import History
from reconcile.instants import MINUTE, SECOND, Instant
from reconcile.ledger import Ledger
from reconcile.policy import Policy, policy_text
from reconcile.revise import Position, position_of, revise

log = structlog.get_logger()

REBUILT_AT_ONCE: Final = 4_000
"""Ledgers written together: as many as one statement takes, for each transaction waits for the
disk; and always as many, so that the database has the statement ready."""


PUT_ASIDE: Final = 10 * MINUTE
"""When an order that could not be folded is tried again; also when new evidence arrives."""


CLAIM: Final = 30 * SECOND
"""How long other workers pass over an order that one has taken: many times what a round takes. If
that one dies, another takes the order then."""


CALLED_AT_ONCE: Final = 1_000
"""Orders called up in one transaction: a delivery never waits for more."""


async def refold_due(desk: Desk, *, limit: int) -> int:
    """Fold up to `limit` due orders and publish. Returns how many were due.

    Orders that share evidence with a due one are folded with it: it may be evidence of theirs.
    Whoever else folded an order in the meantime has published it; then this fold is let go.
    """
    now = await _publishable(desk)
    due = await _taken(desk, now=now, limit=limit)
    if not due:
        return 0
    async with desk.store.reading() as connection:
        sharing = await contested_with(connection, [mark.order for mark in due])
        marks = due + await marks_of(connection, sharing.difference(mark.order for mark in due))
        histories = await gather(connection, [mark.order for mark in marks])
    ledgers = {order: _folded(desk, history, now=now) for order, history in histories.items()}
    async with desk.store.writing() as connection:
        marks = await unchanged(connection, marks)
        before = await latest_positions(connection, [mark.order for mark in marks])
        current = [ledger for m in marks if (ledger := ledgers.get(m.order)) is not None]
        rules = rules_of(policy_text(desk.policy))
        publications = [decided(each, before.get(each.order), rules=rules) for each in current]
        await publish(
            connection,
            await _with_holds(connection, desk, publications),
            due=marks,
            put_aside_until=now + PUT_ASIDE,
            notify=now if desk.store.notifies else None,
        )
        several = await note_folded(connection, policy_text(desk.policy))
    if several:
        tell_of_several()
    return len(due)


async def _publishable(desk: Desk) -> Instant:
    """The latest instant as of which anything may be published: now, or just before the arrival of
    the oldest delivery that was accepted and is not read yet. It might say otherwise."""
    now = desk.clock.now()
    async with desk.store.reading() as connection:
        oldest = (await backlog(connection)).oldest
    return now if oldest is None else min(now, oldest - 1)


async def call_up_early(desk: Desk) -> int:
    """Set due what waits for an instant that only a clock that was ahead can have given.

    An order's mark is the instant at which something was said of it, or its ledger's next decision.
    Where the clock has been set back the first may lie ahead: money that is here would be told as
    late as that. So it is with what the shop is to be told. Returns how many orders there were.
    """
    now = desk.clock.now()
    # Where several fold, a mark may be a claim; where one does, an order that was put aside is
    # tried again a little early.
    beyond = now + CLAIM if desk.store.shared else now
    found = 0
    while True:
        async with desk.store.reading() as connection:
            orders = await marks_without_reason(connection, beyond=beyond, limit=CALLED_AT_ONCE)
        if not orders:
            break
        async with desk.store.writing() as connection:
            await call_up(connection, orders, now=now, beyond=beyond)
        found += len(orders)
    if desk.store.notifies:
        async with desk.store.writing() as connection:
            await call_up_notifications(connection, now=now, beyond=now + LEASE)
    return found


async def _taken(desk: Desk, *, now: Instant, limit: int) -> list[Due]:
    """Due orders to fold. Where others fold, too, they are first claimed."""
    if not desk.store.shared:
        async with desk.store.reading() as connection:
            return await due_orders(connection, now=now, limit=limit)
    async with desk.store.writing() as connection:
        return await claim_orders(connection, now=now, limit=limit, until=now + CLAIM)


def _folded(desk: Desk, history: History, *, now: Instant) -> Ledger | None:
    return fold_or_log(history, policy=desk.policy, as_of=history.instant_at(now))


def fold_or_log(history: History, *, policy: Policy, as_of: Instant) -> Ledger | None:
    """The ledger. An order that cannot be folded is a fault of ours: it is logged and put aside,
    so that it does not stop the others."""
    try:
        return fold(history, policy=policy, as_of=as_of)
    except Exception as error:
        log.error("an order cannot be folded", order=history.order, exc_info=error)
        return None


def decided(ledger: Ledger, before: Position | None, *, rules: str) -> Publication:
    """What is to be published of a ledger folded by these rules, when `before` was published
    last."""
    position = position_of(ledger)
    codes = "|".join(dict.fromkeys([finding.code for finding in ledger.findings]))
    return new_publication(
        order=ledger.order,
        as_of=ledger.as_of,
        position=position,
        findings=f"|{codes}|" if codes else "",
        next_decision_at=ledger.next_decision_at,
        rules=rules,
        revision=revise(before, ledger, after=position),
    )


async def _with_holds(
    connection: Connection, desk: Desk, publications: Sequence[Publication]
) -> list[Publication]:
    """The publications, where only new rules make an order fulfillable with its hold, which is
    recorded in this transaction: so nobody is ever told that it may be fulfilled."""
    turning = {each.order: each for each in publications if _turns_fulfillable(each)}
    held = await hold_back(connection, desk, turning)
    anew = {order: _folded_held(desk, history, turning[order]) for order, history in held.items()}
    found = [anew.get(each.order, each) for each in publications]
    return [each for each in found if each is not None]


def _folded_held(desk: Desk, history: History, instead_of: Publication) -> Publication | None:
    ledger = _folded(desk, history, now=desk.clock.now())
    if ledger is None or instead_of.revision is None:
        return None
    return decided(ledger, instead_of.revision.before, rules=instead_of.rules)


def _turns_fulfillable(publication: Publication) -> bool:
    """Whether it says that an order may be fulfilled of which it was published that it may not."""
    before = None if publication.revision is None else publication.revision.before
    return publication.position.fulfillable and before is not None and not before.fulfillable


async def refold_all(desk: Desk, *, progress: Callable[[int], None]) -> int:
    """Rebuild every ledger from the stored history, in memory that does not grow with it.

    `progress` is told how many orders were folded since it was last called. A revision is
    published where the rebuilt ledger differs from what was published before.
    """
    now, rules = desk.clock.now(), rules_of(policy_text(desk.policy))
    folded = 0
    async with desk.store.writing() as connection:
        # Ledgers stay until they are replaced: they say by which rules each order was folded.
        await drop_takings(connection)
        # Broken off, it leaves orders of both policies; the next start sets all of them due.
        await forget_policy(connection)
    async with desk.store.reading() as connection:
        published = await side_stream(connection, ALL_POSITIONS)
        waiting: list[Publication] = []
        aside: list[str] = []
        async for histories in scan(connection):
            for history in histories:
                ledger = _folded(desk, history, now=now)
                if ledger is None:
                    aside.append(history.order)
                    continue
                before = await _latest(published, history.order)
                waiting.append(decided(ledger, before, rules=rules))
                if len(waiting) == REBUILT_AT_ONCE:
                    await _publish_rebuilt(desk, waiting)
                    folded += len(waiting)
                    progress(len(waiting))
                    waiting = []
        await _publish_rebuilt(desk, waiting)
        await _put_aside(desk, aside, until=now + PUT_ASIDE)
        progress(len(waiting))
    async with desk.store.writing() as connection:
        await drop_ledgers_without_history(connection)
        await note_policy(connection, policy_text(desk.policy))
    return folded + len(waiting)


async def _latest(published: SideStream, order: str) -> Position | None:
    """What was last published of an order; the stream is at it, or beyond."""
    if published.upcoming is None or published.upcoming > order:
        return None
    rows = await published.take(order)
    return position_in(rows[-1]) if rows else None


async def _publish_rebuilt(desk: Desk, publications: Sequence[Publication]) -> None:
    if publications:
        async with desk.store.writing() as connection:
            notify = desk.clock.now() if desk.store.notifies else None
            publications = await _with_holds(connection, desk, publications)
            await publish(connection, publications, notify=notify)
            first, last = publications[0].order, publications[-1].order
            await put_marks_right(connection, first=first, last=last)


async def _put_aside(desk: Desk, orders: Sequence[str], *, until: Instant) -> None:
    """Let orders that could not be folded come up again."""
    if orders:
        async with desk.store.writing() as connection:
            marks = await marks_of(connection, orders, to_write=True)
            await publish(connection, [], due=marks, put_aside_until=until)


async def refold_until_quiet(desk: Desk, *, limit: int, progress: Callable[[int], None]) -> int:
    """Fold due orders until none is due. Returns how many folds that took."""
    total = 0
    while folded := await refold_due(desk, limit=limit):
        total += folded
        progress(folded)
    return total
