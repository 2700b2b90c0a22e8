"""Holds: orders that must not be fulfilled until a person releases them.

    1 know      when an order was last published, and by which rules
    2 compare   the published result with the present rules' result for the evidence of that time
    3 hold      the order by a `held` record, in the transaction that publishes its next ledger
    4 release   the order by a person's `released` record

An order is held if only new rules, not later evidence, would make it fulfillable.
"""

from collections.abc import Collection, Iterable, Sequence
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
from app.orders.record_store import add_records, after_all, hold_record, keep_records
from app.orders.service_holds import SUPPOSED, record_holds, with_record, with_supposed
from app.receiving.pace import Pace
from reconcile.instants import EARLIEST, TICK
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy, policy_text
from reconcile.ledger.records import HoldReason

BECAUSE: Final[HoldReason] = "rules_changed"

NOT_YET_HELD: Final = "rec_to_be_held"
"""Id of a hold that readers already take into account, although the worker has not recorded the
hold yet."""

FIRST_RELEASED, MOST_RELEASED = 100, 1_000
"""Maximum number of orders that are released in the first transaction, and in each later
transaction."""

MOST_NAMED: Final = 20
"""Maximum number of orders that an audit entry or a refusal names. All orders are counted."""


# --- (1) know and (2) compare --------------------------------------------------------------------


async def as_judged(
    connection: Connection, orders: Iterable[str], *, policy: Policy
) -> dict[str, History]:
    """Return the history of each of these orders, with the holds that the worker will record
    next."""
    return await run(connection, judged_histories, list(orders), policy=policy)


def judged_histories(
    connection: PlainConnection, orders: Sequence[str], *, policy: Policy
) -> dict[str, History]:
    """Return the history of each of these orders, with the holds that the worker will record.

    A hold by new rules is dated just after the last publication.
    """
    histories = with_supposed(connection, histories_of(connection, orders), policy=policy)
    published = _of_other_rules(connection, orders, policy=policy)
    return histories | {
        order: with_record(
            histories[order],
            hold_record(
                order, "held", at=each.as_of + TICK, record_id=NOT_YET_HELD, reason=BECAUSE
            ),
        )
        for order, each in published.items()
        if only_by_new_rules(histories[order], each, policy=policy)
        and fulfillable(histories[order], policy=policy)
    }


def _of_other_rules(
    connection: PlainConnection, orders: Iterable[str], *, policy: Policy
) -> dict[str, LastPublished]:
    rules = rules_of(policy_text(policy))
    published = last_published(connection, orders)
    return {
        order: each
        for order, each in published.items()
        if not each.fulfillable and each.rules != rules
    }


def only_by_new_rules(history: History, last: LastPublished, *, policy: Policy) -> bool:
    """Return whether an order became fulfillable only because the rules changed.

    The evidence known at its last publication is judged by the new rules. False if such a hold was
    recorded since then, because a person may have released it.
    """
    held = any(
        each.kind == "held" and each.reason == BECAUSE and each.recorded_at > last.as_of
        for each in history.records
    )
    return (
        not held and fold(history.known_at(last.as_of), policy=policy, as_of=last.as_of).fulfillable
    )


def fulfillable(history: History, *, policy: Policy) -> bool:
    """Return whether all known evidence allows the order to be fulfilled."""
    return fold(history, policy=policy, as_of=history.instant_at(EARLIEST)).fulfillable


# --- (3) hold ------------------------------------------------------------------------------------


def hold_back(
    connection: PlainConnection, context: AppContext, orders: Collection[str]
) -> dict[str, History]:
    """Record holds of orders that only new rules make fulfillable, in the caller's transaction.

    Return their histories. Call this before publishing.
    """
    if not orders:
        return {}
    published = _of_other_rules(connection, orders, policy=context.policy)
    if not published:
        return {}
    histories = histories_of(connection, list(published))
    now = context.clock.now()
    held = {
        order: hold_record(
            order,
            "held",
            at=after_all(history.records, now=now),
            record_id=new_id("rec_", now),
            reason=BECAUSE,
        )
        for order, history in histories.items()
        if only_by_new_rules(history, published[order], policy=context.policy)
    }
    keep_records(connection, [held[order] for order in sorted(held)])
    return {order: with_record(histories[order], record) for order, record in held.items()}


async def hold_if_due(context: AppContext, orders: Collection[str]) -> None:
    """Record at once the holds of these orders that the worker would record in its next round."""
    judged = await context.database.on_snapshot(
        judged_histories, list(orders), policy=context.policy
    )
    supposed = {order: {r.record_id for r in history.records} for order, history in judged.items()}
    waiting = [order for order, ids in supposed.items() if NOT_YET_HELD in ids]
    if waiting:
        await context.database.writer.commit(hold_back, context, waiting)
    others = [order for order, ids in supposed.items() if SUPPOSED in ids]
    if others:
        await context.database.writer.commit(_record_holds_of, context, others)


def _record_holds_of(
    connection: PlainConnection, context: AppContext, orders: Sequence[str]
) -> None:
    record_holds(connection, context, histories_of(connection, orders))


# --- (4) release ---------------------------------------------------------------------------------


async def release(
    context: AppContext,
    orders: Collection[str],
    *,
    reason: HoldReason,
    why: str = "",
    by: str | None = None,
) -> int:
    """Release these orders from their holds for a reason, all or none. Return their number.

    reason  the reason of the holds
    why     the person's own words

    Raises NotFoundError if an order is not held for this, and UsageError if permission is missing.
    """
    await hold_if_due(context, orders)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="orders_released")
        found = await holds_of(connection, orders)
        standing = [each for each in found if each.reason == reason]
        missing = set(orders) - {each.order for each in standing}
        if missing:
            names = ", ".join(sorted(missing)[:MOST_NAMED])
            are = "is not held" if len(missing) == 1 else "are not held"
            others = sorted({each.reason for each in found if each.order in missing})
            apart = "".join(
                f"use `--held-for {other}` for orders held for that reason; " for other in others
            )
            raise NotFoundError(
                f"{names} {are} ({reason}), so nothing was released; {apart}`tallyhook orders "
                "list --finding held_back` shows the held orders and why they are held"
            )
        await _release(connection, context, standing, who=who, why=why)
    context.signals.evidence_arrived.set()
    return len(standing)


async def release_all(
    context: AppContext, *, reason: HoldReason, why: str = "", by: str | None = None
) -> int:
    """Release all orders that are held for this reason. Return their number.

    reason  the reason of the holds
    why     the person's own words

    Raises UsageError if permission is missing.
    """
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


async def _release(
    connection: Connection, context: AppContext, holds: list[Hold], *, who: Operator, why: str
) -> None:
    now, names = context.clock.now(), sorted(each.order for each in holds)
    histories = await gather(connection, names)
    records = [
        hold_record(
            each.order,
            "released",
            at=after_all(histories[each.order].records, now=now),
            record_id=new_id("rec_", now),
            reason=each.reason,
            author=author_of(who),
        )
        for each in holds
    ]
    await add_records(connection, records)
    await note_in_trail(
        connection,
        who,
        action="orders_released",
        subject=", ".join(names[:MOST_NAMED]),
        at=now,
        reason=why,
        facts={"orders": len(names), "held_for": holds[0].reason},
    )


def author_of(who: Operator) -> str:
    """Return the author to store in a record, such as `operator:ada`. Without operators, it is the
    system account, such as `account:root`."""
    return f"{'account' if who.role == 'account' else 'operator'}:{who.name}"
