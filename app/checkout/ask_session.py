"""Ask the payment service to open a payment's session, and record the answer.

The caller first claims the payment's row in `app.orders.pending_session_store`; this module
releases it, even after an error.
"""

import asyncio
from typing import Final

from app.access.operators import SERVICE_AUTHOR
from app.checkout import payment as payments
from app.checkout import request as requests
from app.checkout.client import TOKEN_DENIED, CheckoutClient
from app.checkout.payment import Answered, CheckoutPayment
from app.checkout.request import AnswerUnclear, CheckoutBusyError, CheckoutDeniedError
from app.context.context import AppContext
from app.core.ids import new_id
from app.core.logs import log
from app.core.periodic import PeriodicTask
from app.database.statements import PlainConnection
from app.orders import pending_session_store as pending
from app.orders.pending_session_store import PendingSession, forget
from app.orders.read_orders import explain_order
from app.orders.record_store import keep_records, order_records
from reconcile.instants import MINUTE, SECOND, Duration, Instant

KEY_TOO_OLD: Final = "key_too_old"
"""Code recorded if no request was sent, because the service may have forgotten the idempotency
key."""

SPARE: Final[Duration] = 10 * SECOND
"""Time for which a row stays claimed after the longest possible call, so that the answer can be
committed."""

FIRST_PAUSE: Final[Duration] = 5 * SECOND
LONGEST_PAUSE: Final[Duration] = 15 * MINUTE
"""Longest pause between two requests for one payment. Pauses double from five seconds."""

REPORT_AFTER: Final = 3
"""Number of unclear answers to one request after which the finding `session_unknown` is
reported."""


def hold_for(client: CheckoutClient) -> Duration:
    """Return the time for which a call claims a payment's row, in case the process dies."""
    return Duration(round(client.settings.retry.total_s * SECOND)) + SPARE


def never_after(client: CheckoutClient, *, now: Instant) -> Instant:
    """Return the latest time at which a claim or pause can plausibly end by a correct clock."""
    return now + hold_for(client) + LONGEST_PAUSE


async def claim(
    context: AppContext,
    client: CheckoutClient,
    payment: CheckoutPayment,
    row: PendingSession | None = None,
) -> PendingSession | None:
    """Claim the payment's row, and return it with the bytes to send.

    Return None if another process has claimed it, or if the answer is already recorded.

    row  row to insert first, for a payment without a row
    """
    now, key = context.clock.now(), payment.key

    def claim_row(connection: PlainConnection) -> PendingSession | None:
        if row is not None:
            pending.note_pending(connection, row)
        beyond = never_after(client, now=now)
        if not pending.hold(connection, key, now=now, until=now + hold_for(client), beyond=beyond):
            return None
        # Read after the row is claimed: another process may have recorded the answer before that.
        records = order_records(connection, payment.requested.order)
        current = payments.payment_with(records, key)
        if current is None or current.settled:
            forget(connection, key)
            return None
        return pending.pending_session(connection, key)

    return await context.database.writer.commit(claim_row)


async def ask_and_record(
    context: AppContext,
    client: CheckoutClient,
    payment: CheckoutPayment,
    row: PendingSession,
    *,
    again: bool = True,
) -> tuple[CheckoutPayment, Answered]:
    """Send the stored request, and record the answer. Return the updated payment and the answer.

    again  whether the request may have been sent before

    Raise CheckoutDeniedError for an answer that says nothing about the order.
    """
    try:
        verdict = await client.ask(row.order, row.request, key=row.key, again=again)
        if isinstance(verdict, requests.Denied):
            denied, now = verdict.status in TOKEN_DENIED, context.clock.now()

            def postpone(connection: PlainConnection) -> None:
                if denied:  # tells nothing about the order, whose next pass comes no later
                    until = now + Duration(round(DENIED_S * SECOND))
                    tries, in_vain = row.tries, row.in_vain
                    pending.put_off(connection, row.key, until=until, tries=tries, in_vain=in_vain)
                else:
                    _postpone(connection, row, now=now, in_vain=row.in_vain)

            await context.database.writer.commit(postpone)
            what = "address" if verdict.status in (404, 405) else "token"
            raise CheckoutDeniedError(
                f"The payment service answered {verdict.status}: correct the {what} in the "
                f"checkout settings, and try again. The next try for order {row.order} uses the "
                "same idempotency key."
            )
        assert not isinstance(verdict, requests.RetryLater), "the client asks until it is clear"
        return await _record(context, payment, verdict, row=row), verdict
    except BaseException:
        await context.database.writer.commit(pending.release_session, row.key)
        raise


async def give_up(context: AppContext, payment: CheckoutPayment) -> CheckoutPayment:
    """Record that the payment's idempotency key has expired, so that people are notified."""
    return await _record(context, payment, AnswerUnclear(code=KEY_TOO_OLD), row=None)


def key_spent(payment: CheckoutPayment, client: CheckoutClient, *, now: Instant) -> bool:
    """Return whether the payment service could forget the idempotency key during a call that starts
    now."""
    return payments.key_is_spent(
        payment,
        now=now,
        lifetime=client.settings.api.key_lifetime_s * SECOND,
        reserve=Duration(round(client.settings.retry.total_s * SECOND)),
    )


