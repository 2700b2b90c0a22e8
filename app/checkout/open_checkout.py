"""Open the checkout session of an order's payment. A payment never gets a second session.

    (1) check everything  (2) find the order's payment  (3) commit the intent and its key
    (4) ask the service, if necessary several times with the same key
    (5) record the answer  (6) return the result

The code's comments use these numbers. If a call ends early, the next call continues with the
committed key.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Annotated, Final, Literal, NotRequired, TypedDict

import anyio

from app.access.operators import OWNER
from app.checkout import ask_session
from app.checkout import payment as payments
from app.checkout import request as requests
from app.checkout.client import CheckoutClient
from app.checkout.payment import Answered, CheckoutPayment, payment_of
from app.checkout.request import CheckoutRequest, Opened, SoundRequest
from app.context.context import AppContext
from app.core.errors import NotFoundError, TallyhookError
from app.core.ids import new_id
from app.core.text import counted
from app.database.statements import PlainConnection
from app.orders.pending_session_store import PendingSession, note_pending, pending_session
from app.orders.read_orders import explain_order
from app.orders.record_store import details_of, keep_records, order_records
from app.receiving.caught_up import must_have_read
from app.receiving.phone_store import phone_note, write_phone_notes
from reconcile.documents import InstantText, OrderReference
from reconcile.instants import EARLIEST, SECOND, Instant, format_instant, format_known
from reconcile.ledger.ledger import Ledger, Outcome
from reconcile.ledger.records import Record

ASKED_ELSEWHERE: Final = "asked_elsewhere"

LOOK_S: Final = 0.1
"""Seconds between two checks whether another process has recorded an answer."""


async def open_checkout(
    context: AppContext,
    client: CheckoutClient,
    *,
    request: CheckoutRequest,
    new_payment: bool = False,
    author: str = OWNER,
) -> CheckoutResult:
    """Open a session for the order, or return the session that the order has.

    new_payment  whether the customer tries again after an earlier payment has ended
    author  name of the caller; stored with the record

    Raise CheckoutRequestError, CheckoutConflictError, PaymentNotOverError or OrderCanceledError if
    nothing was sent, and UnreachableError if the service refuses our credentials or the store
    fails.
    """
    live, requires = context.database.environment == "live", client.settings.api.requires
    sound = requests.check_request(request, live=live, requires=requires)  # (1)
    asked = (sound, new_payment)
    async with client.flights.of(sound.order) as flight:
        answered: CheckoutResult | None = flight.answer_to(asked)
        if answered is not None:
            return answered
        result = await _Opening(
            context, client, sound, new_payment=new_payment, author=author
        ).run()
        if result.state in ("opened", "refused"):
            # A session opened by this call may have been paid or canceled while we asked.
            result = by_now(result, await explain_order(context, result.order))
        flight.leave(asked, replace(result, created=False))
        return result


class _Opening:
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
        """Row that this call may send, because this call has committed the intent."""
        self._decided = False
        self._over: str | None = None
        """Key of the earlier payment, if that payment had already ended when this call began."""

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
            row = self._held or await self._claim(payment)
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

        def read(connection: PlainConnection) -> tuple[list[Record], str | None]:
            records = order_records(connection, order)
            found = payment_of(records)
            return records, None if found is None else details_of(connection, found.requested)

        records, details = await self._context.database.on_snapshot(read)
        payment = payment_of(records)
        if self._new_payment and not self._decided:
            self._over = await self._over_by_now(payment, records)
            self._decided = True
        if payment is None or payment.key == self._over:
            return None
        payments.check_same(payment, self._request, source=source, details=details)
        return payment

    async def _over_by_now(
        self, payment: CheckoutPayment | None, records: list[Record]
    ) -> str | None:
        """Return the idempotency key of the order's earlier payment if that payment has ended
        without success.

        Return None without an earlier payment, or if a later step reports the order's state. Raise
        PaymentNotOverError if the earlier payment can still succeed.
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
        if requested > 1 or not payments.wants_payment(ledger):
            return None
        if payments.unsettled_sentence(ledger) is not None:
            return None
        raise not_over(self._request.order, last_deadline(ledger) if answered else None)

    async def _paid_already(self, payment: CheckoutPayment | None) -> CheckoutResult | None:
        """Return a result if the order is paid, or the amount paid is in doubt, else None.

        Raise OrderCanceledError if the shop has canceled the unpaid order.
        """
        order = self._request.order
        try:
            ledger = await explain_order(self._context, order)
        except NotFoundError:
            return None
        sentence = payments.paid_sentence(ledger)
        if sentence is None:
            payments.check_wanted(ledger)
        key = None if payment is None else payment.key
        if (unsettled := payments.unsettled_sentence(ledger)) is not None:
            return CheckoutResult(state="unresolved", order=order, key=key, sentence=unsettled)
        # The ledger judges the amount if it knows the price. Otherwise this request states the
        # price.
        money = self._request.money
        captured = [(each.currency, each.captured) for each in ledger.balances]
        is_price = ledger.expected is not None or captured == [(money.currency, money.minor)]
        if sentence is None or not is_price:
            return None
        return CheckoutResult(state="paid", order=order, key=key, sentence=sentence)

    # --- (3) the intent --------------------------------------------------------------------------

    async def _commit_intent(self) -> CheckoutPayment:
        """Commit the intent to open a payment, and return the payment, perhaps of a faster
        process."""
        try:
            await self._write_intent()
        except TallyhookError:
            raise
        except Exception:
            # Transactions of two processes can overlap. The other one has then taken the intent's
            # id.
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
        """Store the intent to open a payment, and return its request's row.

        Return None if the order already has a payment.
        """
        request = self._request
        known = order_records(connection, request.order)
        payment = payment_of(known)
        if payment is not None and payment.key != self._over:
            return None
        payments.check_price(known, request)
        now = self._context.clock.now()
        record = payments.intent(
            request,
            known=known,
            key=new_id("key_", now),
            source=self._settings.source,
            now=now,
            author=self._author,
        )
        details = payments.intent_details(request, self._client.mask_for(request.phone))
        keep_records(connection, [record], details=details)
        row = self._row(record.key or "", held_until=now + ask_session.hold_for(self._client))
        note_pending(connection, row)
        phone_key = self._context.phone_key
        if phone_key is not None and request.phone is not None:
            digest = phone_key.digest(request.phone)
            write_phone_notes(connection, [phone_note(digest, request.order, "", now)])
        return row

    def _row(self, key: str, *, held_until: Instant) -> PendingSession:
        body = requests.request_body(self._request)
        return PendingSession(
            key=key, order=self._request.order, request=body, due_at=EARLIEST, held_until=held_until
        )

    # --- (4) asking, (5) recording ---------------------------------------------------------------

    async def _claim(self, payment: CheckoutPayment) -> PendingSession | None:
        row = await self._context.database.on_snapshot(pending_session, payment.key)
        if row is not None:
            payments.check_same_phone(payment, self._request, sent=row.request)
            now = self._context.clock.now()
            if now < row.held_until <= ask_session.never_after(self._client, now=now):
                return None
        # An erasure may have deleted the row.
        spare = self._row(payment.key, held_until=EARLIEST)
        return await ask_session.claim(self._context, self._client, payment, spare)

    # --- (6) the result --------------------------------------------------------------------------

    async def _found(self, payment: CheckoutPayment) -> CheckoutResult:
        opened, refused = payment.opened, payment.refused
        if opened is None:
            assert refused is not None, "only what is settled can be found"
            return refused_result(payment, refused.reason or "")
        details = await self._context.database.on_snapshot(details_of, opened)
        url = requests.kept_checkout_url(details, self._settings.api)
        return opened_result(payment, opened, url)


