"""The API for the shop's programs: orders, outcomes and payments."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from app.access.operators import author_of_token
from app.access.tokens import Holder, ScopeMissing, TokenNotInForce, admit, holder_of
from app.api import operations, request_body
from app.checkout.client import CheckoutClient
from app.checkout.open_checkout import (
    CheckoutResult,
    SessionDocument,
    open_checkout,
    result_document,
)
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
from app.core.jobs import computed
from app.core.problems import ApiProblem, problem
from app.orders.order_facts import ReferenceTaken, TendersDoNotFit, tell_order
from app.orders.read_feed import (
    OutcomePageDocument,
    outcome_documents,
    read_feed,
    read_from,
    superseded_of,
)
from app.orders.read_orders import (
    LedgerDocument,
    OrderPageDocument,
    list_orders,
    listed_documents,
    order_document,
)
from app.receiving.caught_up import behind_s
from app.receiving.guard import HUNG_UP
from reconcile.canonical import fingerprint
from reconcile.documents import CurrencyCode, Keywords, OrderReference
from reconcile.instants import SECOND, format_instant
from reconcile.ledger.ledger import Outcome
from reconcile.ledger.vocabulary import FindingCode
from reconcile.money import to_json

MAX_ORDER_BYTES = 64 * 1024
"""Maximum bytes of a request body that describes an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersAsked(operations.PageAsked):
    outcome: Annotated[Outcome | None, "Only orders with this outcome."] = None
    finding: Annotated[FindingCode | None, "Only orders with this finding."] = None
    from_: Annotated[
        operations.Moment, "Only orders with a change that was published at or after this time."
    ] = None
    to: Annotated[
        operations.Moment, "Only orders with a change that was published before this time."
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedAsked:
    after: Annotated[
        int,
        Keywords(minimum=0, maximum=request_body.GREATEST),
        "The last id that you have read. Ids increase and are never reused. After a restore, they "
        "have a gap.",
    ] = 0
    limit: operations.Limit = 100
    wait: Annotated[
        int,
        Keywords(minimum=0, maximum=operations.LONGPOLL_MAX_S),
        "Seconds to wait for a new change.",
    ] = 0


class Api:
    """Endpoints of orders and of the outcome feed."""

    def __init__(self, context: AppContext, *, alarms: Callable[[], list[str]]) -> None:
        self._context = context
        self._alarms = alarms
        settings = context.settings
        self.most: Mapping[str, int] = {"limit": settings.page_max, "wait": settings.longpoll_max_s}

    async def admitted(self, request: Request, scope: operations.Scope) -> str | Holder:
        """Return the calling program's name, or the calling person for `operator`. Raise ApiProblem
        401 or 403."""
        token = request_body.bearer_token(request)
        with _refusing(scope):
            if scope == "operator":
                return await holder_of(self._context, token)
            return await admit(self._context, token, scope=scope)

    async def behind_s(self) -> int:
        """Return the age in seconds of the oldest unread delivery; 0 if all are read."""
        return await behind_s(self._context, patience="none")

    async def get_order(
        self, request: Request, reference: str, asked: operations.AsOfAsked
    ) -> operations.Answer[LedgerDocument] | Response:
        """Return an order's ledger, computed from everything that is stored about the order."""
        found = await order_document(self._context, reference, as_of=asked.as_of)
        return await computed(partial(_if_new, request, found), size=len(found["timeline"]))

    async def list_orders(self, asked: OrdersAsked) -> OrderPageDocument:
        """List orders with their outcome and findings, sorted by reference."""
        ledgers = await list_orders(
            self._context,
            after=asked.after,
            limit=asked.limit,
            outcome=asked.outcome,
            finding=asked.finding,
            since=asked.from_,
            until=asked.to,
        )
        following = ledgers[-1].order if len(ledgers) == asked.limit else None
        return {"orders": await listed_documents(self._context, ledgers), "next": following}

    async def tell_order(
        self, request: Request, who: str, reference: str
    ) -> operations.Answer[LedgerDocument]:
        """Store what the shop knows about an order. Earlier facts are never replaced."""
        document = request_body.json_object(
            await request_body.capped_body(request, most=MAX_ORDER_BYTES)
        )
        facts = request_body.reported_order(reference, document, sources=self._context.sources)
        try:
            await tell_order(self._context, facts, author=author_of_token(who))
        except ReferenceTaken as error:
            raise ApiProblem(409, "reference_taken", str(error), order=error.order) from None
        except TendersDoNotFit as error:
            raise ApiProblem(422, "order_invalid", str(error)) from None
        return _of_order(await order_document(self._context, reference, patience="short"))

    async def read_feed(
        self, request: Request, asked: FeedAsked
    ) -> operations.Answer[OutcomePageDocument]:
        """Read the outcome feed: every published change, in the order of publication, without
        gaps."""
        lost = await read_from(self._context, after=asked.after)
        if lost is not None:
            raise ApiProblem(
                410,
                "cursor_beyond_the_head",
                "The database was restored from a backup, and no change has this id. Continue "
                f"from the id {lost}. Changes that you have already read keep their ids.",
                read_from=lost,
            )
        published = await read_feed(
            self._context,
            after=asked.after,
            limit=asked.limit,
            wait_s=asked.wait,
            gone=lambda: HUNG_UP in request.scope,
        )
        if asked.wait:  # the token may have been revoked meanwhile
            await self.admitted(request, "read")
        behind = await self.behind_s()  # includes deliveries that came during the wait
        document: OutcomePageDocument = {
            "outcomes": await outcome_documents(self._context, published),
            "cursor": published[-1].seq if published else asked.after,
        }
        if superseded := await superseded_of(self._context, published):
            document["superseded"] = superseded
        if alarms := self._alarms():
            document["alarms"] = alarms
        return operations.Answer(document, {"Tallyhook-Behind": str(behind)} if behind else {})


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
    tag = fingerprint({name: value for name, value in document.items() if name != "as_of"})
    asked = ", ".join(request.headers.getlist("if-none-match"))
    answer = _of_order(document)
    headers = {**answer.headers, "ETag": f'W/"{tag}"'}
    if asked.strip() != "*" and tag not in _TAG.findall(asked):
        return operations.response(operations.Answer(document, headers))
    return Response(status_code=304, headers=headers)


def _of_order(document: LedgerDocument) -> operations.Answer[LedgerDocument]:
    behind = document.get("behind_s")
    return operations.Answer(document, {} if behind is None else {"Tallyhook-Behind": str(behind)})


RETRY_AFTER: Final = {"Retry-After": "5"}

PLACES: Final = {
    "order": "order.reference",
    "amount": "order.amount",
    "currency": "order.currency",
    "phone": "customer.phone",
    "success_url": "return_urls.success",
    "cancel_url": "return_urls.cancel",
}

_PARTS: Final = {
    part: {place.partition(".")[2] for place in PLACES.values() if place.startswith(part + ".")}
    for part in ("order", "customer", "return_urls")
}


class CheckoutOrderDocument(TypedDict):
    reference: OrderReference
    amount: request_body.Amount
    currency: CurrencyCode


class CustomerDocument(TypedDict):
    phone: Annotated[NotRequired[str | None], Keywords(examples=["254712345678"])]


class ReturnUrlsDocument(TypedDict):
    success: Annotated[
        NotRequired[str | None], Keywords(format="uri", examples=["https://shop.example/paid"])
    ]
    cancel: Annotated[
        NotRequired[str | None], Keywords(format="uri", examples=["https://shop.example/basket"])
    ]


class CheckoutDocument(TypedDict):
    order: CheckoutOrderDocument
    customer: NotRequired[CustomerDocument | None]
    return_urls: NotRequired[ReturnUrlsDocument | None]
    new_payment: Annotated[
        NotRequired[bool], "True if the earlier payment has ended and the customer tries again."
    ]


class Checkouts:
    """Endpoint that starts payments."""

    def __init__(self, context: AppContext, client: CheckoutClient | None) -> None:
        self._context = context
        self._client = client

    async def start_payment(
        self, request: Request, who: str
    ) -> (
        operations.Answer[SessionDocument]
        | operations.Created[SessionDocument]
        | operations.Accepted[SessionDocument]
        | Response
    ):
        """Start an order's payment. Open a payment session, or return the order's existing
        session."""
        if self._client is None:
            raise ApiProblem(
                501,
                "checkout_not_configured",
                "This service does not open checkout sessions. Set "
                "TALLYHOOK_CHECKOUT__BASE_URL and TALLYHOOK_CHECKOUT__TOKEN.",
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
                author=author_of_token(who),
            )
        except CheckoutRequestError as error:
            return _invalid([(PLACES[name], sentence) for name, sentence in error.problems])
        except CheckoutConflictError as error:
            before = None if error.before is None else to_json(error.before)
            now = to_json(error.asked)
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
    """Return the checkout request in a body, and whether the shop wants a new payment. Raise
    ApiProblem 422 for unknown names."""
    unknown = [name for name in document if name not in (*_PARTS, "new_payment")]
    parts: dict[str, dict[str, Any]] = {}
    for part, names in _PARTS.items():
        given = document.get(part)
        if part != "order" and not isinstance(given, dict | None):
            raise ApiProblem(422, "request_invalid", f"{part} must be an object.")
        parts[part] = given if isinstance(given, dict) else {}
        unknown += [f"{part}.{name}" for name in parts[part] if name not in names]
    new_payment = document.get("new_payment", False)
    if unknown:
        # Quoted, because half a surrogate pair could not be sent back.
        listed = ", ".join(ascii(name[:60]) for name in unknown[:10])
        raise ApiProblem(422, "request_invalid", f"These members are not known: {listed}.")
    if not isinstance(new_payment, bool):
        raise ApiProblem(422, "request_invalid", "new_payment must be true or false.")
    values: dict[str, Any] = {
        name: parts[place.partition(".")[0]].get(place.partition(".")[2])
        for name, place in PLACES.items()
    }
    return CheckoutRequest(**values), new_payment


def _invalid(problems: list[tuple[str, str]]) -> Response:
    return problem(
        422,
        "request_invalid",
        "Some fields of the request are wrong. `problems` lists them.",
        problems=[{"field": field, "sentence": sentence} for field, sentence in problems],
    )


def _answer(result: CheckoutResult) -> operations.Answer[SessionDocument] | Response:
    if result.state == "refused":
        return problem(422, "session_refused", result.sentence, idempotency_key=result.key)
    document = result_document(result)
    if result.state != "opened":
        document["detail"] = result.sentence
    if result.state == "unknown":
        asked = result.again_s
        headers = RETRY_AFTER if asked is None else {"Retry-After": str(asked)}
        return operations.Accepted(document, headers)
    return operations.Created(document) if result.created else operations.Answer(document)


OPERATIONS: Final = (
    operations.Operation("GET", "/api/v1/orders", Api.list_orders, "read"),
    operations.Operation(
        "GET",
        "/api/v1/orders/{reference:path}",
        Api.get_order,
        "read",
        answers={304: "Unchanged since the given `ETag`, except `as_of`"},
        unknown=operations.ORDER_UNKNOWN,
        waits=True,
    ),
    operations.Operation(
        "PUT",
        "/api/v1/orders/{reference:path}",
        Api.tell_order,
        "orders",
        body=Annotated[
            request_body.ToldDocument,
            Keywords(
                examples=[
                    {
                        "amount": "1500.00",
                        "currency": "KES",
                        "placed_at": "2026-10-05T14:30:00Z",
                    }
                ]
            ),
        ],
        answers={
            409: "A reference belongs to another order, which `order` names",
            422: "A stated value is wrong; every mistake is listed",
        },
        waits=True,
    ),
    operations.Operation(
        "POST",
        "/api/v1/checkout/sessions",
        Checkouts.start_payment,
        "checkout",
        body=CheckoutDocument,
        answers={
            200: "The session that the order already has",
            201: "The session, opened by this call",
            202: (
                "It is not known yet whether the session is open. Repeat the call after "
                "`Retry-After`"
            ),
            409: (
                "The order is canceled, or the shop has stated another price for it. Or the order "
                "has a payment that has not ended, has another amount or currency, or has an "
                "unknown result and was requested with another phone number or return URL. "
                "`ask_again_at` says when the payment will end, if that is known; `Retry-After` "
                "gives the seconds to wait"
            ),
            422: (
                "The request is wrong, and every mistake is listed; or the payment service "
                "refused it"
            ),
            501: "This instance opens no sessions",
            503: (
                "The payment service denied access, or too many requests came at once. Nothing "
                "is lost"
            ),
        },
        retry_after=(202, 409, 503),
        waits=True,
    ),
    operations.Operation(
        "GET",
        "/api/v1/outcomes",
        Api.read_feed,
        "read",
        answers={410: "The cursor is beyond the last id. Continue from `read_from`"},
    ),
)
