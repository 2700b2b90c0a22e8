"""Accept findings and release holds, so that an order no longer needs a person.

An acceptance changes neither the finding nor the outcome, and counts until new evidence of the
finding arrives. `reconcile.ledger.attention` decides which findings need a person.
"""

from collections.abc import Iterable

from app.access.operator_store import Operator
from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.ids import new_id
from app.database.engine import Connection
from app.orders.customers import checked_reason, phones_of
from app.orders.history_store import gather
from app.orders.holds import author_of, release
from app.orders.read_orders import explain_order
from app.orders.record_store import add_records, after_all
from reconcile.ledger.attention import ACCEPTABLE, left_to_settle
from reconcile.ledger.fold import fold
from reconcile.ledger.records import HOLD_REASONS, Record
from reconcile.ledger.vocabulary import FindingCode


async def accept_finding(
    context: AppContext, order: str, *, code: str, reason: str, by: str | None = None
) -> None:
    """Record that a person accepts one finding of an order.

    code  code of the finding

    Raises UsageError for a finding that cannot be accepted, an unusable reason, or a missing
    permission, and NotFoundError for an unknown order.
    """
    accepted = next((each for each in ACCEPTABLE if each == code), None)
    if accepted is None:
        raise UsageError(f"{code!r} cannot be accepted; name one of: {', '.join(ACCEPTABLE)}")
    left = left_to_settle(await explain_order(context, order))
    if accepted not in left:
        what = f"it has {', '.join(left)}" if left else "it has nothing left to settle"
        raise UsageError(f"{code} of {order} cannot be accepted: {what}")
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="finding_accepted")
        phones = await phones_of(connection, order, sources=context.sources)
        why = checked_reason(context, reason, phones=phones)
        await record_acceptance(connection, context, order, codes=[accepted], who=who)
        await note_in_trail(
            connection,
            who,
            action="finding_accepted",
            subject=order,
            at=context.clock.now(),
            reason=why,
            facts={"finding": accepted},
        )
    context.signals.evidence_arrived.set()


async def release_hold(
    context: AppContext, order: str, *, held_for: str | None, reason: str, by: str
) -> None:
    """Release an order from a hold.

    held_for  the reason of the hold

    Raises UsageError for an unknown hold reason, an unusable reason or a missing permission, and
    NotFoundError for an unknown order, or one not held for this.
    """
    held = next((each for each in HOLD_REASONS if each == held_for), None)
    if held is None:
        raise UsageError(f"held_for is one of: {', '.join(HOLD_REASONS)}")
    await explain_order(context, order)
    async with context.database.reading() as connection:
        phones = await phones_of(connection, order, sources=context.sources)
    why = checked_reason(context, reason, phones=phones)
    await release(context, [order], reason=held, why=why, by=by)


async def record_acceptance(
    connection: Connection,
    context: AppContext,
    order: str,
    *,
    codes: Iterable[FindingCode],
    who: Operator,
) -> None:
    """Record in the caller's transaction that a person accepts findings of an order. Findings that
    are already settled or accepted are skipped."""
    now = context.clock.now()
    history = (await gather(connection, [order]))[order]
    at = after_all(history.records, now=history.instant_at(now))
    left = left_to_settle(fold(history, policy=context.policy, as_of=at))
    await add_records(
        connection,
        [
            Record(
                record_id=new_id("rec_", now),
                recorded_at=at,
                kind="finding_accepted",
                order=order,
                at=at,
                reason=code,
                author=author_of(who),
            )
            for code in codes
            if code in left
        ],
    )
