"""Start payments for the shop, and report the shop's orders to Tallyhook."""

import json
from collections.abc import Mapping, Sequence
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
    """State of an order's payment."""

    state: State
    """Open send the customer to `checkout_url` paid send nobody unresolved the amount paid is in
    doubt. Send nobody expired the session has expired unknown make the same call again after
    `again_s` differs the request differs from the earlier payment, or from the stated price
    not_over the earlier payment can still succeed refused `sentence` says why."""
    order: str
    checkout_url: str | None = None
    """Address where the customer pays, if known."""
    again_s: int | None = None
    """Seconds to wait before the same call is repeated."""
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
    """Open the order's checkout session, or find the existing one.

    amount       in major units, as text: "1500.00"
    new_payment  whether to start another payment after a failed one

    Raises TokenRefused, NotConfigured and NotUnderstood, and Unavailable: then repeat the call.
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
        listed = found.get("problems")
        problems = listed if isinstance(listed, list) else []
        said = [each.get("sentence") for each in problems if isinstance(each, dict)]
        sentence = " ".join(each for each in said if isinstance(each, str))
        return Started(state="refused", order=order, sentence=sentence or sentence_of(answer))
    raise NotUnderstood(
        f"this client does not understand the answer about the payment: {sentence_of(answer)}"
    )


NOT_SO: Final = "not so"
"""Value instead of a time, for "not canceled" or "not shipped"."""


def tell_order(
    order: str,
    amount: str,
    currency: str,
    *,
    placed_at: str | None = None,
    canceled_at: str | None = None,
    fulfilled_at: str | None = None,
    tenders: Sequence[tuple[str, str]] | None = None,
    free: bool = False,
) -> Steps[Mapping[str, Any]]:
    """Report an order's price, and when it was placed, canceled or shipped (RFC 3339).

    amount   the whole price
    tenders  kind and amount of each part that is paid in another way, such as ("gift_card",
             "30.00"); None leaves the reported parts unchanged
    free     whether the order costs nothing; the amount is then "0"

    Report `fulfilled_at` before the parcel leaves. After a restore, report NOT_SO for each order
    that is not shipped. Raises TokenRefused, Unavailable and NotUnderstood.
    """
    moments = {"placed_at": placed_at, "canceled_at": canceled_at, "fulfilled_at": fulfilled_at}
    stated: dict[str, Any] = {"amount": amount, "currency": currency}
    stated |= {
        name: None if moment == NOT_SO else moment
        for name, moment in moments.items()
        if moment is not None
    }
    if tenders is not None:
        stated["tenders"] = [{"kind": kind, "amount": part} for kind, part in tenders]
    if free:
        stated["free"] = True
    path = f"/api/v1/orders/{quote(order, safe='')}"
    body = json.dumps(stated).encode("utf-8")
    answer = checked((yield Ask(method="PUT", path=path, body=body)))
    if answer.status not in (200, 201):
        raise NotUnderstood(f"the order was not accepted: {sentence_of(answer)}")
    return answer.document()
