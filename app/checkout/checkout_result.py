"""What a call for a checkout session comes to, in one sentence for people.

Leaves out: asking and recording. Everything here is said from records, an answer and a ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from app.checkout.ask_session import KEY_TOO_OLD
from app.checkout.faults import PaymentNotOverError
from app.checkout.payment import Answered, CheckoutPayment
from app.checkout.request import Opened, SessionRefused
from reconcile.instants import Instant, format_instant
from reconcile.ledger.ledger import Ledger, Outcome
from reconcile.ledger.records import Record

OVER: Final[frozenset[Outcome]] = frozenset({"failed", "canceled", "expired", "timed_out"})
"""Outcomes after which the customer may try again with a new payment: nothing was paid."""

State = Literal["opened", "paid", "expired", "refused", "unknown"]
STATUSES: Final = ("open", "paid", "expired", "unknown")
"""As documents have them: `open` of an opened one; what was refused has no document."""


def result_document(result: CheckoutResult) -> dict[str, Any]:
    """The result as JSON values, in the payment service's own shape."""
    expires_at = result.expires_at
    return {
        "reference": result.session,
        "status": "open" if result.state == "opened" else result.state,
        "checkout_url": result.checkout_url,
        "expires_at": None if expires_at is None else format_instant(expires_at),
        "order": {"reference": result.order},
        "idempotency_key": result.key,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutResult:
    """What is known of the order's session.

    state         opened: the customer can pay · paid: they have, by the order's ledger · expired:
                  they have not, and the session's time is over · refused: the service will not ·
                  unknown: the service may have opened it; it is asked again, in the background too
    checkout_url  where the customer pays, if the service gave a URL
    key           the idempotency key, for questions to the service; None of an order that was paid
                  before we had started any payment of it
    sentence      the same for people
    created       whether this very call opened the session
    """

    state: State
    order: str
    key: str | None
    sentence: str
    session: str | None = None
    checkout_url: str | None = None
    expires_at: Instant | None = None
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
    return None if payment.settled else unknown_result(payment, answered.code)


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
    come, nor the first where the session's time is over."""
    paid = paid_sentence(ledger)
    if paid is not None:
        return replace(found, state="paid", sentence=paid)
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
    return replace(found, state="expired", sentence=sentence)


def paid_sentence(ledger: Ledger) -> str | None:
    """That the order is paid, and how we know; None where that is not so, or not settled."""
    captured = [entry for entry in ledger.entries if entry.kind == "captured"]
    if not captured or ledger.outcome == "unresolved":
        return None
    return (
        f"Order {ledger.order} is paid, by the verified event {captured[0].cites[0]}: its outcome "
        f"is {ledger.outcome}. No new payment was started."
    )


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


def unknown_result(payment: CheckoutPayment, code: str) -> CheckoutResult:
    """That nobody knows what the service did, and what is done about it."""
    order = payment.requested.order
    start = f"Whether the payment service opened a session for order {order} is unknown ({code}). "
    if code == KEY_TOO_OLD:
        sentence = start + "The service may have forgotten its key: look the order up there."
    else:
        sentence = start + "It is asked again with the same key; ask again for what it says."
    return CheckoutResult(state="unknown", order=order, key=payment.key, sentence=sentence)
