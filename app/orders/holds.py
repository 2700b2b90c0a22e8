"""Holds: orders that are not to be fulfilled until a person releases them.

    1 know      what was last published of an order, as of when, and by which rules
    2 compare   fold by the rules of now what was known as of then
    3 hold      a `held` record, in the transaction that publishes the fold that sees it
    4 release   a `released` record of a person, after which the order is published as any other

Only new rules make an order fulfillable where rules of before have published it as not fulfillable,
and what was known as of then is fulfillable by those of now. What became known after then and makes
an order fulfillable by itself is news, and not held; nor is an order that was never published.
Rules are the engine's and the merchant's settings: either may change what is known of old.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from app.access.operator_store import Operator
from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.ids import new_id
from app.database.engine import Connection
from app.database.statements import PlainConnection, run
from app.orders.history_store import gather, histories_of
from app.orders.hold_store import Hold, holds_of, some_holds
from app.orders.ledger_store import LastPublished, last_published
from app.orders.policy_version_store import rules_of
from app.orders.record_store import add_records, keep_records
from app.receiving.pace import Pace
from reconcile.instants import EARLIEST, TICK, Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy, policy_text
from reconcile.ledger.records import HoldReason, Record

BY_SERVICE: Final = "service"
"""The author of what the service records by itself."""

BECAUSE: Final[HoldReason] = "rules_changed"
"""What the service holds orders for here."""

NOT_YET_HELD: Final = "rec_to_be_held"
"""The id of the hold that a read supposes where the fold worker has not come to the order yet."""

FIRST_RELEASED, MOST_RELEASED = 100, 1_000
"""Orders of the first act that releases some of many, and of any."""

MOST_NAMED: Final = 20
"""Orders that the trail, or a refusal, names of many; it counts all."""


# --- (1) know and (2) compare --------------------------------------------------------------------


async def as_judged(
    connection: Connection, orders: Iterable[str], *, policy: Policy
) -> dict[str, History]:
    """`judged_histories`, run by itself."""
    return await run(connection, judged_histories, list(orders), policy=policy)


def judged_histories(
    connection: PlainConnection, orders: Sequence[str], *, policy: Policy
) -> dict[str, History]:
    """The histories of the orders as they are to be read: one that the fold worker will hold when
    it comes to it has that hold already, from just after what was last published."""
    histories = histories_of(connection, orders)
    published = _of_other_rules(connection, orders, policy=policy)
    return histories | {
        order: _with(histories[order], _held(order, at=each.as_of + TICK, record_id=NOT_YET_HELD))
        for order, each in published.items()
        if only_by_new_rules(histories[order], each, policy=policy)
        and fulfillable(histories[order], policy=policy)
    }


def _of_other_rules(
    connection: PlainConnection, orders: Iterable[str], *, policy: Policy
) -> dict[str, LastPublished]:
    """What was last published of those of the orders of which rules of before have published that
    they are not fulfillable; mostly none."""
    rules = rules_of(policy_text(policy))
    published = last_published(connection, orders)
    return {
        order: each
        for order, each in published.items()
        if not each.fulfillable and each.rules != rules
    }


def only_by_new_rules(history: History, last: LastPublished, *, policy: Policy) -> bool:
    """Whether what was known when this was said is fulfillable by the rules of now, and no hold of
    that was recorded since, which a person may have released already."""
    held = any(
        each.kind == "held" and each.reason == BECAUSE and each.recorded_at > last.as_of
        for each in history.records
    )
    return (
        not held and fold(history.known_at(last.as_of), policy=policy, as_of=last.as_of).fulfillable
    )


def fulfillable(history: History, *, policy: Policy) -> bool:
    """Whether it is as soon as all of it is known."""
    return fold(history, policy=policy, as_of=history.instant_at(EARLIEST)).fulfillable


# --- (3) hold ------------------------------------------------------------------------------------


def hold_back(
    connection: PlainConnection, context: AppContext, orders: Collection[str]
) -> dict[str, History]:
    """Record holds, in the caller's transaction, of those of these fulfillable orders that only
    new rules make so. Returns the histories of those, with their holds.

    What was last published of them must still stand there.
    """
    if not orders:
        return {}
    published = _of_other_rules(connection, orders, policy=context.policy)
    histories = histories_of(connection, list(published))
    now = context.clock.now()
    held = {
        order: _held(order, at=instant_after_all(history, now), record_id=new_id("rec_", now))
        for order, history in histories.items()
        if only_by_new_rules(history, published[order], policy=context.policy)
    }
    keep_records(connection, [held[order] for order in sorted(held)])
    return {order: _with(histories[order], record) for order, record in held.items()}


async def hold_if_due(context: AppContext, orders: Collection[str]) -> None:
    """Record the holds of those of the orders that the fold worker would hold when it came to
    them; for who needs them before that."""
    judged = await context.database.on_snapshot(
        judged_histories, list(orders), policy=context.policy
    )
    waiting = [order for order, history in judged.items() if _is_supposed(history)]
    if waiting:
        await context.database.writer.commit(hold_back, context, waiting)


def _is_supposed(history: History) -> bool:
    return any(record.record_id == NOT_YET_HELD for record in history.records)


def _held(order: str, *, at: Instant, record_id: str) -> Record:
    return Record(
        record_id=record_id,
        recorded_at=at,
        kind="held",
        order=order,
        at=at,
        reason=BECAUSE,
        author=BY_SERVICE,
    )


def _with(history: History, record: Record) -> History:
    return replace(history, records=history.records | {record})


def instant_after_all(history: History, now: Instant) -> Instant:
    """After all that is recorded of it, even where that was dated by a clock that was ahead: of a
    hold and a release the later counts."""
    return max([now, *(record.recorded_at + TICK for record in history.records)])


# --- (4) release ---------------------------------------------------------------------------------


async def release(
    context: AppContext,
    orders: Collection[str],
    *,
    reason: HoldReason,
    why: str = "",
    by: str | None = None,
) -> int:
    """Release these orders, all of them or none. Returns how many there were.

    Raises NotFoundError where one of them is not held for this reason, UsageError for who may not.
    """
    await hold_if_due(context, orders)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="orders_released")
        found = await holds_of(connection, orders)
        standing = [each for each in found if each.reason == reason]
        missing = set(orders) - {each.order for each in standing}
        if missing:
            others = {each.reason for each in found if each.order in missing}
            raise NotFoundError(_not_held(sorted(missing), reason, others=sorted(others)))
        await _release(connection, context, standing, who=who, why=why)
    context.signals.evidence_arrived.set()
    return len(standing)


async def release_all(
    context: AppContext, *, reason: HoldReason, why: str = "", by: str | None = None
) -> int:
    """Release every order that is held for this reason, some at a time, each part an act of its
    own. Returns how many there were. Raises UsageError for who may not."""
    count, after, pace = 0, "", Pace(first=FIRST_RELEASED, most=MOST_RELEASED)
    while True:
        limit = pace.size
        async with pace.writing(context.database, pieces=limit) as connection:
            who = await permitted(connection, by=by, action="orders_released")
            standing = await some_holds(connection, reason=reason, after=after, limit=limit)
            if standing:
                await _release(connection, context, standing, who=who, why=why)
        context.signals.evidence_arrived.set()
        count += len(standing)
        if len(standing) < limit:
            return count
        after = standing[-1].order


def _not_held(orders: list[str], reason: HoldReason, *, others: list[HoldReason]) -> str:
    names = ", ".join(orders[:MOST_NAMED])
    are = "is not held" if len(orders) == 1 else "are not held"
    apart = "".join(f"say `--held-for {other}` for what is held for that; " for other in others)
    return (
        f"{names} {are} ({reason}), so nothing was released; {apart}`tallyhook orders list "
        "--finding held_back` shows what is held, and why"
    )


async def _release(
    connection: Connection, context: AppContext, holds: list[Hold], *, who: Operator, why: str
) -> None:
    now = context.clock.now()
    histories = await gather(connection, [each.order for each in holds])
    await add_records(
        connection,
        [_released(each, histories[each.order], now=now, author=author_of(who)) for each in holds],
    )
    names = sorted(each.order for each in holds)
    await note_in_trail(
        connection,
        who,
        action="orders_released",
        subject=", ".join(names[:MOST_NAMED]),
        at=now,
        reason=why,
        facts={"orders": len(names), "held_for": holds[0].reason},
    )


def _released(hold: Hold, history: History, *, now: Instant, author: str) -> Record:
    at = instant_after_all(history, now)
    return Record(
        record_id=new_id("rec_", now),
        recorded_at=at,
        kind="released",
        order=hold.order,
        at=at,
        reason=hold.reason,
        author=author,
    )


def author_of(who: Operator) -> str:
    """Who stated it, as a record has it: `operator:ada`, or `account:root` where nobody is one."""
    return f"{'account' if who.role == 'account' else 'operator'}:{who.name}"