# --- the result, with a sentence for people -------------------------------------------------------

OVER: Final[frozenset[Outcome]] = frozenset({"failed", "canceled", "expired", "timed_out"})
"""Outcomes after which the customer may try again with a new payment, because nothing was paid."""

CheckoutState = Literal["opened", "paid", "expired", "refused", "unknown", "unresolved"]


class SessionOrderDocument(TypedDict):
    reference: OrderReference


class SessionDocument(TypedDict):
    """A checkout session, in the form that the payment service uses. A refused session has no such
    document."""

    reference: Annotated[str | None, "The payment service's reference of the session."]
    status: Literal["open", "paid", "expired", "unknown", "unresolved"]
    checkout_url: str | None
    expires_at: InstantText | None
    order: SessionOrderDocument
    idempotency_key: Annotated[
        str | None,
        "The idempotency key, for questions to the payment service; null if Tallyhook "
        "started no payment.",
    ]
    detail: NotRequired[str]


def result_document(result: CheckoutResult) -> SessionDocument:
    assert result.state != "refused"
    return {
        "reference": result.session,
        "status": "open" if result.state == "opened" else result.state,
        "checkout_url": result.checkout_url,
        "expires_at": format_known(result.expires_at),
        "order": {"reference": result.order},
        "idempotency_key": result.key,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutResult:
    """State of the order's session."""

    state: CheckoutState
    """Opened: the customer can pay · paid: the customer has paid · expired: no payment came ·
    refused: the service refuses · unknown: the service has not answered clearly, and the background
    task asks again · unresolved: the amount paid is in doubt."""
    order: str
    key: str | None
    """Idempotency key. None if the order was paid without our call."""
    sentence: str
    session: str | None = None
    checkout_url: str | None = None
    """URL at which the customer pays, if known."""
    expires_at: Instant | None = None
    again_s: int | None = None
    """Seconds for which the service wants no further requests."""
    created: bool = field(default=False, compare=False)
    """True if this call opened the session."""


def result_of(payment: CheckoutPayment, answered: Answered) -> CheckoutResult | None:
    """Build the call's result from the service's answer. Return None if the stored records are
    newer or more certain than the answer."""
    opened = payment.opened
    if isinstance(answered, Opened):
        same = opened is not None and opened.session == answered.session
        if opened is None or not same:
            return None
        return replace(opened_result(payment, opened, answered.checkout_url), created=True)
    if opened is not None:
        return None
    if isinstance(answered, requests.SessionRefused):
        return refused_result(payment, answered.reason)
    return (
        None if payment.settled else unknown_result(payment, answered.code, wait_s=answered.wait_s)
    )


def opened_result(
    payment: CheckoutPayment, opened: Record, checkout_url: str | None
) -> CheckoutResult:
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
    """Return the result updated from the order's ledger, which can show a payment or an expiry.

    Raise OrderCanceledError if the shop has canceled the order and no money has come.
    """
    opened = found.session if found.created else None
    paid = payments.paid_sentence(ledger, opened=opened)
    if paid is not None:
        return replace(found, state="paid", sentence=paid, created=False, checkout_url=None)
    payments.check_wanted(ledger, opened=opened)
    if (unsettled := payments.unsettled_sentence(ledger, opened=opened)) is not None:
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
    until = last_deadline(ledger)
    if ledger.outcome in OVER:
        sentence += " Ask for a new payment, so that the customer can try again."
    elif until is not None:
        sentence += (
            " The provider's last event about it may still arrive: ask for a new payment at "
            f"{format_instant(until)}, or once its outcome is expired."
        )
    return replace(found, state="expired", sentence=sentence, created=False)


def last_deadline(ledger: Ledger) -> Instant | None:
    """Return the latest deadline of a pending order's payment attempts, if all have one."""
    deadlines = [each.deadline for each in ledger.attempts if each.outcome == "pending"]
    if ledger.outcome != "pending" or not deadlines or None in deadlines:
        return None
    return max(each for each in deadlines if each is not None)


def not_over(order: str, ask_again_at: Instant | None) -> requests.PaymentNotOverError:
    """Build the error for a request for a new payment while the earlier payment can still bring
    money."""
    when = "once its outcome is failed, canceled, expired or timed_out"
    if ask_again_at is not None:
        when = f"at {format_instant(ask_again_at)}, or {when}"
    return requests.PaymentNotOverError(
        f"Order {order}: its payment is still open, so a second one could be paid too; nothing "
        f"was sent. Try again {when}.",
        ask_again_at=ask_again_at,
    )


def refused_result(payment: CheckoutPayment, reason: str) -> CheckoutResult:
    """Build the result for a session that the service refused. The result's sentence contains the
    service's reason."""
    order = payment.requested.order
    return CheckoutResult(
        state="refused",
        order=order,
        key=payment.key,
        sentence=f"The payment service refused a session for order {order}: {reason.rstrip('.')}. "
        "Correct the cause, then ask for a new payment or place a new order.",
    )


def unknown_result(payment: CheckoutPayment, code: str, *, wait_s: float = 0.0) -> CheckoutResult:
    """Build the result for an unclear answer of the service. The result's sentence says what
    happens next."""
    again_s = ceil(wait_s) or None
    order = payment.requested.order
    start = f"Whether the payment service opened a session for order {order} is unknown ({code}). "
    if code == ask_session.KEY_TOO_OLD:
        sentence = start + (
            "Tallyhook does not ask the service again, because the service may have forgotten "
            "the idempotency key. Look the order up at the service; if it has no open session "
            "there, ask for a new payment."
        )
    else:
        when = "" if again_s is None else f" in {counted(again_s, 'second')}"
        sentence = start + (
            "Tallyhook is sending the request to the service again, with the same idempotency "
            f"key. Repeat your request{when}."
        )
    return CheckoutResult(
        state="unknown", order=order, key=payment.key, sentence=sentence, again_s=again_s
    )
