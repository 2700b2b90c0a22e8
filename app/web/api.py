"""The API for the shop's own programs: ledgers, what the shop knows, and the outcome feed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.errors import NotFoundError
from app.operations.desk import Desk
from app.operations.orders.read_feed import outcome_document, read_feed
from app.operations.orders.read_orders import list_orders, order_document
from app.operations.orders.tell_order import tell_order
from app.operations.people.manage_tokens import who_is
from app.web.openapi import API_DOCUMENT
from app.web.problems import ApiProblem
from app.web.reading import (
    chosen,
    instant_parameter,
    json_object,
    number_parameter,
    order_reference,
    told_order,
)
from reconcile.explain import ledger_summary
from reconcile.ledger import FINDING_CODES, OUTCOMES

MAX_TOLD_BYTES = 64 * 1024
"""Largest body: what a shop tells or asks of one order is a few hundred bytes."""


class Api:
    """The endpoints under /api/v1, each behind a bearer token but the description itself."""

    def __init__(
        self,
        desk: Desk,
        *,
        page_max: int,
        longpoll_max_s: int,
        alarms: Callable[[], list[str]],
    ) -> None:
        """alarms: sentences on what goes wrong that no outcome tells, such as silence."""
        self._desk = desk
        self._alarms = alarms
        self._page_max = page_max
        self._longpoll_max_s = longpoll_max_s

    async def authorize(self, request: Request) -> str:
        """The name of the program that asks. Raises ApiProblem 401."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        name = await who_is(self._desk, token.strip()) if scheme.lower() == "bearer" else None
        if name is None:
            raise ApiProblem(
                401,
                "token_invalid",
                "Send a token in force as `Authorization: Bearer …`; "
                "`tallyhook tokens add` makes one.",
            )
        return name

    async def order(self, request: Request) -> Response:
        """GET and PUT /api/v1/orders/{reference}"""
        if request.method == "PUT":
            return await self.put_order(request)
        return await self.get_order(request)

    async def get_order(self, request: Request) -> Response:
        """GET /api/v1/orders/{reference}[?as_of=]"""
        await self.authorize(request)
        as_of = instant_parameter(request, "as_of")
        try:
            found = await order_document(self._desk, order_reference(request), as_of=as_of)
        except NotFoundError:
            raise ApiProblem(
                404, "order_unknown", "Nothing is known of an order of this reference."
            ) from None
        return _json(found)

    async def list_orders(self, request: Request) -> Response:
        """GET /api/v1/orders?outcome=&finding=&after=&limit="""
        await self.authorize(request)
        limit = number_parameter(request, "limit", default=100, low=1, high=self._page_max)
        ledgers = await list_orders(
            self._desk,
            after=request.query_params.get("after", ""),
            limit=limit,
            outcome=chosen(request, "outcome", OUTCOMES),
            finding=chosen(request, "finding", FINDING_CODES),
        )
        following = ledgers[-1].order if len(ledgers) == limit else None
        return _json({"orders": [ledger_summary(each) for each in ledgers], "next": following})

    async def put_order(self, request: Request) -> Response:
        """PUT /api/v1/orders/{reference}"""
        await self.authorize(request)
        order = order_reference(request)
        document = json_object(await capped_body(request))
        await tell_order(self._desk, told_order(order, document))
        return _json(await order_document(self._desk, order))

    async def outcomes(self, request: Request) -> Response:
        """GET /api/v1/outcomes?after=&limit=&wait="""
        await self.authorize(request)
        after = number_parameter(request, "after", default=0, low=0, high=2**63 - 1)
        published = await read_feed(
            self._desk,
            after=after,
            limit=number_parameter(request, "limit", default=100, low=1, high=self._page_max),
            wait_s=number_parameter(request, "wait", default=0, low=0, high=self._longpoll_max_s),
        )
        document: dict[str, Any] = {
            "outcomes": [outcome_document(each) for each in published],
            "cursor": published[-1].seq if published else after,
        }
        if alarms := self._alarms():
            document["alarms"] = alarms
        return _json(document)

    async def openapi(self, request: Request) -> Response:
        """GET /api/v1/openapi.json"""
        return Response(_OPENAPI, media_type=JSONResponse.media_type)


_OPENAPI: Final = json.dumps(API_DOCUMENT, ensure_ascii=False).encode()
"""Written once: it is the longest answer that needs no token."""


def _json(document: Any) -> Response:
    return Response(json.dumps(document, ensure_ascii=False), media_type=JSONResponse.media_type)


async def capped_body(request: Request) -> bytes:
    """The body. Raises ApiProblem 413 beyond MAX_TOLD_BYTES."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_TOLD_BYTES:
            raise ApiProblem(413, "body_too_large", f"Send at most {MAX_TOLD_BYTES} bytes.")
    return bytes(body)
