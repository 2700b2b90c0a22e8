"""Asks the payment service about one payment and writes down what it says.

Shared by the shop's own calls and by whoever asks again in the background. The caller holds the
payment's row of `app.orders.pending_session_store`; whatever happens here, it is given back.
"""

import asyncio
from typing import Final

import structlog

from app.access.operators import SERVICE_AUTHOR
from app.checkout.client import TOKEN_DENIED, CheckoutClient
from app.checkout.payment import (
    Answered,
    CheckoutPayment,
    adds,
    answer_details,
    answer_record,
    key_is_spent,
    payment_with,
    record_kind,
    unsettled_sentence,
    wants_payment,
)
from app.checkout.request import (
    AnswerUnclear,
    CheckoutBusyError,
    CheckoutDeniedError,
    ComeAgain,
    Denied,
    Judged,
)
from app.context.context import AppContext
from app.core.clock import Clock
from app.core.ids import new_id
from app.core.periodic import PeriodicTask
from app.database.statements import PlainConnection
from app.orders.pending_session_store import (
    PendingSession,
    due_sessions,
    forget,
    hold,
    note_pending,
    pending_session,
    put_off,
    release_all,
    release_session,
)
from app.orders.read_orders import explain_order
from app.orders.record_store import keep_records, order_records
from reconcile.instants import MINUTE, SECOND, Duration, Instant

KEY_TOO_OLD: Final = "key_too_old"
"""Nothing was sent, because the service may have forgotten the key by now."""

SPARE: Final[Duration] = 10 * SECOND
"""Held beyond the longest call, for the commit after it."""

FIRST_PAUSE: Final[Duration] = 5 * SECOND
LONGEST_PAUSE: Final[Duration] = 15 * MINUTE
"""Between two passes over one payment: twice as long each time, within these bounds."""

TELL_AFTER: Final = 3
"""Passes in which the service was there and gave no clear answer, before it is reported (finding
`session_unknown`)."""

log = structlog.get_logger()


def hold_for(client: CheckoutClient) -> Duration:
    """How long whoever asks may take; what a dead process held comes free by it."""
    return Duration(round(client.settings.retry.total_s * SECOND)) + SPARE


def never_after(client: CheckoutClient, *, now: Instant) -> Instant:
    """Nothing is put off or held beyond it, but by a clock that was ahead. It leaves more than a
    quarter of an hour for clocks of several machines that differ."""
    return now + hold_for(client) + LONGEST_PAUSE


async def take(
    context: AppContext,
    client: CheckoutClient,
    payment: CheckoutPayment,
    row: PendingSession | None = None,
) -> PendingSession | None:
    """The right to ask about the payment, with what is to be sent. None: another has it, or there
    is nothing left to ask. `row`: what to write down where nothing is."""
    now = context.clock.now()
    return await context.database.writer.commit(
        _take,
        payment,
        row,
        now=now,
        until=now + hold_for(client),
        beyond=never_after(client, now=now),
    )


def _take(
    connection: PlainConnection,
    payment: CheckoutPayment,
    row: PendingSession | None,
    *,
    now: Instant,
    until: Instant,
    beyond: Instant,
) -> PendingSession | None:
    key = payment.key
    if row is not None:
        note_pending(connection, row)
    if not hold(connection, key, now=now, until=until, beyond=beyond):
        return None
    # Looked at with the row in hand: another process may have recorded the answer before.
    current = payment_with(order_records(connection, payment.requested.order), key)
    if current is None or current.settled:
        forget(connection, key)
        return None
    return pending_session(connection, key)


async def ask_and_record(
    context: AppContext,
    client: CheckoutClient,
    payment: CheckoutPayment,
    row: PendingSession,
    *,
    again: bool = True,
) -> tuple[CheckoutPayment, Answered]:
    """Ask, with what was sent before, and record the answer. The payment as it is then. `again`:
    whoever held the row before may have asked, too.

    Raises CheckoutDeniedError for an answer that says nothing of the order.
    """
    try:
        judged = await client.ask(row.order, row.request, key=row.key, again=again)
        if isinstance(judged, Denied):
            await context.database.writer.commit(_put_off_denied, row, judged, context.clock.now())
        answered = _answered(judged, row.order)
        return await _record(context, payment, answered, row=row), answered
    except BaseException:
        await context.database.writer.commit(release_session, row.key)
        raise


async def give_up(context: AppContext, payment: CheckoutPayment) -> CheckoutPayment:
    """The key is spent: nothing is sent for it any more, and it is reported."""
    return await _record(context, payment, AnswerUnclear(code=KEY_TOO_OLD), row=None)


def key_spent(payment: CheckoutPayment, client: CheckoutClient, *, now: Instant) -> bool:
    """Whether the service may have forgotten the key before one more call ends."""
    return key_is_spent(
        payment,
        now=now,
        lifetime=client.settings.form.key_lifetime,
        reserve=Duration(round(client.settings.retry.total_s * SECOND)),
    )


def _answered(judged: Judged, order: str) -> Answered:
    """What can be recorded. Raises CheckoutDeniedError for what says nothing of the order."""
    if isinstance(judged, Denied):
        what = "address" if judged.status in (404, 405) else "token"
        raise CheckoutDeniedError(
            f"The payment service answered {judged.status}: check the {what} of the checkout "
            f"settings, then ask again. Order {order} keeps its key."
        )
    assert not isinstance(judged, ComeAgain), "the client asks until it is clear"
    return judged


