"""A stored delivery as the request that brought it, to be sent on again.

Leaves out: sending, and whether the request was genuine.
"""

from typing import NamedTuple

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.recorded import Recorded, of_request
from app.core.text import counted
from app.receiving.delivery_log_store import find_in_log, raw_delivery
from app.receiving.header_codec import is_left_out, read_request
from app.receiving.refusal_store import find_rejection
from app.receiving.restrictions import refuse_restricted


class Kept(NamedTuple):
    """A request, and the names of its headers whose values, such as credentials, are not stored."""

    request: Recorded
    left_out: list[str]


def no_delivery(delivery_id: str) -> NotFoundError:
    """Return the error for an id that is in no log, or that the caller may not see. Both have the
    same text, so that nobody learns which it is."""
    return NotFoundError(
        f"there is no delivery {delivery_id!r}: `tallyhook deliveries list` shows the newest, and "
        "old refused ones are deleted"
    )


async def kept_request(context: AppContext, delivery_id: str, *, to: str, by: str | None) -> Kept:
    """Return the request that brought a delivery. The audit trail notes who sends it where.

    Raises NotFoundError if there is no such delivery. Raises UsageError if its body is restricted
    or not stored whole, and for callers who may not see bodies.
    """
    async with context.database.reading() as connection:
        await refuse_restricted(connection, delivery=delivery_id)
        entry = await find_in_log(connection, delivery_id)
        stored = await raw_delivery(connection, delivery_id)
        refused = await find_rejection(connection, delivery_id)
    if entry is None:
        raise no_delivery(delivery_id)
    if refused is not None:
        body = refused.body if len(refused.body) == refused.size else None
    elif stored is not None and not stored.lone:
        body = stored.body if stored.whole is None else stored.whole
    else:
        body = None
    if body is None:
        raise UsageError(_why_not(delivery_id, stored is None, entry.pruned_at is not None))
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="unmasked")
        await note_in_trail(
            connection,
            who,
            action="unmasked",
            subject=delivery_id,
            at=context.clock.now(),
            reason=f"sent on to {to}"[:200],
            facts={"bytes": counted(len(body), "byte")},
        )
    kept = read_request(entry.headers)
    whole = [(name, value) for name, value in kept.headers if not is_left_out(value)]
    left_out = [name.decode("latin-1") for name, value in kept.headers if is_left_out(value)]
    request = Recorded(method=kept.method, url=kept.url, headers=of_request(whole), body=body)
    return Kept(request, left_out)


def _why_not(delivery_id: str, repeat: bool, pruned: bool) -> str:
    if pruned:
        return f"the body of {delivery_id} is gone: it was pruned or erased"
    if repeat:
        return (
            f"{delivery_id} repeats another delivery, which holds the body: `deliveries list` "
            "shows the first with its event"
        )
    return f"the body of {delivery_id} was not kept whole, so it cannot be sent as it came"
