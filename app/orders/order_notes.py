"""Notes on orders, which one person leaves for the next.

A note is an audit entry: append-only, sealed, and without personal data.
"""

from typing import Final

from app.access.operator_store import AuditEntry
from app.access.operators import note_in_trail, permitted, trail
from app.context.context import AppContext
from app.orders.customers import checked_reason, phones_of
from app.orders.read_orders import explain_order

SHOWN: Final = 50
"""Maximum number of an order's notes that are shown. The newest notes are shown."""

ABOVE_ALL: Final = 2**62


async def add_note(context: AppContext, order: str, *, note: str, by: str | None) -> None:
    """Add a note to an order.

    Raises UsageError if permission is missing, or for an unsuitable note, and NotFoundError for an
    unknown order.
    """
    await explain_order(context, order)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="note_added")
        phones = await phones_of(connection, order, sources=context.sources)
        checked = checked_reason(context, note, phones=phones)
        await note_in_trail(
            connection,
            who,
            action="note_added",
            subject=order,
            at=context.clock.now(),
            reason=checked,
        )


async def notes_of(context: AppContext, order: str) -> list[AuditEntry]:
    """Return an order's newest notes as audit entries, newest first. The entry's `reason` is the
    note's text."""
    return await trail(context, subject=order, action="note_added", before=ABOVE_ALL, limit=SHOWN)
