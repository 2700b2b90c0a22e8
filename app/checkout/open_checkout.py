"""Open a checkout session for an order: once, and only once, whatever fails in between.

    (1) check everything  (2) find the order's payment  (3) commit the intent and its key
    (4) ask the service, again with the same key  (5) record the answer  (6) say what is

The steps are numbered where they are done. Wherever a call ends, the next one for the order finds
the key that was committed and goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final, Literal

import anyio
import structlog

from app.access.operators import OWNER
from app.checkout import ask_session
from app.checkout.client import CheckoutClient
from app.checkout.payment import (
    Answered,
    CheckoutPayment,
    check_price,
    check_same,
    check_same_phone,
    check_wanted,
    intent,
    intent_details,
    paid_sentence,
    payment_of,
    unsettled_sentence,
    wants_payment,
)
from app.checkout.request import (
    CheckoutRequest,
    Opened,
    PaymentNotOverError,
    SessionRefused,
    SoundRequest,
    body_of,
    checked,
    kept_checkout_url,
)
from app.context.context import AppContext
from app.core.errors import NotFoundError, TallyhookError
from app.core.ids import new_id
from app.core.text import counted
from app.database.statements import PlainConnection
from app.orders.pending_session_store import PendingSession, note_pending, pending_session
from app.orders.read_orders import explain_order
from app.orders.record_store import details_of, keep_records, order_records
from app.receiving.caught_up import must_have_read
from app.receiving.phone_store import PhoneNote, phone_note, write_phone_notes
from reconcile.instants import EARLIEST, SECOND, Instant, format_instant, format_known
from reconcile.ledger.ledger import Ledger, Outcome
from reconcile.ledger.records import Record

ASKED_ELSEWHERE: Final = "asked_elsewhere"
"""Another process was asking the service all the time that we could wait."""

LOOK_S: Final = 0.1
"""Between two looks at whether another process has its answer."""

log = structlog.get_logger()


async def open_checkout(
    context: AppContext,
    client: CheckoutClient,
    *,
    request: CheckoutRequest,
    new_payment: bool = False,
    author: str = OWNER,
) -> CheckoutResult:
    """Open the order's session, or find the one it has.

    author       who asks, as it stands in the record of the request
    new_payment  the earlier payment is over and the customer tries again: another key. Asked for
                 twice, it finds the new one

    Raises CheckoutRequestError, CheckoutConflictError, PaymentNotOverError and OrderCanceledError
    (nothing was sent), UnreachableError when the service does not take our credentials or the store
    fails. Calls for one order wait for each other; those that ask the same share one answer.
    """
    requires = client.settings.form.requires
    sound = checked(request, live=context.database.environment == "live", requires=requires)  # (1)
    asked = (sound, new_payment)
    async with client.flights.of(sound.order) as flight:
        answered: CheckoutResult | None = flight.answer_to(asked)
        if answered is not None:
            return answered
        result = await _Opening(
            context, client, sound, new_payment=new_payment, author=author
        ).run()
        if result.state in ("opened", "refused"):
            # Also of one that this call opened: it may have been paid or canceled while we asked.
            result = by_now(result, await explain_order(context, result.order))
        flight.leave(asked, replace(result, created=False))
        return result


class _Opening:
    """One call, step by step."""

    def __init__(
        self,
        context: AppContext,
        client: CheckoutClient,
        request: SoundRequest,
        *,
        new_payment: bool,
        author: str,
    ) -> None:
        self._author = author
        self._context = context
        self._signals = context.signals
        self._client = client
        self._settings = client.settings
        self._request = request
        self._new_payment = new_payment
        self._held: PendingSession | None = None
        """What this call may send, since it has committed the intent itself."""
        self._decided = False
        self._over: str | None = None
        """The key of the earlier payment, if one was over when this call began."""

    async def run(self) -> CheckoutResult:
        for _ in range(round(ask_session.hold_for(self._client) / SECOND / LOOK_S)):
            known = await self._find()
            if known is None or not known.settled:
                paid = await self._paid_already(known)
                if paid is not None:
                    return paid
            payment = known or await self._commit_intent()
            if payment.settled:
                return await self._found(payment)  # (6)
            if ask_session.key_spent(payment, self._client, now=self._context.clock.now()):
                return unknown_result(
                    await ask_session.give_up(self._context, payment), ask_session.KEY_TOO_OLD
                )
            row = self._held or await self._take(payment)
            if row is not None:
                found, answered = await ask_session.ask_and_record(
                    self._context, self._client, payment, row, again=row is not self._held
                )
                return result_of(found, answered) or await self._found(found)
            await anyio.sleep(LOOK_S)
        return unknown_result(payment, ASKED_ELSEWHERE)

    # --- (2) the order's payment -----------------------------------------------------------------

    async def _find(self) -> CheckoutPayment | None:
        order, source = self._request.order, self._settings.source
        records, details = await self._context.database.on_snapshot(_known_of, order)
        payment = payment_of(records)
        if self._new_payment and not self._decided:
            self._over = await self._over_by_now(payment, records)
            self._decided = True
        if payment is None or payment.key == self._over:
            return None
        check_same(payment, self._request, source=source, details=details)
        return payment

    async def _over_by_now(
        self, payment: CheckoutPayment | None, records: list[Record]
    ) -> str | None:
        """The key of a payment that is over, so that a new one may begin; else None.

        Raises PaymentNotOverError where it is not, unless it is itself a new one, or the order
        wants none any more, or may be paid: that is then reported.
        """
        if payment is None:
            return None
        now = self._context.clock.now()
        answered = payment.settled or ask_session.key_spent(payment, self._client, now=now)
        if answered:
            await must_have_read(self._context)  # a success may have been accepted
        ledger = await explain_order(self._context, self._request.order)
        if answered and ledger.outcome in OVER:
            return payment.key
        requested = sum(record.kind == "session_requested" for record in records)
        if requested > 1 or not wants_payment(ledger) or unsettled_sentence(ledger) is not None:
            return None
        raise not_over(self._request.order, deadline_of(ledger) if answered else None)

    async def _paid_already(self, payment: CheckoutPayment | None) -> CheckoutResult | None:
        """An order that the customer has paid in another way, or may have, must not be paid once
        more, be it that no payment of it was started here, or that nobody knows what the service
        did. Raises OrderCanceledError for one that the shop has canceled, and that is not paid."""
        order = self._request.order
        try:
            ledger = await explain_order(self._context, order)
        except NotFoundError:
            return None
        sentence = paid_sentence(ledger)
        if sentence is None:
            check_wanted(ledger)
        key = None if payment is None else payment.key
        if (unsettled := unsettled_sentence(ledger)) is not None:
            return CheckoutResult(state="unresolved", order=order, key=key, sentence=unsettled)
        if sentence is None or not self._is_price(ledger):
            return None
        return CheckoutResult(state="paid", order=order, key=key, sentence=sentence)

    def _is_price(self, ledger: Ledger) -> bool:
        """Whether what was captured is what the order costs, by this request where nobody else has
        said it; the ledger judges it by the others."""
        if ledger.expected is not None:
            return True
        money = self._request.money
        captured = [(each.currency, each.captured) for each in ledger.balances]
        return captured == [(money.currency, money.minor)]

    # --- (3) the intent --------------------------------------------------------------------------

    async def _commit_intent(self) -> CheckoutPayment:
        """Look again inside the transaction that writes: another process may have been faster."""
        try:
            await self._write_intent()
        except TallyhookError:
            raise
        except Exception:
            # Two databases' transactions can overlap; then the id of the intent was taken.
            found = await self._find()
            if found is None:
                raise
            return found
        found = await self._find()
        assert found is not None, "the intent was committed and is not there"
        return found

    async def _write_intent(self) -> None:
        row = await self._context.database.writer.commit(self._keep_intent)
        if row is not None:
            self._held = row
            self._signals.evidence_arrived.set()

    def _keep_intent(self, connection: PlainConnection) -> PendingSession | None:
        """What may be sent now; None where there is a payment already."""
        request = self._request
        known = order_records(connection, request.order)
        payment = payment_of(known)
        if payment is not None and payment.key != self._over:
            return None
        check_price(known, request)
        now = self._context.clock.now()
        record = intent(
            request,
            known=known,
            key=new_id("key_", now),
            source=self._settings.source,
            now=now,
            author=self._author,
        )
        details = intent_details(request, self._client.mask_for(request.phone))
        keep_records(connection, [record], details=details)
        row = self._row(record.key or "", held_until=now + ask_session.hold_for(self._client))
        note_pending(connection, row)
        write_phone_notes(connection, self._customer(now))
        return row

    def _customer(self, now: Instant) -> list[PhoneNote]:
        key, phone = self._context.phone_key, self._request.phone
        if key is None or phone is None:
            return []
        return [phone_note(key.digest(phone), self._request.order, "", now)]

    def _row(self, key: str, *, held_until: Instant) -> PendingSession:
        body = body_of(self._request, amount=self._settings.form.amount)
        return PendingSession(
            key=key, order=self._request.order, request=body, due_at=EARLIEST, held_until=held_until
        )

    # --- (4) asking, (5) recording ---------------------------------------------------------------

    async def _take(self, payment: CheckoutPayment) -> PendingSession | None:
        """The right to ask, with what is to be sent; None while another process has it."""
        row = await self._context.database.on_snapshot(pending_session, payment.key)
        if row is not None:
            check_same_phone(payment, self._request, sent=row.request)
            now = self._context.clock.now()
            if now < row.held_until <= ask_session.never_after(self._client, now=now):
                return None
        # An erasure may have deleted the row.
        spare = self._row(payment.key, held_until=EARLIEST)
        return await ask_session.take(self._context, self._client, payment, spare)

    # --- (6) what is known already ---------------------------------------------------------------

    async def _found(self, payment: CheckoutPayment) -> CheckoutResult:
        """The result from records alone; nothing is sent."""
        opened, refused = payment.opened, payment.refused
        if opened is None:
            assert refused is not None, "only what is settled can be found"
            return refused_result(payment, refused.reason or "")
        details = await self._context.database.on_snapshot(details_of, opened)
        return opened_result(payment, opened, kept_checkout_url(details, self._settings.form))


def _known_of(connection: PlainConnection, order: str) -> tuple[list[Record], str | None]:
    """An order's records, and what is kept beside the request of its payment."""
    records = order_records(connection, order)
    payment = payment_of(records)
    return records, None if payment is None else details_of(connection, payment.requested)


