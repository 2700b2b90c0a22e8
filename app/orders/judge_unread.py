"""A person judges a message that could not be read: its orders are held for it no longer."""

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.database.statements import run
from app.orders.customers import checked_reason
from app.receiving.append_store import mark_due
from app.receiving.unread_store import forget_unread, is_unread


async def judge_unread(
    context: AppContext, delivery: str, *, reason: str, by: str | None = None
) -> int:
    """Note that a person knows what a message says. Returns how many orders are folded again.

    Raises NotFoundError where it is no unreadable message that waits for that, and UsageError
    without a reason or for a person who may not.
    """
    why = checked_reason(reason, [])
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="message_judged")
        if not await run(connection, is_unread, delivery):
            raise NotFoundError(
                f"{delivery} is no unreadable message that waits for a person; `tallyhook "
                "deliveries list --verdict unreadable` lists those that could not be read"
            )
        orders = await run(connection, forget_unread, [delivery])
        now = context.clock.now()
        await run(connection, mark_due, dict.fromkeys(orders, now))
        await note_in_trail(
            connection, who, action="message_judged", subject=delivery, at=now, reason=why
        )
    context.signals.evidence_arrived.set()
    return len(orders)
