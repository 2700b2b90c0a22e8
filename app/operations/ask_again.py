"""Asks again, in the background, about sessions that the payment service has not answered.

    due request ──take──▶ held ──ask, with the stored key──▶ recorded │ put off │ given up

What was written down before it was sent is here after any end of a process. A request is asked
again until it is answered or its key is spent.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from app.checkout.client import CheckoutClient
from app.checkout.faults import CheckoutBusyError, CheckoutDeniedError
from app.checkout.payment import payment_with
from app.errors import StoreUnavailable
from app.operations.ask_session import ask_and_record, give_up, key_spent, take
from app.operations.desk import Desk
from app.store.records import records_of
from app.store.unanswered import Unanswered, due_unanswered, forget, let_go_all

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
    async with desk.store.reading() as connection:
        due = await due_unanswered(connection, now=desk.clock.now(), limit=limit)
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


class AskingAgain:
    """Asks until it is stopped. `alive` tells readiness whether it is running."""

    def __init__(self, desk: Desk, client: CheckoutClient) -> None:
        self._desk = desk
        self._client = client
        self._stopping = asyncio.Event()
        self.alive = False

    def stop(self) -> None:
        """End after the requests under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Ask about due requests until stopped, or until an error that stays."""
        self.alive = True
        try:
            await self._begin()
            while not self._stopping.is_set():
                if not await self._round() or self._client.denied is not None:
                    await self._rest(IDLE_S if self._client.denied is None else DENIED_S)
        finally:
            self.alive = False

    async def _begin(self) -> None:
        """What the process before held, nobody holds; several processes cannot tell that."""
        if not self._desk.store.shared:
            async with self._desk.store.writing() as connection:
                await let_go_all(connection)

    async def _round(self) -> int:
        try:
            return await ask_again_due(self._desk, self._client)
        except StoreUnavailable as error:
            # A full disk or a busy database: the rows stay due, and the door still answers.
            log.warning("sessions not asked for again", error_class=_name(error))
            return 0

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