async def _record(
    context: AppContext,
    payment: CheckoutPayment,
    answered: Answered,
    *,
    row: PendingSession | None,
) -> CheckoutPayment:
    """Write it down, unless another process has already written as much.

    row  what may be asked again; None: nothing
    """
    current = await context.database.writer.commit(
        _keep_answer, payment, answered, row, clock=context.clock
    )
    context.signals.evidence_arrived.set()
    log.info("checkout answered", order=payment.requested.order, kind=record_kind(answered))
    return current


def _keep_answer(
    connection: PlainConnection,
    payment: CheckoutPayment,
    answered: Answered,
    row: PendingSession | None,
    *,
    clock: Clock,
) -> CheckoutPayment:
    now = clock.now()
    reached = isinstance(answered, AnswerUnclear) and answered.reached
    in_vain = 0 if row is None else row.in_vain + reached
    tell = row is None or in_vain >= TELL_AFTER
    known = order_records(connection, payment.requested.order)
    current = payment_with(known, payment.key) or payment
    if adds(answered, current, tell=tell):
        record = answer_record(
            answered,
            payment,
            record_id=new_id("rec_", now),
            now=now,
            author=SERVICE_AUTHOR,
            tell=tell,
        )
        keep_records(connection, [record], details=answer_details(answered))
        current = payment_with([*known, record], payment.key) or payment
    if row is None or current.settled:
        forget(connection, payment.key)
    else:
        _put_off(connection, row, now=now, in_vain=in_vain)
    return current


def _put_off(
    connection: PlainConnection, row: PendingSession, *, now: Instant, in_vain: int
) -> None:
    until = now + pause_after(row.tries)
    put_off(connection, row.key, until=until, tries=row.tries + 1, in_vain=in_vain)


def _put_off_denied(
    connection: PlainConnection, row: PendingSession, denied: Denied, now: Instant
) -> None:
    """A token that is refused says nothing of the order, whose next pass comes no later for it."""
    if denied.status in TOKEN_DENIED:
        until = now + Duration(round(DENIED_S * SECOND))
        put_off(connection, row.key, until=until, tries=row.tries, in_vain=row.in_vain)
    else:
        _put_off(connection, row, now=now, in_vain=row.in_vain)


def pause_after(tries: int) -> Duration:
    """How long until the next pass."""
    return min(FIRST_PAUSE * (1 << min(tries, 20)), LONGEST_PAUSE)


AT_ONCE: Final = 4
"""Payments asked about at one moment: the customers who wait now have the other connections."""

IDLE_S: Final = 1.0
"""Between two looks at what is due. A look costs one index lookup."""

DENIED_S: Final = 30.0
"""The same while the service refuses our token: one request then asks whether it still does."""


async def ask_again_due(context: AppContext, client: CheckoutClient) -> int:
    """Ask about every request that is due and that nobody holds, up to AT_ONCE. How many were."""
    limit = AT_ONCE if client.denied is None else 1
    now = context.clock.now()
    due = await context.database.on_snapshot(
        due_sessions, now=now, beyond=never_after(client, now=now), limit=limit
    )
    ended = await asyncio.gather(
        *(_ask_again(context, client, row) for row in due), return_exceptions=True
    )
    for each in ended:  # once all have ended: none goes on by itself
        if isinstance(each, BaseException):
            raise each
    return len(due)


async def _ask_again(context: AppContext, client: CheckoutClient, row: PendingSession) -> None:
    try:
        async with client.flights.of(row.order):
            await _pass(context, client, row)
    except (CheckoutDeniedError, CheckoutBusyError) as error:
        log.warning("session not asked for again", order=row.order, error_class=_name(error))


async def _pass(context: AppContext, client: CheckoutClient, row: PendingSession) -> None:
    records = await context.database.on_snapshot(order_records, row.order)
    payment = payment_with(records, row.key)
    if payment is None or payment.settled:
        await context.database.writer.commit(forget, row.key)
    elif not wants_payment(ledger := await explain_order(context, row.order)):
        # Asked now, the service might open the session of an order that is paid or canceled.
        log.info("session not asked for again", order=row.order, reason="not_wanted")
        await context.database.writer.commit(forget, row.key)
    elif key_spent(payment, client, now=context.clock.now()):
        log.error("session stays unknown", order=row.order, reason="key_too_old")
        await give_up(context, payment)
    elif (held := await take(context, client, payment)) is None:
        return
    elif unsettled_sentence(ledger) is not None:  # it may be paid: asked once that is settled
        log.info("session not asked for again", order=row.order, reason="unresolved")
        now = context.clock.now()
        await context.database.writer.commit(_put_off, held, now=now, in_vain=held.in_vain)
    else:
        await ask_and_record(context, client, payment, held)


def _name(error: Exception) -> str:
    return type(error).__name__


def asking_again(context: AppContext, client: CheckoutClient) -> PeriodicTask:
    """The background task: asks about due requests until it is stopped."""

    def rest(asked: int) -> float:
        if client.denied is not None:
            return DENIED_S
        return 0.0 if asked else IDLE_S

    return PeriodicTask(
        lambda: ask_again_due(context, client),
        component="asking for unknown sessions again",
        rest=rest,
        begin=lambda: _release_what_is_held(context),
    )


async def _release_what_is_held(context: AppContext) -> None:
    """What the process before held, nobody holds; several processes cannot know that.

    On a full disk this comes late. What a call of this very process holds by then it gives back
    too, and that does no harm: the call has its order's turn, for which `_ask_again` waits.
    """
    if not context.database.shared:
        await context.database.writer.commit(release_all)
