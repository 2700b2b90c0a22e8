"""The state of an order's payment, read from the order's records, and the records to write.

This module neither loads nor stores records.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.checkout import request as requests
from app.checkout.request import AnswerUnclear, CheckoutConflictError, Opened, SessionRefused
from app.core.masking import Mask
from reconcile.canonical import canonical_json
from reconcile.instants import Duration, Instant, format_instant
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import STILL_ASKING, Record, RecordKind

Answered = Opened | SessionRefused | AnswerUnclear

_KINDS: Final[dict[type[Answered], RecordKind]] = {
    Opened: "session_opened",
    SessionRefused: "session_refused",
    AnswerUnclear: "session_unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutPayment:
    """One payment of an order: all records with one idempotency key. Every request for this payment
    uses this key."""

    key: str
    requested: Record
    opened: Record | None = None
    refused: Record | None = None
    unknown: Record | None = None

    @property
    def settled(self) -> bool:
        """Return whether the service has opened or refused the session."""
        return self.opened is not None or self.refused is not None


def payment_of(records: Iterable[Record]) -> CheckoutPayment | None:
    """Return the order's latest payment, or None if no payment was ever requested."""
    known = sorted(records, key=lambda record: (record.recorded_at, record.record_id))
    asked = [record for record in known if record.kind == "session_requested" and record.key]
    if not asked:
        return None
    return payment_with(known, asked[-1].key or "")


def payment_with(records: Iterable[Record], key: str) -> CheckoutPayment | None:
    """Return the payment with this idempotency key, if it was requested."""
    known = sorted(records, key=lambda record: (record.recorded_at, record.record_id))
    own = {record.kind: record for record in reversed(known) if record.key == key}
    unknown = [r for r in known if r.key == key and r.kind == "session_unknown"]
    requested = own.get("session_requested")
    if requested is None:
        return None
    return CheckoutPayment(
        key=key,
        requested=requested,
        opened=own.get("session_opened"),
        refused=own.get("session_refused"),
        unknown=unknown[-1] if unknown else None,
    )


def check_same(
    payment: CheckoutPayment, request: requests.SoundRequest, *, source: str, details: str | None
) -> None:
    """Raise CheckoutConflictError unless `request` repeats the earlier request of this payment.

    Until the service has answered, the whole body must be equal, because it is sent again under the
    same idempotency key. Afterwards, only money and source must agree.
    """
    before = payment.requested.money
    if before != request.money:
        raise _conflict(payment, request, f"for {before}, now for {request.money}")
    if payment.requested.source != source:
        raise _conflict(payment, request, "at another source")
    try:
        intended = json.loads(details or "")
    except ValueError:
        intended = None
    digest = intended.get("digest") if isinstance(intended, dict) else None
    if not payment.settled and digest != requests.request_digest(request):
        raise _conflict(payment, request, "with another phone number or other return URLs")


def check_price(records: Iterable[Record], request: requests.SoundRequest) -> None:
    """Raise CheckoutConflictError if the shop has stated another price for the order."""
    priced = [each for each in records if each.kind == "order_placed" and each.money is not None]
    if not priced:
        return
    last = max(priced, key=lambda each: (each.recorded_at, each.record_id))
    due = last.due
    if due != request.money:
        costs = (
            f"costs {due}"
            if due == last.money
            else f"costs {last.money}, of which {due} is left to pay after tenders"
        )
        raise CheckoutConflictError(
            f"Order {request.order} {costs}, but its checkout was requested for {request.money}; "
            "nothing was sent. Request the amount due, or first PUT the order's new amount.",
            before=due,
            asked=request.money,
        )


def check_same_phone(
    payment: CheckoutPayment, request: requests.SoundRequest, *, sent: bytes
) -> None:
    """Raise CheckoutConflictError if the body that was sent has another phone number.

    The stored digest has only a checksum of the number.
    """
    if requests.phone_in(sent) != request.phone:
        raise _conflict(payment, request, "with another phone number or other return URLs")


def _conflict(
    payment: CheckoutPayment, request: requests.SoundRequest, difference: str
) -> CheckoutConflictError:
    return CheckoutConflictError(
        f"The checkout of order {request.order} was first requested {difference}; nothing was "
        "sent. Repeat the earlier request unchanged, or place a new order.",
        before=payment.requested.money,
        asked=request.money,
    )


def key_is_spent(
    payment: CheckoutPayment, *, now: Instant, lifetime: Duration, reserve: Duration
) -> bool:
    """Return whether the service could forget the idempotency key during a call that starts now.

    lifetime  time for which the service remembers a key
    reserve  longest duration of a call
    """
    return now + reserve >= payment.requested.at + lifetime


# --- whether the order wants a payment ------------------------------------------------------------


def wants_payment(ledger: Ledger) -> bool:
    """Return whether the order is neither paid nor canceled by the shop."""
    return paid_sentence(ledger) is None and ledger.case.filed.canceled is None


