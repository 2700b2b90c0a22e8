"""POST /api/v1/checkout/sessions: the shop starts a payment, in the payment service's own shape."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.access.operators import author_of_token
from app.api.request_body import json_object
from app.api.routes import capped_body
from app.checkout.checkout_result import CheckoutResult, result_document
from app.checkout.client import CheckoutClient
from app.checkout.faults import (
    CheckoutBusyError,
    CheckoutConflictError,
    CheckoutDeniedError,
    CheckoutRequestError,
    PaymentNotOverError,
)
from app.checkout.open_checkout import open_checkout
from app.checkout.request import CheckoutRequest
from app.core.problems import ApiProblem, problem
from app.receiving.context import AppContext
from reconcile.instants import SECOND, format_instant
from reconcile.money import Money, major_text

RETRY_AFTER: Final = {"Retry-After": "5"}
"""Seconds until a shop should ask again for what is unknown; we ask meanwhile."""

PLACES: Final = {
    "order": "order.reference",
    "amount": "order.amount",
    "currency": "order.currency",
    "phone": "customer.phone",
    "success_url": "return_urls.success",
    "cancel_url": "return_urls.cancel",
}
"""Where each field of a request stands in its JSON."""

_PARTS: Final = {
    part: {place.partition(".")[2] for place in PLACES.values() if place.startswith(part + ".")}
    for part in ("order", "customer", "return_urls")
}


class Checkouts:
    """The endpoint. `client` is None where this instance opens no sessions."""

    def __init__(self, context: AppContext, client: CheckoutClient | None) -> None:
        self._context = context
        self._client = client

    async def start(self, request: Request, program: str) -> Response:
        """201: opened now · 200: the session there is · 202: unknown so far, ask again."""
        if self._client is None:
            raise ApiProblem(
                501, "checkout_not_configured", "Set TALLYHOOK_CHECKOUT__BASE_URL and its token."
            )
        asked, new_payment = asked_checkout(json_object(await capped_body(request)))
        try:
            result = await open_checkout(
                self._context,
                self._client,
                request=asked,
                new_payment=new_payment,
                author=author_of_token(program),
            )
        except CheckoutRequestError as error:
            return _invalid([(PLACES[name], sentence) for name, sentence in error.problems])
        except CheckoutConflictError as error:
            before, now = _money(error.before), _money(error.asked)
            return problem(409, "payment_differs", str(error), before=before, asked=now)
        except PaymentNotOverError as error:
            return self._not_over(error)
        except CheckoutDeniedError as error:
            return problem(503, "service_denies_us", str(error), headers=RETRY_AFTER)
        except CheckoutBusyError as error:
            return problem(503, "too_many_checkouts", str(error), headers=RETRY_AFTER)
        return _answer(result)

    def _not_over(self, error: PaymentNotOverError) -> Response:
        """When to ask again is told in seconds, too; where nobody knows when, in some."""
        at = error.ask_again_at
        if at is None:
            return problem(409, "payment_not_over", str(error), headers=RETRY_AFTER)
        seconds = max(-(-(at - self._context.clock.now()) // SECOND), 1)
        return problem(
            409,
            "payment_not_over",
            str(error),
            headers={"Retry-After": str(seconds)},
            ask_again_at=format_instant(at),
        )


def asked_checkout(document: dict[str, Any]) -> tuple[CheckoutRequest, bool]:
    """The request in a body, and whether it asks for a new payment.

    What is missing or of another kind stays so, for `open_checkout` to name it with the rest.
    Raises ApiProblem for names that mean nothing: a misspelled one must not be passed over.
    """
    unknown = [name for name in document if name not in (*_PARTS, "new_payment")]
    parts: dict[str, dict[str, Any]] = {}
    for part, names in _PARTS.items():
        given = document.get(part)
        parts[part] = given if isinstance(given, dict) else {}
        unknown += [f"{part}.{name}" for name in parts[part] if name not in names]
    new_payment = document.get("new_payment", False)
    if unknown:
        # Quoted: half a surrogate pair could not be sent back.
        listed = ", ".join(ascii(name[:60]) for name in unknown[:10])
        raise ApiProblem(422, "request_invalid", f"These names mean nothing here: {listed}.")
    if not isinstance(new_payment, bool):
        raise ApiProblem(422, "request_invalid", "new_payment is true or false.")
    values: dict[str, Any] = {
        name: parts[place.partition(".")[0]].get(place.partition(".")[2])
        for name, place in PLACES.items()
    }
    return CheckoutRequest(**values), new_payment


def _money(money: Money | None) -> dict[str, str] | None:
    return None if money is None else {"amount": major_text(money), "currency": money.currency}


def _invalid(problems: list[tuple[str, str]]) -> Response:
    return problem(
        422,
        "request_invalid",
        "The request has fields that are not right; each is listed.",
        problems=[{"field": field, "sentence": sentence} for field, sentence in problems],
    )


def _answer(result: CheckoutResult) -> Response:
    if result.state == "refused":
        return problem(422, "session_refused", result.sentence, idempotency_key=result.key)
    document = result_document(result)
    if result.state != "opened":
        document["detail"] = result.sentence
    if result.state == "unknown":
        return _json(202, document, headers=RETRY_AFTER)
    return _json(201 if result.created else 200, document)


def _json(status: int, document: Any, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(document, ensure_ascii=False)
    return Response(body, status_code=status, headers=headers, media_type=JSONResponse.media_type)
