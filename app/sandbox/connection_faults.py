"""Ending a connection before its answer, as a network does, so that clients really meet it.

uvicorn turns an application's silence into a 500, and ASGI has no word for hanging up. So the
protocol class hands the application a way to, as an ASGI extension of the request's scope.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION: Final = "tallyhook.sandbox.drop"


class DroppingProtocol(HttpToolsProtocol):
    """uvicorn's own HTTP protocol; each request's scope carries its connection's `close`."""

    def on_message_begin(self) -> None:
        """Begin a request's scope."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"close": self.transport.close}}


class DroppedConnection(Response):
    """Sends nothing and closes the connection; a client sees it end without an answer.

    Raises ConnectionAbortedError under a server without the extension (in-process clients).
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extension = (scope.get("extensions") or {}).get(EXTENSION)
        if extension is None:
            raise ConnectionAbortedError("the simulated connection was dropped")
        extension["close"]()
        # Only after the loop has closed it does the server know that nobody waits for an answer.
        while (await receive())["type"] != "http.disconnect":
            continue
