"""Deliveries that were accepted but could not be read in three tries.

They are kept, and a known order of such a delivery is held until it is read, because it can say
that money went back.
"""

from collections.abc import Collection, Sequence
from typing import Final

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.ids import new_id
from app.core.logs import log
from app.database.engine import Connection
from app.database.locks import LINKING, take_lock
from app.database.statements import run
from app.orders.customers import checked_reason
from app.orders.history_store import gather
from app.orders.hold_store import holds_of, some_holds
from app.orders.record_store import Named, add_records, after_all, hold_record, owners_of
from app.providers.request import Incoming
from app.receiving import inbox_store, unread_store
from app.receiving.append_store import Arrival, mark_due
from app.receiving.framing import Received
from app.receiving.header_codec import read_request
from app.receiving.reader import Holding
from app.receiving.unread_values import values_of
from reconcile.ledger.records import HoldReason, RecordKind

BECAUSE: Final[HoldReason] = "poisoned_delivery"

LISTED: Final = 1_000


async def poisoned(context: AppContext) -> list[inbox_store.Suspect]:
    """Return the deliveries that were set aside because they could not be read, oldest first."""
    async with context.database.reading() as connection:
        return await run(connection, inbox_store.next_suspects, aside=True, limit=LISTED)


async def retry(context: AppContext, *, by: str | None = None) -> int:
    """Let the reader try all deliveries again that were set aside. Return their number.

    Raises UsageError if permission is missing.
    """
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="deliveries_retried")
        found = await run(connection, inbox_store.try_again)
        if found:
            await note_in_trail(
                connection,
                who,
                action="deliveries_retried",
                subject="all that were set aside",
                at=context.clock.now(),
                facts={"deliveries": found},
            )
    return found


async def orders_of(context: AppContext, arrivals: Sequence[Arrival]) -> list[str]:
    """Return the orders that these deliveries name, and the orders of the payments and sessions
    that they name."""
    events = [arrival.event for arrival in arrivals if arrival.event is not None]
    named = {event.order for event in events if event.order is not None}
    references: list[Named] = []
    for each in events:
        references += [(each.source, None, each.payment)] if each.payment is not None else []
        references += [(each.source, each.session, None)] if each.session is not None else []
    async with context.database.reading() as connection:
        owners = await owners_of(connection, references, lasting=False)
    return sorted(named | set(owners.values()))


async def hold_orders(context: AppContext, one: inbox_store.Suspect, orders: Sequence[str]) -> None:
    """Set an unreadable delivery aside, and hold its orders, each once."""
    name = None if one.item is None else one.item.delivery_id
    async with context.database.writing() as connection:
        await run(connection, take_lock, LINKING)  # what one reader holds, another may release
        messages = _messages(context, one)
        named = set(orders) | await run(connection, unread_store.orders_named, messages)
        if not await run(connection, inbox_store.set_aside, one, orders=sorted(named)):
            return  # another reader has it
        await run(connection, unread_store.keep_unread, messages)
        standing = await _standing(connection, named)
        await _record(context, connection, named - standing, kind="held")
    context.signals.evidence_arrived.set()
    context.signals.alarming.set()
    log.error("a delivery is set aside", delivery=name, count=len(orders))


def _messages(context: AppContext, one: inbox_store.Suspect) -> list[unread_store.UnreadMessage]:
    """Return one unread message for each value in the request, to be found by later orders."""
    item = one.item
    if not isinstance(item, Received):
        return []
    kept = read_request(item.headers, item.body)
    source = context.sources.get(item.source)
    values = values_of(source, Incoming(kept.headers, item.body, kept.method, item.url))
    return [
        unread_store.UnreadMessage(v, item.delivery_id, item.source, item.received_at)
        for v in values
    ]


async def release_orders(context: AppContext, orders: Collection[str]) -> None:
    """Release these orders from holds for unreadable deliveries. An order stays held while another
    such delivery names it."""
    if not orders:
        return
    async with context.database.writing() as connection:
        await run(connection, take_lock, LINKING)
        others = await run(connection, inbox_store.orders_waiting)
        held = await _standing(connection, set(orders) - others)
        await _record(context, connection, held, kind="released")
    context.signals.evidence_arrived.set()


async def release_left(context: AppContext) -> None:
    """Release all orders from holds for deliveries that are no longer set aside."""
    after, page = "", [""]
    while page:
        async with context.database.reading() as connection:
            holds = await some_holds(connection, reason=BECAUSE, after=after, limit=LISTED)
        page = [hold.order for hold in holds]
        await release_orders(context, page)
        after = max(page, default="")


async def _standing(connection: Connection, orders: Collection[str]) -> set[str]:
    found = await holds_of(connection, orders) if orders else []
    return {hold.order for hold in found if hold.reason == BECAUSE}


async def _record(
    context: AppContext, connection: Connection, orders: Collection[str], *, kind: RecordKind
) -> None:
    now = context.clock.now()
    histories = await gather(connection, sorted(orders)) if orders else {}
    records = [
        hold_record(
            order,
            kind,
            at=after_all(history.records, now=now),
            record_id=new_id("rec_", now),
            reason=BECAUSE,
        )
        for order, history in histories.items()
    ]
    await add_records(connection, records)


HOLDING: Final = Holding(
    orders_of=orders_of, hold=hold_orders, release=release_orders, release_left=release_left
)


async def judge_unread(
    context: AppContext, delivery: str, *, reason: str, by: str | None = None
) -> int:
    """Record a person's judgement of an unreadable message. Return the number of orders made due.

    Raises NotFoundError if no such message needs a judgement, and UsageError without reason or
    permission.
    """
    why = checked_reason(context, reason)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="message_judged")
        if not await run(connection, unread_store.is_unread, delivery):
            raise NotFoundError(
                f"{delivery} is not an unreadable message that needs a judgement; `tallyhook "
                "deliveries list --verdict unreadable` lists the unreadable messages"
            )
        orders = await run(connection, unread_store.forget_unread, [delivery])
        now = context.clock.now()
        await run(connection, mark_due, dict.fromkeys(orders, now))
        await note_in_trail(
            connection, who, action="message_judged", subject=delivery, at=now, reason=why
        )
    context.signals.evidence_arrived.set()
    return len(orders)
