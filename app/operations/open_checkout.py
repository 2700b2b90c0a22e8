"""Open a checkout session for an order: once, and only once, whatever fails in between.

    (1) check everything  (2) find the order's payment  (3) commit the intent and its key
    (4) ask the service, again with the same key  (5) record the answer  (6) say what is

The steps are numbered where they are done. Wherever a call ends, the next one for the order finds
the key that was committed and goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import structlog

from app.checkout.answer import (
    ComeAgain,
    Denied,
    Judged,
    Opened,
    Refused,
    Unclear,
    kept_checkout_url,
)
from app.checkout.client import CheckoutClient
from app.checkout.payment import (
    Answered,
    Payment,
    adds,
    answer_details,
    answer_record,
    check_same,
    intent,
    intent_details,
    key_is_spent,
    payment_of,
    payment_with,
    record_kind,
)
from app.checkout.request import CheckoutRequest, SoundRequest, checked
from app.clock import Clock
from app.errors import TallyhookError, UnreachableError
from app.ids import new_id
from app.store.records import add_records, details_of, records_of
from app.store.store import Store
from reconcile.instants import SECOND, Instant
from reconcile.records import Record

KEY_TOO_OLD: Final = "key_too_old"
"""Nothing was sent, because the service may have forgotten the key by now."""

State = Literal["opened", "refused", "unknown"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutResult:
    """What is known of the order's session.

    state         opened: the customer can pay · refused: the service will not · unknown: the
                  service may have opened it; ask again, with the same request
    checkout_url  where the customer pays, if the service gave a URL
    key           the idempotency key, for questions to the service
    sentence      the same for people
    """

    state: State
    order: str
    key: str
    sentence: str
    session: str | None = None
    checkout_url: str | None = None
    expires_at: Instant | None = None


async def open_checkout(
    store: Store, client: CheckoutClient, *, request: CheckoutRequest, clock: Clock
) -> CheckoutResult:
    """Open the order's session, or find the one it has.

    Raises CheckoutRequestError and CheckoutConflictError (nothing was sent), UnreachableError when
    the service does not take our credentials or the store fails. Calls for one order wait for
    each other; those that ask the same share one answer.
    """
    sound = checked(request, live=store.environment == "live")  # (1)
    async with client.turns.of(sound.order) as turn:
        said: CheckoutResult | None = turn.said(sound)
        if said is not None:
            return said
        result = await _Opening(store, client, sound, clock).run()
        turn.say(sound, result)
        return result


class _Opening:
    """One call, step by step."""

    def __init__(
        self, store: Store, client: CheckoutClient, request: SoundRequest, clock: Clock
    ) -> None:
        self._store = store
        self._client = client
        self._settings = client.settings
        self._request = request
        self._clock = clock

    async def run(self) -> CheckoutResult:
        payment = await self._find() or await self._commit_intent()
        if payment.settled:
            return await self._found(payment)  # (6)
        if self._key_is_spent(payment):
            answered: Answered = Unclear(code=KEY_TOO_OLD)
        else:
            answered = self._answered(await self._client.ask(self._request, key=payment.key))  # (4)
        return await self._record(payment, answered)

    # --- (2) the order's payment -----------------------------------------------------------------

    async def _find(self) -> Payment | None:
        order, source = self._request.order, self._settings.source
        async with self._store.reading() as connection:
            payment = payment_of(await records_of(connection, order))
        if payment is not None:
            details = await _details_of(self._store, payment.requested)
            check_same(payment, self._request, source=source, details=details)
        return payment

    def _key_is_spent(self, payment: Payment) -> bool:
        return key_is_spent(
            payment,
            now=self._clock.now(),
            lifetime=self._settings.form.key_lifetime,
            reserve=round(self._settings.retry.total_s * SECOND),
        )

    # --- (3) the intent --------------------------------------------------------------------------

    async def _commit_intent(self) -> Payment:
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
        request = self._request
        async with self._store.writing() as connection:
            known = await records_of(connection, request.order)
            if payment_of(known) is not None:
                return
            now = self._clock.now()
            record = intent(
                request,
                known=known,
                key=new_id("key_", now),
                source=self._settings.source,
                now=now,
            )
            details = intent_details(request, self._client.mask_for(request))
            await add_records(connection, [record], details=details)
        self._store.evidence_arrived.set()

    # --- (5) the answer --------------------------------------------------------------------------

    def _answered(self, answer: Judged) -> Answered:
        """What can be recorded. Raises UnreachableError for what says nothing of the order."""
        if isinstance(answer, Denied):
            what = "address" if answer.status in (404, 405) else "token"
            raise UnreachableError(
                f"The payment service answered {answer.status}: check the {what} of the checkout "
                f"settings, then ask again. Order {self._request.order} keeps its key."
            )
        assert not isinstance(answer, ComeAgain), "the client asks until it is clear"
        return answer

    async def _record(self, payment: Payment, answered: Answered) -> CheckoutResult:
        """Write it down, unless another process has already written as much."""
        async with self._store.writing() as connection:
            known = await records_of(connection, payment.requested.order)
            current = payment_with(known, payment.key) or payment
            if adds(answered, current):
                now = self._clock.now()
                record = answer_record(answered, payment, record_id=new_id("rec_", now), now=now)
                await add_records(connection, [record], details=answer_details(answered))
                current = payment_with([*known, record], payment.key) or payment
        self._store.evidence_arrived.set()
        log.info("checkout answered", order=payment.requested.order, kind=record_kind(answered))
        return _result(current, answered) or await self._found(current)

    # --- (6) what is known already ---------------------------------------------------------------

    async def _found(self, payment: Payment) -> CheckoutResult:
        """The result from records alone; nothing is sent."""
        opened, refused = payment.opened, payment.refused
        if opened is None:
            assert refused is not None, "only what is settled can be found"
            return _refused(payment, refused.reason or "")
        details = await _details_of(self._store, opened)
        return _opened(payment, opened, kept_checkout_url(details, self._settings.form))


def _result(payment: Payment, answered: Answered) -> CheckoutResult | None:
    """The result that an answer makes; None where the records know more than it says."""
    opened = payment.opened
    if isinstance(answered, Opened):
        same = opened is not None and opened.session == answered.session
        return _opened(payment, opened, answered.checkout_url) if opened and same else None
    if opened is not None:
        return None
    if isinstance(answered, Refused):
        return _refused(payment, answered.reason)
    return None if payment.settled else _unknown(payment, answered.code)


def _opened(payment: Payment, opened: Record, checkout_url: str | None) -> CheckoutResult:
    return CheckoutResult(
        state="opened",
        order=opened.order,
        key=payment.key,
        sentence=f"The checkout session {opened.session} of order {opened.order} is open.",
        session=opened.session,
        checkout_url=checkout_url,
        expires_at=opened.expires_at,
    )


def _refused(payment: Payment, reason: str) -> CheckoutResult:
    order = payment.requested.order
    return CheckoutResult(
        state="refused",
        order=order,
        key=payment.key,
        sentence=f"The payment service refused a session for order {order}: {reason.rstrip('.')}. "
        "Nothing more is sent for it; mend what it names and place a new order.",
    )


def _unknown(payment: Payment, code: str) -> CheckoutResult:
    order = payment.requested.order
    start = f"Whether the payment service opened a session for order {order} is unknown ({code}). "
    if code == KEY_TOO_OLD:
        sentence = start + "The service may have forgotten its key: look the order up there."
    else:
        sentence = start + "Ask again with the same request: it is sent with the same key."
    return CheckoutResult(state="unknown", order=order, key=payment.key, sentence=sentence)


async def _details_of(store: Store, record: Record) -> str | None:
    async with store.reading() as connection:
        return await details_of(connection, record)
