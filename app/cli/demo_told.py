"""The shop's endpoint for notifications in the demo: verifies each, keeps the last word on each
order. What a shop of your own does beyond that stands in `app/providers/CALLING.md`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from socket import socket
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.cli.demo_play import Played
from app.core.clock import SystemClock
from app.providers.profile import load_profile
from app.providers.source import Source

PATH: Final = "/payments/outcomes"

SECRET: Final = "whsec_ZGVtbyBzaG9wLCBub3QgYSBzZWNyZXQgZWl0aGVyIQ=="  # noqa: S105
"""Both sides of the demo know it; nobody else is to use it."""


class Told:
    """What the shop was told. `refused`: notifications whose signature was not right."""

    def __init__(self) -> None:
        self._source = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET])
        self._clock = SystemClock()
        self._last: dict[str, dict[str, Any]] = {}
        self.refused = 0

    async def outcome(self, request: Request) -> Response:
        """One notification."""
        body = await request.body()
        headers = request.headers.raw
        if self._source.verify(headers, body, now=self._clock.now()) is not None:
            self.refused += 1
            return Response(status_code=401)
        news = json.loads(body)["data"]
        known = self._last.get(news["order"])
        if known is None or known["id"] < news["id"]:
            self._last[news["order"]] = news
        return Response(status_code=204)

    async def knows(self, played: Sequence[Played]) -> bool:
        """Whether the last word on each order is what its ledger says."""
        ledgers = [each.ledger for each in played]
        return all(
            self._last.get(ledger["order"], {}).get(word) == ledger[word]
            for ledger in ledgers
            for word in ("outcome", "fulfillable")
        )


class _Server(uvicorn.Server):
    """Without signal handling of its own: the demo has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(told: Told, listener: socket) -> AsyncIterator[None]:
    """The endpoint at work on a socket."""
    application = Starlette(routes=[Route(PATH, told.outcome, methods=["POST"])])
    config = uvicorn.Config(application, lifespan="off", log_config=None, access_log=False)
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
