"""Forward requests unchanged to another address."""

from collections.abc import Callable
from typing import Final

import anyio
import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.core.http import Exchange
from app.core.recorded import MAX_BODY_BYTES, Recorded, of_request, send_on

MOST_AT_ONCE: Final = 64
"""Maximum number of requests that are forwarded at a time. Further requests wait."""

METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
STATUS_OF: Final = {"timed_out": 504}

OnExchange = Callable[[Recorded, Exchange], None]


def build_listener(
    forward: str, *, client: httpx2.AsyncClient, on_exchange: OnExchange
) -> Starlette:
    """Return an application that forwards requests."""
    limiter = anyio.CapacityLimiter(MOST_AT_ONCE)

    async def hand_on(request: Request) -> Response:
        query = request.url.query
        recorded = Recorded(
            method=request.method,
            url=request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
            headers=of_request(request.headers.raw),
            body=await request.body(),
        )
        async with limiter:
            answer = await send_on(client, recorded, forward)
        on_exchange(recorded, answer)
        if answer.status is None or answer.problem is not None:
            return Response(status_code=STATUS_OF.get(answer.problem or "", 502))
        kept = {"content-type": answer.headers.get("content-type", "application/octet-stream")}
        return Response(answer.body, status_code=answer.status, headers=kept)

    return Starlette(
        routes=[Route("/{path:path}", hand_on, methods=METHODS)], max_body_size=MAX_BODY_BYTES
    )
