"""Asks again, in the background, about sessions that the payment service has not answered.

    due request ──take──▶ held ──ask, with the stored key──▶ recorded │ put off │ given up

What was written down before it was sent is here after any end of a process. A request is asked
again until it is answered or its key is spent.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from app.checkout.ask_session import (
    ask_and_record,
    give_up,
    key_spent,
    never_after,
    take,
)
from app.checkout.client import CheckoutClient
from app.checkout.faults import CheckoutBusyError, CheckoutDeniedError
from app.checkout.payment import payment_with
from app.core.periodic import Rounds
from app.orders.pending_session_store import Unanswered, due_unanswered, forget, let_go_all
from app.orders.record_store import records_of
from app.receiving.context import Desk

log = structlog.get_logger()

AT_ONCE: Final = 4
"""Payments asked about at one moment: the customers who wait now have the other connections."""

IDLE_S: Final = 1.0
"""Between two looks at what is due. A look costs one index lookup."""

DENIED_S: Final = 30.0
"""The same while the service refuses our token: one request then asks whether it still does."""


async def ask_again_due(desk: Desk, client: CheckoutClient) -> int:
    """Ask about every request that is due and that nobody holds, up to AT_ONCE. How many were."""
    limit = AT_ONCE if client.denied is None else 1
    now = desk.clock.now()
    async with desk.store.reading() as connection:
        beyond = never_after(client, now=now)
        due = await due_unanswered(connection, now=now, beyond=beyond, limit=limit)
    await asyncio.gather(*(_ask_again(desk, client, row) for row in due))
    return len(due)


async def _ask_again(desk: Desk, client: CheckoutClient, row: Unanswered) -> None:
    try:
        async with client.turns.of(row.order):
            await _pass(desk, client, row)
    except (CheckoutDeniedError, CheckoutBusyError) as error:
        log.warning("session not asked for again", order=row.order, error_class=_name(error))


async def _pass(desk: Desk, client: CheckoutClient, row: Unanswered) -> None:
    async with desk.store.reading() as connection:
        payment = payment_with(await records_of(connection, row.order), row.key)
    if payment is None or payment.settled:
        async with desk.store.writing() as connection:
            await forget(connection, row.key)
    elif key_spent(payment, client, now=desk.clock.now()):
        log.error("session stays unknown", order=row.order, reason="key_too_old")
        await give_up(desk, payment)
    else:
        held = await take(desk, client, payment)
        if held is not None:
            await ask_and_record(desk, client, payment, held)


def _name(error: Exception) -> str:
    return type(error).__name__


def asking_again(desk: Desk, client: CheckoutClient) -> Rounds:
    """The background task: asks about due requests until it is stopped."""

    def rest(asked: int) -> float:
        if client.denied is not None:
            return DENIED_S
        return 0.0 if asked else IDLE_S

    return Rounds(
        lambda: ask_again_due(desk, client),
        component="asking for unknown sessions again",
        rest=rest,
        begin=lambda: _let_go_of_what_is_held(desk),
    )


async def _let_go_of_what_is_held(desk: Desk) -> None:
    """What the process before held, nobody holds; several processes cannot tell that.

    On a full disk this comes late. What a call of this very process holds by then it gives back
    too, and that does no harm: the call has its order's turn, for which `_ask_again` waits.
    """
    if not desk.store.shared:
        async with desk.store.writing() as connection:
            await let_go_all(connection)
