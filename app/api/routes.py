"""The API for the shop's own programs: ledgers, the shop's records, the feed, payments started."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.access.operators import author_of_token
from app.access.tokens import Holder, ScopeMissing, TokenNotInForce, TokenScope, admit, holder_of
from app.api import request_body
from app.api.openapi import written_document
from app.checkout.client import CheckoutClient
from app.checkout.open_checkout import CheckoutResult, open_checkout, result_document
from app.checkout.request import (
    CheckoutBusyError,
    CheckoutConflictError,
    CheckoutDeniedError,
    CheckoutRequest,
    CheckoutRequestError,
    OrderCanceledError,
    PaymentNotOverError,
)
from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.jobs import computed
from app.core.problems import ApiProblem, problem
from app.orders.order_facts import ReferenceTaken, TendersDoNotFit, tell_order
from app.orders.read_feed import outcome_documents, read_feed, read_from, superseded_of
from app.orders.read_orders import LedgerDocument, list_orders, listed_documents, order_document
from app.receiving.caught_up import behind_s
from app.receiving.guard import HUNG_UP
from reconcile.canonical import fingerprint
from reconcile.instants import SECOND, format_instant
from reconcile.ledger.ledger import OUTCOMES
from reconcile.ledger.vocabulary import FINDING_CODES
from reconcile.money import Money, major_text

MAX_ORDER_BYTES = 64 * 1024
"""Largest body: what a shop states or asks of one order is a few hundred bytes."""


OPERATOR: Final[Literal["operator"]] = "operator"
"""The word, in place of a scope, for what takes a person's own token."""


class Api:
    """The endpoints under /api/v1, each behind a bearer token except the description itself."""

    def __init__(self, context: AppContext, *, alarms: Callable[[], list[str]]) -> None:
        """alarms: sentences on what goes wrong that no outcome shows, such as silence."""
        self._context = context
        self._alarms = alarms
        # Written once: it is the longest answer that needs no token.
        settings = context.settings
        self._description = written_document(
            page_max=settings.page_max, longpoll_max_s=settings.longpoll_max_s
        )

    async def admitted(
        self, request: Request, scope: TokenScope | Literal["operator"]
    ) -> str | Holder:
        """Return the name of the calling program; for the scope OPERATOR, of the person. Raise
        ApiProblem 401 without a token in force, 403 without the scope."""
        with _refusing(scope):
            if scope == OPERATOR:
                return await holder_of(self._context, request_body.bearer_token(request))
            return await admit(self._context, request_body.bearer_token(request), scope=scope)

    async def behind_s(self) -> int:
        """Return the age of the oldest unread delivery in seconds, without waiting; 0: none."""
        return await behind_s(self._context, patience="none")

    async def get_order(self, request: Request, program: str) -> Response:
        """GET /api/v1/orders/{reference}[?as_of=], with If-None-Match"""
        as_of = request_body.instant_parameter(request, "as_of")
        try:
            found = await order_document(
                self._context, request_body.order_reference(request), as_of=as_of
            )
        except NotFoundError as error:
            raise request_body.order_unknown(error) from None
        return await computed(partial(_if_new, request, found), size=len(found["timeline"]))

    async def list_orders(self, request: Request, program: str) -> Response:
        """GET /api/v1/orders?outcome=&finding=&from=&to=&after=&limit="""
        limit = request_body.limit_parameter(request, most=self._context.settings.page_max)
        ledgers = await list_orders(
            self._context,
            after=request_body.after_parameter(request),
            limit=limit,
            outcome=request_body.chosen(request, "outcome", OUTCOMES),
            finding=request_body.chosen(request, "finding", FINDING_CODES),
            since=request_body.instant_parameter(request, "from"),
            until=request_body.instant_parameter(request, "to"),
        )
        following = ledgers[-1].order if len(ledgers) == limit else None
        rows = await listed_documents(self._context, ledgers)
        return _json({"orders": rows, "next": following})

    async def put_order(self, request: Request, program: str) -> Response:
        """PUT /api/v1/orders/{reference}"""
        order = request_body.order_reference(request)
        document = request_body.json_object(
            await request_body.capped_body(request, most=MAX_ORDER_BYTES)
        )
        facts = request_body.reported_order(order, document, sources=self._context.sources)
        try:
            await tell_order(self._context, facts, author=author_of_token(program))
        except ReferenceTaken as error:
            raise ApiProblem(409, "reference_taken", str(error), order=error.order) from None
        except TendersDoNotFit as error:
            raise ApiProblem(422, "order_invalid", str(error)) from None
        return _of_order(await order_document(self._context, order, patience="short"))

    async def outcomes(self, request: Request, program: str) -> Response:
        """GET /api/v1/outcomes?after=&limit=&wait="""
        after = request_body.number_parameter(
            request, "after", default=0, low=0, high=request_body.GREATEST
        )
        limit = request_body.limit_parameter(request, most=self._context.settings.page_max)
        wait_s = request_body.number_parameter(
            request, "wait", default=0, low=0, high=self._context.settings.longpoll_max_s
        )
        lost = await read_from(self._context, after=after)
        if lost is not None:
            raise ApiProblem(
                410,
                "cursor_beyond_the_head",
                "Nothing of this number was published here: the database was put back from a "
                f"backup. Read on from {lost}; what you know already has the same id.",
                read_from=lost,
            )
        published = await read_feed(
            self._context,
            after=after,
            limit=limit,
            wait_s=wait_s,
            gone=lambda: HUNG_UP in request.scope,
        )
        if wait_s:  # the token may have been revoked meanwhile
            await self.admitted(request, "read")
        behind = await self.behind_s()  # also of those that came while the reader waited
        document: dict[str, Any] = {
            "outcomes": await outcome_documents(self._context, published),
            "cursor": published[-1].seq if published else after,
        }
        if superseded := await superseded_of(self._context, published):
            document["superseded"] = superseded
        if alarms := self._alarms():
            document["alarms"] = alarms
        return _json(document, {"Tallyhook-Behind": str(behind)} if behind else {})

    async def openapi(self, request: Request) -> Response:
        """GET /api/v1/openapi.json"""
        request_body.only_parameters(request, ())
        return Response(self._description, media_type=JSONResponse.media_type)