# --- what a call comes to, in one sentence for people ---------------------------------------------

OVER: Final[frozenset[Outcome]] = frozenset({"failed", "canceled", "expired", "timed_out"})
"""Outcomes after which the customer may try again with a new payment: nothing was paid."""

State = Literal["opened", "paid", "expired", "refused", "unknown", "unresolved"]
STATUSES: Final = ("open", "paid", "expired", "unknown", "unresolved")
"""As documents have them: `open` of an opened one; what was refused has no document."""


def result_document(result: CheckoutResult) -> dict[str, Any]:
    """The result as JSON values, in the payment service's own shape."""
    expires_at = result.expires_at
    return {
        "reference": result.session,
        "status": "open" if result.state == "opened" else result.state,
        "checkout_url": result.checkout_url,
        "expires_at": format_known(expires_at),
        "order": {"reference": result.order},
        "idempotency_key": result.key,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutResult:
    """What is known of the order's session.

    state         opened: the customer can pay · paid: they have, by the order's ledger · expired:
                  they have not, and the session's time is over · refused: the service will not ·
                  unknown: the service may have opened it; it is asked again, in the background
                  too · unresolved: what the order was paid is in doubt, and nobody is to be sent to
                  pay before that is settled
    checkout_url  where the customer pays, if the service gave a URL
    key           the idempotency key, for questions to the service; None of an order that was paid
                  before we had started any payment of it
    sentence      the same for people
    again_s       of an unknown one, where the service has asked for no requests at all until then:
                  seconds until the same call can say more
    created       whether this very call opened the session
    """

    state: State
    order: str
    key: str | None
    sentence: str
    session: str | None = None
    checkout_url: str | None = None
    expires_at: Instant | None = None
    again_s: int | None = None
    created: bool = field(default=False, compare=False)


def result_of(payment: CheckoutPayment, answered: Answered) -> CheckoutResult | None:
    """The result that an answer makes; None where the records know more than it says."""
    opened = payment.opened
    if isinstance(answered, Opened):
        same = opened is not None and opened.session == answered.session
        if opened is None or not same:
            return None
        return replace(opened_result(payment, opened, answered.checkout_url), created=True)
    if opened is not None:
        return None
    if isinstance(answered, SessionRefused):
        return refused_result(payment, answered.reason)
    return (
        None if payment.settled else unknown_result(payment, answered.code, wait_s=answered.wait_s)
    )


def opened_result(
    payment: CheckoutPayment, opened: Record, checkout_url: str | None
) -> CheckoutResult:
    """The session there is, and where the customer pays."""
    return CheckoutResult(
        state="opened",
        order=opened.order,
        key=payment.key,
        sentence=f"The checkout session {opened.session} of order {opened.order} is open.",
        session=opened.session,
        checkout_url=checkout_url,
        expires_at=opened.expires_at,
    )


def by_now(found: CheckoutResult, ledger: Ledger) -> CheckoutResult:
    """That the session there was is open, or was refused, is no answer where the order's money has
    come, nor the first where the session's time is over. Raises OrderCanceledError where the shop
    has canceled the order, and no money has come."""
    opened = found.session if found.created else None
    paid = paid_sentence(ledger, opened=opened)
    if paid is not None:
        return replace(found, state="paid", sentence=paid, created=False, checkout_url=None)
    check_wanted(ledger, opened=opened)
    if (unsettled := unsettled_sentence(ledger, opened=opened)) is not None:
        return replace(
            found, state="unresolved", sentence=unsettled, created=False, checkout_url=None
        )
    ended = found.expires_at is not None and ledger.as_of >= found.expires_at
    if not ended and (ledger.outcome != "expired" or found.state != "opened"):
        return found
    at = f" at {format_instant(found.expires_at)}" if found.expires_at is not None and ended else ""
    sentence = (
        f"The checkout session {found.session} of order {found.order} expired{at}, and the order's "
        f"outcome is {ledger.outcome}."
    )
    until = deadline_of(ledger)
    if ledger.outcome in OVER:
        sentence += " Ask for a new payment, so that the customer can try again."
    elif until is not None:
        sentence += (
            " What became of it may still be on its way: ask for a new payment at "
            f"{format_instant(until)}, or once its outcome is expired."
        )
    return replace(found, state="expired", sentence=sentence, created=False)


def deadline_of(ledger: Ledger) -> Instant | None:
    """When an order that waits for a final event no longer does; None where it does not wait, or
    has no deadline."""
    deadlines = [each.deadline for each in ledger.attempts if each.outcome == "pending"]
    if ledger.outcome != "pending" or not deadlines or None in deadlines:
        return None
    return max(each for each in deadlines if each is not None)


def not_over(order: str, ask_again_at: Instant | None) -> PaymentNotOverError:
    """The refusal of a second payment while the first can still bring money."""
    when = "once its outcome is failed, canceled, expired or timed_out"
    if ask_again_at is not None:
        when = f"at {format_instant(ask_again_at)}, or {when}"
    return PaymentNotOverError(
        f"Order {order}: its payment is not over, so a second one could be paid too; nothing was "
        f"sent. Ask again {when}.",
        ask_again_at=ask_again_at,
    )


def refused_result(payment: CheckoutPayment, reason: str) -> CheckoutResult:
    """That the service will not, in its own words."""
    order = payment.requested.order
    return CheckoutResult(
        state="refused",
        order=order,
        key=payment.key,
        sentence=f"The payment service refused a session for order {order}: {reason.rstrip('.')}. "
        "Mend what it names, then ask for a new payment or place a new order.",
    )


def unknown_result(payment: CheckoutPayment, code: str, *, wait_s: float = 0.0) -> CheckoutResult:
    """That nobody knows what the service did, and what is done about it."""
    again_s = ceil(wait_s) or None
    order = payment.requested.order
    start = f"Whether the payment service opened a session for order {order} is unknown ({code}). "
    if code == ask_session.KEY_TOO_OLD:
        sentence = start + (
            "It is not asked any more, since it may have forgotten the key: look the order up "
            "there, and where no session of it is open, ask for a new payment."
        )
    else:
        when = "" if again_s is None else f" in {counted(again_s, 'second')}"
        sentence = start + f"It is asked again with the same key; ask again{when} for what it says."
    return CheckoutResult(
        state="unknown", order=order, key=payment.key, sentence=sentence, again_s=again_s
    )
