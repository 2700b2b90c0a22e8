"""An order's logical payment: what its records say of it, and the records that come of an answer.

Leaves out: reading and writing them. The store is the caller's.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.checkout.request import (
    AnswerUnclear,
    CheckoutConflictError,
    Opened,
    OrderCanceledError,
    SessionRefused,
    SoundRequest,
    phone_in,
    start_digest,
    without_query,
)
from app.core.masking import Mask
from reconcile.canonical import canonical_json
from reconcile.instants import Duration, Instant, format_instant
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import STILL_ASKING, Record, RecordKind

Answered = Opened | SessionRefused | AnswerUnclear
"""What of an answer is written down."""

_KINDS: Final[dict[type[Answered], RecordKind]] = {
    Opened: "session_opened",
    SessionRefused: "session_refused",
    AnswerUnclear: "session_unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutPayment:
    """One idempotency key and the records that carry it. `key` is the one ever sent for it."""

    key: str
    requested: Record
    opened: Record | None = None
    refused: Record | None = None
    unknown: Record | None = None

    @property
    def settled(self) -> bool:
        """Whether the service has said what became of it."""
        return self.opened is not None or self.refused is not None


def payment_of(records: Iterable[Record]) -> CheckoutPayment | None:
    """The order's payment, or None when none was ever asked for.

    An opened session outweighs a refusal of the same key: money can move in it.
    """
    known = sorted(records, key=lambda record: (record.recorded_at, record.record_id))
    asked = [record for record in known if record.kind == "session_requested" and record.key]
    if not asked:
        return None
    return payment_with(known, asked[-1].key or "")


def payment_with(records: Iterable[Record], key: str) -> CheckoutPayment | None:
    """The payment of this key; None if it was never asked.

    Of several records of a kind the first counts; of `session_unknown` the last.
    """
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
    payment: CheckoutPayment, request: SoundRequest, *, source: str, details: str | None
) -> None:
    """Raises CheckoutConflictError unless `request` asks for this payment again.

    Once the service has said what became of it, only money and source must agree: nothing is sent
    any more. Before, everything must: the key may only be sent with the body it was made for.
    """
    before = payment.requested.money
    if before != request.money:
        raise _conflict(payment, request, f"over {before}, now over {request.money}")
    if payment.requested.source != source:
        raise _conflict(payment, request, "at another source than now")
    if not payment.settled and _digest_in(details) != start_digest(request):
        raise _conflict(payment, request, "with another phone number or other return URLs")


def check_price(records: Iterable[Record], request: SoundRequest) -> None:
    """Raises CheckoutConflictError where the shop has said that the order costs something else:
    what came in such a session would be too little or too much, and the order unresolved."""
    priced = [each for each in records if each.kind == "order_placed" and each.money is not None]
    if not priced:
        return
    price = max(priced, key=lambda each: (each.recorded_at, each.record_id)).money
    if price != request.money:
        raise CheckoutConflictError(
            f"Order {request.order} costs {price}, as the shop has said, and its checkout was "
            f"asked for over {request.money}; nothing was sent. Ask for what it costs, or PUT the "
            "order's new amount first.",
            before=price,
            asked=request.money,
        )


def check_same_phone(payment: CheckoutPayment, request: SoundRequest, *, sent: bytes) -> None:
    """Raises CheckoutConflictError where what was sent has another number; the digest cannot show
    for certain."""
    if phone_in(sent) != request.phone:
        raise _conflict(payment, request, "with another phone number or other return URLs")


def _conflict(
    payment: CheckoutPayment, request: SoundRequest, difference: str
) -> CheckoutConflictError:
    return CheckoutConflictError(
        f"Order {request.order}: its checkout was asked for {difference}; nothing was sent. "
        "Ask for it as before, or place a new order.",
        before=payment.requested.money,
        asked=request.money,
    )


def _digest_in(details: str | None) -> object:
    try:
        document = json.loads(details or "")
    except ValueError:
        return None
    return document.get("digest") if isinstance(document, dict) else None


def key_is_spent(
    payment: CheckoutPayment, *, now: Instant, lifetime: Duration, reserve: Duration
) -> bool:
    """Whether the service may have forgotten the key before a call that takes `reserve` ends."""
    return now + reserve >= payment.requested.at + lifetime


# --- whether the order wants a payment ------------------------------------------------------------


def wants_payment(ledger: Ledger) -> bool:
    """Whether the order is neither paid nor canceled by the shop: then no payment is started."""
    return paid_sentence(ledger) is None and ledger.case.filed.canceled is None


def paid_sentence(ledger: Ledger, *, opened: str | None = None) -> str | None:
    """That the order is paid, and how we know; None where that is not so, or not settled.
    `opened`: the session that was opened meanwhile."""
    captured = [entry for entry in ledger.entries if entry.kind == "captured"]
    if not captured or ledger.outcome == "unresolved":
        return None
    return (
        f"Order {ledger.order} is paid, by the verified event {captured[0].cites[0]}: its outcome "
        f"is {ledger.outcome}. {_did(opened) or 'No new payment was started'}."
    )


def unsettled_sentence(ledger: Ledger, *, opened: str | None = None) -> str | None:
    """That nobody can say yet whether the order is paid; None where that can be said, also where
    plainly too little came (`amount_differs`). `opened`: the session that was opened meanwhile."""
    if ledger.outcome != "unresolved" or ledger.reasons[0].code == "amount_differs":
        return None
    return (
        f"What order {ledger.order} was paid is not settled: its outcome is unresolved. "
        f"{_did(opened) or 'Nothing was sent'}, and nobody is to be sent to pay until it is "
        "settled: they might pay twice. Ask again then."
    )


def _did(opened: str | None) -> str:
    return f"Its session {opened} was opened meanwhile; send nobody there" if opened else ""


def check_wanted(ledger: Ledger, *, opened: str | None = None) -> None:
    """Raises OrderCanceledError where the shop has canceled the order: it would owe back whatever
    comes for it. `opened`: the session that was opened meanwhile."""
    did = _did(opened) or "Nothing was sent"
    canceled = ledger.case.filed.canceled
    if canceled is not None:
        raise OrderCanceledError(
            f"Order {ledger.order} was canceled by the shop at {format_instant(canceled.at)}: what "
            f"came for it would be owed back. {did}; place a new order, with a reference of its "
            "own."
        )


# --- records -------------------------------------------------------------------------------------


def intent(
    request: SoundRequest,
    *,
    known: Iterable[Record],
    key: str,
    source: str,
    now: Instant,
    author: str,
) -> Record:
    """The record that is committed before the first byte is sent. `author`: who asked for it.

    Its id follows from the order and the number of its payments, so that of two processes which
    both found no payment only one can write: the other's row has the same primary key.
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


