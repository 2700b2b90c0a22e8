"""Request of a stored delivery, rebuilt for another address."""

from typing import Final, NamedTuple

from app.access.operator_store import Operator, acting_alone, acts_since
from app.access.operators import note_in_trail, permitted
from app.access.proposals import proved
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.recorded import Recorded, of_request
from app.core.text import counted
from app.database.engine import Connection
from app.receiving.delivery_log_store import find_in_log, raw_delivery
from app.receiving.header_codec import is_left_out, read_request
from app.receiving.refusal_store import find_rejection
from app.receiving.restrictions import refuse_restricted
from reconcile.instants import HOUR


class Kept(NamedTuple):
    """A rebuilt request, and the names of the headers whose values were not stored, such as
    credentials."""

    request: Recorded
    left_out: list[str]


def no_delivery(delivery_id: str) -> NotFoundError:
    """Return one error for both missing and hidden deliveries."""
    return NotFoundError(
        f"there is no delivery {delivery_id!r}: `tallyhook deliveries list` shows the newest, and "
        "old refused ones are deleted"
    )


SHOWN_WITHIN: Final = HOUR


async def refuse_too_many(
    context: AppContext, connection: Connection, who: Operator, *, more: int
) -> None:
    """Raise UsageError for too many phone numbers within an hour.

    Looking at a body or a full bundle counts like one phone number.
    """
    if not proved(who):
        return
    most = context.settings.phones.shown_per_hour
    since = context.clock.now() - SHOWN_WITHIN
    seen = await acts_since(connection, since, who=who.name, actions=["unmasked"])
    alone = [each.facts for each in seen if not {"proposal", "account"} & each.facts.keys()]
    shown = sum(int(facts.get("phones", 1)) for facts in alone)
    if shown + more > most:
        raise UsageError(
            f"you have seen {counted(shown, 'phone number')} or bodies in the last hour, and one "
            f"person alone may see at most {most} an hour (TALLYHOOK_PHONES__SHOWN_PER_HOUR). Try "
            "again in an hour, or make a proposal to see the phone numbers of several orders"
        )


async def kept_request(context: AppContext, delivery_id: str, *, to: str, by: str | None) -> Kept:
    """Return a delivery's request for sending elsewhere, with an audit entry.

    Raise NotFoundError for an unknown delivery, and UsageError for an unusable body, or without
    permission.
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
        repeat = stored is None and refused is None
        raise UsageError(_why_not(delivery_id, repeat, entry.pruned_at is not None))
    async with context.database.writing() as connection:
        await acting_alone(connection)
        who = await permitted(connection, by=by, action="unmasked")
        await refuse_too_many(context, connection, who, more=1)
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
        return f"the body of {delivery_id} was deleted (pruned or erased)"
    if repeat:
        return (
            f"{delivery_id} is a redelivery, and the first delivery of its event stores the body: "
            "find that one with `tallyhook deliveries list`"
        )
    return f"the body of {delivery_id} was not stored completely, so it cannot be sent again"