def paid_sentence(ledger: Ledger, *, opened: str | None = None) -> str | None:
    """Return a sentence that says that the order is paid, with the proving event; None if unknown.

    opened  session that the present call has opened, if any
    """
    captured = [entry for entry in ledger.entries if entry.kind == "captured"]
    if not captured or ledger.outcome == "unresolved":
        return None
    return (
        f"Order {ledger.order} is paid, according to the verified event {captured[0].cites[0]}: "
        f"its outcome is {ledger.outcome}. {_did(opened) or 'No new payment was started'}."
    )


def unsettled_sentence(ledger: Ledger, *, opened: str | None = None) -> str | None:
    """Return a sentence that says that the amount paid is in doubt; None if it is certain or too
    small.

    opened  session that the present call has opened, if any
    """
    if ledger.outcome != "unresolved" or ledger.reasons[0].code == "amount_differs":
        return None
    return (
        f"How much was paid for order {ledger.order} is not settled, so its outcome is "
        f"unresolved. {_did(opened) or 'Nothing was sent'}. Send nobody to pay until this is "
        "settled, because they might pay twice; then try again."
    )


def _did(opened: str | None) -> str:
    return (
        f"Its session {opened} was opened in the meantime; send no customer there" if opened else ""
    )


def check_wanted(ledger: Ledger, *, opened: str | None = None) -> None:
    """Raise OrderCanceledError if the shop has canceled the order.

    opened  session that the present call has opened, if any
    """
    did = _did(opened) or "Nothing was sent"
    canceled = ledger.case.filed.canceled
    if canceled is not None:
        raise requests.OrderCanceledError(
            f"The shop canceled order {ledger.order} at {format_instant(canceled.at)}, so a "
            f"payment would have to be refunded. {did}. Place a new order with a new reference."
        )


# --- records -------------------------------------------------------------------------------------


def intent(
    request: requests.SoundRequest,
    *,
    known: Iterable[Record],
    key: str,
    source: str,
    now: Instant,
    author: str,
) -> Record:
    """Build the record of the intent to open a payment. Commit it before sending.

    The record's id comes from the order and the number of its payments. So of two processes that
    start one payment, only one can write the record.
    """
    number = sum(record.kind == "session_requested" for record in known)
    name = json.dumps(["session_requested", request.order, number]).encode()
    return Record(
        record_id="rec_" + hashlib.sha256(name).hexdigest()[:30],
        recorded_at=now,
        kind="session_requested",
        order=request.order,
        at=now,
        money=request.money,
        source=source,
        key=key,
        author=author,
    )


def intent_details(request: requests.SoundRequest, mask: Mask) -> str:
    """Return the JSON that is stored with the intent: the request's digest, and its return URLs
    with the customer's data masked."""
    given = {"success": request.success_url, "cancel": request.cancel_url}
    urls = {name: url for name, url in given.items() if url is not None}
    return canonical_json(
        {
            "digest": requests.request_digest(request),
            "return_urls": {
                name: mask.hide(requests.without_query(url)) for name, url in urls.items()
            },
        }
    ).decode()


def record_kind(answered: Answered) -> RecordKind:
    return _KINDS[type(answered)]


def answer_record(
    answered: Answered,
    payment: CheckoutPayment,
    *,
    record_id: str,
    now: Instant,
    author: str,
    tell: bool = False,
) -> Record:
    """Build the record of an answer from the payment service.

    tell  whether people are notified of an unclear answer
    author  name of the caller that requests the session
    """
    opened = answered if isinstance(answered, Opened) else None
    reason = None if tell else STILL_ASKING
    if not isinstance(answered, AnswerUnclear):
        reason = answered.reason if isinstance(answered, SessionRefused) else None
    return Record(
        record_id=record_id,
        recorded_at=now,
        kind=record_kind(answered),
        order=payment.requested.order,
        at=now,
        source=payment.requested.source,
        key=payment.key,
        session=opened.session if opened is not None else None,
        expires_at=opened.expires_at if opened is not None else None,
        reason=reason,
        author=author,
    )


def answer_details(answered: Answered) -> str:
    """Return the text that is stored with an answer's record. For an unclear answer, the text
    contains a code for the reason."""
    if isinstance(answered, AnswerUnclear):
        return canonical_json({"code": answered.code}).decode()
    return answered.details


def adds(answered: Answered, payment: CheckoutPayment, *, tell: bool = False) -> bool:
    """Return whether the answer adds something to the payment's records.

    A second session for one key, by the service's mistake, is always added, because a customer can
    pay in it.
    """
    if isinstance(answered, Opened):
        return payment.opened is None or payment.opened.session != answered.session
    if isinstance(answered, SessionRefused):
        return not payment.settled
    known = payment.unknown
    return not payment.settled and (known is None or (tell and known.reason == STILL_ASKING))