@contextmanager
def _refusing(scope: str) -> Iterator[None]:
    try:
        yield
    except TokenNotInForce as error:
        asked = {"WWW-Authenticate": "Bearer"}
        raise ApiProblem(401, "token_invalid", str(error), headers=asked) from None
    except ScopeMissing as error:
        asked = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'}
        raise ApiProblem(403, "scope_missing", str(error), headers=asked, scope=scope) from None


_TAG: Final = re.compile(r'(?:W/)?"([^"]*)"')


def _if_new(request: Request, document: LedgerDocument) -> Response:
    """Return the ledger with its ETag, or 304 where the client has it. The tag covers all members
    but `as_of`, also those outside the fingerprint. It is weak, since two responses with one tag
    differ in `as_of`."""
    known = {name: value for name, value in document.items() if name != "as_of"}
    tag = fingerprint(known)
    asked = ", ".join(request.headers.getlist("if-none-match"))
    answer = _of_order(document)
    answer.headers["ETag"] = f'W/"{tag}"'
    if asked.strip() != "*" and tag not in _TAG.findall(asked):
        return answer
    headers = {name: answer.headers[name] for name in _KEPT_BY_304 if name in answer.headers}
    return Response(status_code=304, headers=headers)


_KEPT_BY_304: Final = ("ETag", "Tallyhook-Behind")


def _of_order(document: LedgerDocument) -> Response:
    behind = document.get("behind_s")
    return _json(document, {} if behind is None else {"Tallyhook-Behind": str(behind)})


def _json(document: Any, headers: dict[str, str] | None = None, *, status: int = 200) -> Response:
    return Response(
        json.dumps(document, ensure_ascii=False),
        status_code=status,
        media_type=JSONResponse.media_type,
        headers=headers,
    )


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
        """Answer 201: opened now; 200: the existing session; 202: unknown so far, ask again."""
        if self._client is None:
            raise ApiProblem(
                501, "checkout_not_configured", "Set TALLYHOOK_CHECKOUT__BASE_URL and its token."
            )
        asked, new_payment = asked_checkout(
            request_body.json_object(await request_body.capped_body(request, most=MAX_ORDER_BYTES))
        )
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
        except OrderCanceledError as error:
            return problem(409, "order_canceled", str(error))
        except CheckoutDeniedError as error:
            return problem(503, "service_denies_us", str(error), headers=RETRY_AFTER)
        except CheckoutBusyError as error:
            return problem(503, "too_many_checkouts", str(error), headers=RETRY_AFTER)
        return _answer(result)

    def _not_over(self, error: PaymentNotOverError) -> Response:
        """Return the refusal with `Retry-After`; a short one where nobody knows when to ask
        again."""
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
    """Return the request in a body, and whether it asks for a new payment. Missing or wrong members
    stay as they are, for `open_checkout` to name all at once. Raise ApiProblem for unknown names: a
    misspelled one must not be ignored."""
    unknown = [name for name in document if name not in (*_PARTS, "new_payment")]
    parts: dict[str, dict[str, Any]] = {}
    for part, names in _PARTS.items():
        given = document.get(part)
        if part != "order" and not isinstance(given, dict | None):
            raise ApiProblem(422, "request_invalid", f"{part} is an object.")
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
        asked = result.again_s
        headers = RETRY_AFTER if asked is None else {"Retry-After": str(asked)}
        return _json(document, headers, status=202)
    return _json(document, status=201 if result.created else 200)
