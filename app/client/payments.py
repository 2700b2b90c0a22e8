"""Payments that the shop starts, and what it reports of its orders.

The shop keeps nothing of a payment before it asks: one order has one payment, however often the
same call is made, and a call that got no answer is made again as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote

from .asking import Ask, NotUnderstood, Steps, checked, sentence_of

State = Literal[
    "open", "paid", "expired", "unknown", "unresolved", "differs", "not_over", "refused"
]

_OF_200: Final[Mapping[str, State]] = {
    "open": "open", "paid": "paid", "expired": "expired", "unknown": "unknown",
    "unresolved": "unresolved",
}  # fmt: skip
_OF_409: Final[Mapping[str, State]] = {
    "payment_differs": "differs",
    "payment_not_over": "not_over",
    "order_canceled": "refused",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What became of asking for an order's payment.

    state         open: send the customer to `checkout_url` · paid: nobody is to be sent ·
                  unresolved: it is in doubt what was paid, and nobody is to be sent until that is
                  settled ·
                  expired: the session's time is over · unknown: make the same call after
                  `again_s` · differs: the order has a payment of another amount or currency, or
                  has none yet and costs something else by the shop's own word (`PUT`); or, while
                  its payment is unknown, that has another phone number or return URL: ask as
                  before ·
                  not_over: a new payment is asked for and the earlier may still come · refused:
                  `sentence` says why
    checkout_url  where the customer pays, where the service gave an address
    again_s       of `unknown` and `not_over`: seconds until the same call may say more
    """

    state: State
    order: str
    checkout_url: str | None = None
    again_s: int | None = None
    sentence: str = ""


def start_payment(
    order: str,
    amount: str,
    currency: str,
    *,
    phone: str | None = None,
    success_url: str | None = None,
    cancel_url: str | None = None,
    new_payment: bool = False,
) -> Steps[Started]:
    """Open the order's checkout session, or find the one that it has.

    amount       in major units, as a text: "1500.00"
    new_payment  whether an earlier payment that failed is to be followed by another

    Raises TokenRefused, Unavailable (make the same call again), NotConfigured and NotUnderstood.
    """
    asked: dict[str, Any] = {
        "order": {"reference": order, "amount": amount, "currency": currency},
        "new_payment": new_payment,
    }
    if phone is not None:
        asked["customer"] = {"phone": phone}
    urls = {"success": success_url, "cancel": cancel_url}
    if any(urls.values()):
        asked["return_urls"] = {name: url for name, url in urls.items() if url is not None}
    body = json.dumps(asked).encode("utf-8")
    answer = checked((yield Ask(method="POST", path="/api/v1/checkout/sessions", body=body)))
    found = answer.document()
    if answer.status in (200, 201, 202):
        state = _OF_200.get(str(found.get("status")))
        if state is not None:
            return Started(
                state=state,
                order=order,
                checkout_url=found.get("checkout_url"),
                again_s=answer.retry_after_s() if state == "unknown" else None,
                sentence=found.get("detail") or "",
            )
    elif answer.status == 409 and (state := _OF_409.get(str(found.get("code")))) is not None:
        again_s = answer.retry_after_s() if state == "not_over" else None
        return Started(state=state, order=order, again_s=again_s, sentence=sentence_of(answer))
    elif answer.status == 422:
        return Started(
            state="refused", order=order, sentence=_sentences(found, sentence_of(answer))
        )
    raise NotUnderstood(f"the payment's answer is not known here: {sentence_of(answer)}")


def tell_order(
    order: str,
    amount: str,
    currency: str,
    *,
    placed_at: str | None = None,
    canceled_at: str | None = None,
    fulfilled_at: str | None = None,
) -> Steps[Mapping[str, Any]]:
    """Tell what an order costs, when it was placed, and, once it was, when it was canceled or
    shipped (RFC 3339): an order that was canceled is not to be shipped, and what is held of it is
    owed back. Returns the order as `GET /api/v1/orders/…` gives it. Raises TokenRefused,
    Unavailable and NotUnderstood."""
    moments = {"placed_at": placed_at, "canceled_at": canceled_at, "fulfilled_at": fulfilled_at}
    stated = {"amount": amount, "currency": currency}
    stated |= {name: moment for name, moment in moments.items() if moment is not None}
    path = f"/api/v1/orders/{quote(order, safe='')}"
    body = json.dumps(stated).encode("utf-8")
    answer = checked((yield Ask(method="PUT", path=path, body=body)))
    if answer.status not in (200, 201):
        raise NotUnderstood(f"the order was not taken: {sentence_of(answer)}")
    return answer.document()


def _sentences(problem: Mapping[str, Any], otherwise: str) -> str:
    listed = problem.get("problems")
    parts = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    sentences = [each.get("sentence") for each in parts]
    return " ".join([each for each in sentences if isinstance(each, str)]) or otherwise
