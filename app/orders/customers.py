"""Customers' phone numbers, read from the stored bodies of an order. They are stored nowhere else.

They are read to mask them, and for a person with permission who gives a reason.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from app.access.operator_store import acting_alone
from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import Masking, looks_like_a_phone
from app.core.text import is_human_text
from app.database.engine import Connection
from app.orders.history_store import gather
from app.orders.pending_session_store import pending_sessions_of
from app.orders.read_orders import explain_order
from app.providers.source import Source
from app.receiving.delivery_log_store import RawDelivery, find_in_log, raw_delivery
from app.receiving.header_codec import phones_in
from app.receiving.kept_request import no_delivery, refuse_too_many
from app.receiving.refusal_store import find_rejection
from app.receiving.restrictions import refuse_restricted

LOOKED_AT: Final = 50
"""Most deliveries of one order that are read. The first usually names the customer."""

MAX_REASON: Final = 500
"""Most characters of a reason, which stays in the audit trail for ever."""


async def phones_of(
    connection: Connection, order: str, *, sources: Mapping[str, Source], most: int = LOOKED_AT
) -> list[str]:
    """Return the phone numbers in the stored bodies of an order, as E.164 digits.

    Of a request with several events, only numbers in this order's own event count.

    most  number of deliveries that are read
    """
    found: dict[str, None] = {}
    history = (await gather(connection, [order]))[order]
    own = sorted(each.delivery_id for each in history.deliveries)
    for delivery_id in own[:most]:
        delivery = await raw_delivery(connection, delivery_id)
        if delivery is not None:
            found |= dict.fromkeys(own_phones(delivery, sources))
    for row in await pending_sessions_of(connection, [order]):
        phone = json.loads(row.request).get("customer", {}).get("phone")
        found |= {str(phone): None} if phone else {}
    return list(found)


def own_phones(delivery: RawDelivery, sources: Mapping[str, Source]) -> list[str]:
    """Return the phone numbers of a delivery's own event, without those of other events in it."""
    phones = phones_in(delivery, sources)
    if delivery.whole is None or delivery.body is None:
        return phones
    text = delivery.body.decode("utf-8", "replace")
    return [each for each in phones if Masking([each]).touches(text)]


def checked_reason(context: AppContext, reason: str, *, phones: Iterable[str] = ()) -> str:
    """Return a reason in the form in which the audit trail may store it.

    phones  numbers and addresses that it must not contain

    Raises UsageError where it is empty or contains a phone number.
    """
    checked = reason.strip()
    if not (0 < len(checked) <= MAX_REASON) or not is_human_text(checked):
        raise UsageError(f"--reason says why, in 1 to {MAX_REASON} printable characters")
    if Masking(phones).touches(checked) or looks_like_a_phone(checked, context.countries):
        raise UsageError(
            "leave the phone number out of --reason, and the email address: the trail is kept for "
            "ever"
        )
    return checked


async def unmask(context: AppContext, order: str, *, reason: str, by: str | None) -> list[str]:
    """Return an order's full phone numbers to an authorized person, and note it in the audit trail.

    Raises UsageError for a person without permission, without a reason, and where the order is
    restricted. Raises NotFoundError for an unknown order.
    """
    await explain_order(context, order)
    async with context.database.writing() as connection:
        await acting_alone(connection)
        who = await permitted(connection, by=by, action="unmasked")
        await refuse_restricted(connection, order=order)
        found = await phones_of(connection, order, sources=context.sources)
        await refuse_too_many(context, connection, who, more=len(found))
        await note_in_trail(
            connection,
            who,
            action="unmasked",
            subject=order,
            at=context.clock.now(),
            reason=checked_reason(context, reason, phones=found),
            facts={"phones": len(found)},
        )
    return found


async def reveal_body(context: AppContext, delivery_id: str, *, reason: str, by: str) -> bytes:
    """Return a delivery's body, refused or not, to an authorized person, and note it in the trail.

    Raises UsageError for a person without permission, without a reason, and where the body is not
    stored or is restricted. Raises NotFoundError for an unknown delivery.
    """
    async with context.database.writing() as connection:
        await acting_alone(connection)
        who = await permitted(connection, by=by, action="unmasked")
        await refuse_restricted(connection, delivery=delivery_id)
        body, phones = await _kept_body(connection, delivery_id, context.sources)
        await refuse_too_many(context, connection, who, more=1)
        await note_in_trail(
            connection,
            who,
            action="unmasked",
            subject=delivery_id,
            at=context.clock.now(),
            reason=checked_reason(context, reason, phones=phones),
            facts={"bytes": len(body)},
        )
    return body


async def _kept_body(
    connection: Connection, delivery_id: str, sources: Mapping[str, Source]
) -> tuple[bytes, list[str]]:
    """Return the whole stored body, and the phone numbers that a profile finds in it."""
    refused = await find_rejection(connection, delivery_id)
    if refused is not None:
        return refused.body, []
    delivery = await raw_delivery(connection, delivery_id)
    if delivery is None:
        if await find_in_log(connection, delivery_id) is None:
            raise no_delivery(delivery_id)
        raise UsageError(
            "it brought the same bytes as an earlier delivery of the same event, which keeps them: "
            "open that one, from the order's page"
        )
    body = delivery.body if delivery.whole is None else delivery.whole
    if body is None:
        raise UsageError("its body was deleted; its digest, dates and amounts are kept")
    return body, phones_in(delivery, sources)