async def _record(
    context: AppContext,
    payment: CheckoutPayment,
    answered: Answered,
    *,
    row: PendingSession | None,
) -> CheckoutPayment:
    """Record an answer, unless the records contain it already.

    row  request to repeat if the answer is unclear, if any
    """

    def keep(connection: PlainConnection) -> CheckoutPayment:
        now = context.clock.now()
        reached = isinstance(answered, AnswerUnclear) and answered.reached
        in_vain = 0 if row is None else row.in_vain + reached
        tell = row is None or in_vain >= REPORT_AFTER
        known = order_records(connection, payment.requested.order)
        current = payments.payment_with(known, payment.key) or payment
        if payments.adds(answered, current, tell=tell):
            record = payments.answer_record(
                answered,
                payment,
                record_id=new_id("rec_", now),
                now=now,
                author=SERVICE_AUTHOR,
                tell=tell,
            )
            keep_records(connection, [record], details=payments.answer_details(answered))
            current = payments.payment_with([*known, record], payment.key) or payment
        if row is None or current.settled:
            forget(connection, payment.key)
        else:
            _postpone(connection, row, now=now, in_vain=in_vain)
        return current

    current = await context.database.writer.commit(keep)
    context.signals.evidence_arrived.set()
    kind = payments.record_kind(answered)
    log.info(
        "the payment service answered a checkout request", order=payment.requested.order, kind=kind
    )
    return current


def _postpone(
    connection: PlainConnection, row: PendingSession, *, now: Instant, in_vain: int
) -> None:
    until = now + pause_after(row.tries)
    pending.put_off(connection, row.key, until=until, tries=row.tries + 1, in_vain=in_vain)


def pause_after(tries: int) -> Duration:
    """Return the pause before the next request, given the number of tries so far."""
    return min(FIRST_PAUSE * (1 << min(tries, 20)), LONGEST_PAUSE)


AT_ONCE: Final = 4
"""Maximum number of requests that the background task repeats at a time. This leaves connections
free for customers' calls."""

IDLE_S: Final = 1.0
"""Seconds between two searches for requests that are due. A search costs one index lookup."""

DENIED_S: Final = 30.0
"""Seconds between two searches for due requests while the payment service rejects our token."""


async def ask_again_due(context: AppContext, client: CheckoutClient) -> int:
    """Repeat the session requests that are due and unclaimed, at most four at a time. Return how
    many were found."""
    limit = AT_ONCE if client.denied is None else 1
    now = context.clock.now()
    due = await context.database.on_snapshot(
        pending.due_sessions, now=now, beyond=never_after(client, now=now), limit=limit
    )
    ended = await asyncio.gather(
        *(_ask_again(context, client, row) for row in due), return_exceptions=True
    )
    for each in ended:  # after all have ended, so that none continues alone
        if isinstance(each, BaseException):
            raise each
    return len(due)


async def _ask_again(context: AppContext, client: CheckoutClient, row: PendingSession) -> None:
    try:
        async with client.flights.of(row.order):
            await _pass(context, client, row)
    except (CheckoutDeniedError, CheckoutBusyError) as error:
        error_class = type(error).__name__
        if times := client.unasked.times(error_class):
            log.warning(
                "the session request is not repeated",
                order=row.order,
                error_class=error_class,
                count=times,
            )


async def _pass(context: AppContext, client: CheckoutClient, row: PendingSession) -> None:
    records = await context.database.on_snapshot(order_records, row.order)
    payment = payments.payment_with(records, row.key)
    if payment is None or payment.settled:
        await context.database.writer.commit(forget, row.key)
    elif not payments.wants_payment(ledger := await explain_order(context, row.order)):
        # The service might still open a session for an order that is paid or canceled by now.
        log.info("the session request is not repeated", order=row.order, reason="not_wanted")
        await context.database.writer.commit(forget, row.key)
    elif key_spent(payment, client, now=context.clock.now()):
        log.error(
            "the result of a session request stays unknown", order=row.order, reason="key_too_old"
        )
        await give_up(context, payment)
    elif (held := await claim(context, client, payment)) is None:
        return
    elif payments.unsettled_sentence(ledger) is not None:  # it may be paid
        log.info("the session request is not repeated", order=row.order, reason="unresolved")
        now = context.clock.now()
        await context.database.writer.commit(_postpone, held, now=now, in_vain=held.in_vain)
    else:
        await ask_and_record(context, client, payment, held)


def asking_again(context: AppContext, client: CheckoutClient) -> PeriodicTask:
    """Build the background task that repeats session requests. A request is repeated when it is
    due, until there is a clear answer."""

    async def release_held() -> None:
        """Release the rows that this process claimed before it was restarted.

        In a shared database nothing is released.
        """
        if not context.database.shared:
            await context.database.writer.commit(pending.release_all)

    def rest(asked: int) -> float:
        if client.denied is not None:
            return DENIED_S
        return 0.0 if asked else IDLE_S

    return PeriodicTask(
        lambda: ask_again_due(context, client),
        component="sessions with an unknown result are requested again",
        rest=rest,
        begin=release_held,
    )