def intent_details(request: SoundRequest, mask: Mask) -> str:
    """`{"digest", "return_urls"}`: what the key was made for, without what is the customer's."""
    given = {"success": request.success_url, "cancel": request.cancel_url}
    urls = {name: url for name, url in given.items() if url is not None}
    return canonical_json(
        {
            "digest": start_digest(request),
            "return_urls": {name: mask.hide(without_query(url)) for name, url in urls.items()},
        }
    ).decode()


def record_kind(answered: Answered) -> RecordKind:
    """The kind of record that an answer makes."""
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
    """The record that comes of an answer. `tell`: of one that is unclear, a person must know.
    `author`: who asked the service."""
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
    """The text that is kept beside that record: the answer, or why there is none."""
    if isinstance(answered, AnswerUnclear):
        return canonical_json({"code": answered.code}).decode()
    return answered.details


def adds(answered: Answered, payment: CheckoutPayment, *, tell: bool = False) -> bool:
    """Whether the answer says more than the records do; another process may have been faster.

    A second session for one key is the service's mistake, and must be known: it can take money.
    """
    if isinstance(answered, Opened):
        return payment.opened is None or payment.opened.session != answered.session
    if isinstance(answered, SessionRefused):
        return not payment.settled
    known = payment.unknown
    return not payment.settled and (known is None or (tell and known.reason == STILL_ASKING))
