"""An answer goes out with one system call where it can.

ASGI hands over an answer's head and body one after the other, and uvicorn writes each as it comes:
two packets, of which the second costs as much as the first. Here the head waits for the body. What
has no body, no length, or a body in parts is left to uvicorn, and so is what it would refuse.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


class OneWrite:
    """The application for one request, whose answer passes through here on its way to uvicorn."""

    __slots__ = ("_app", "_cycle", "_head")

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle: Any = cycle
        self._head: Message | None = None

    def __call__(self, scope: Scope, receive: Receive, _send: Send) -> Awaitable[None]:
        """The application's own call."""
        return self._app(scope, receive, self.send)

    async def send(self, message: Message) -> None:
        """Take one message of the answer."""
        if message["type"] == "http.response.start" and self._head is None:
            self._head = message
            return
        head, self._head = self._head, None
        if head is not None:
            whole = self._whole(head, message)
            if whole is not None:
                self._answer(whole)
                return
            await self._cycle.send(head)
        await self._cycle.send(message)

    def _whole(self, head: Message, message: Message) -> bytes | None:
        """Head and body, if that is all there is to do; else None."""
        cycle, body = self._cycle, message.get("body", b"")
        if (
            not body
            or message.get("more_body", False)
            or not cycle.keep_alive
            or cycle.disconnected
            or cycle.flow.write_paused
            or cycle.scope["method"] == "HEAD"
        ):
            return None
        parts, length = [STATUS_LINE[head["status"]]], b""
        headers = [*cycle.default_headers, *head["headers"]]
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"connection":
                return None
            parts += name, b": ", value, b"\r\n"
        text: bytes = b"".join(parts)
        if length != b"%d" % len(body) or _breaks(text) != 1 + len(headers):
            return None
        whole: bytes = text + b"\r\n" + body
        return whole

    def _answer(self, whole: bytes) -> None:
        """Write it, and tell the connection that the request is done."""
        cycle = self._cycle
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(whole)
        cycle.message_event.set()
        cycle.on_response()


def _breaks(text: bytes) -> int:
    """The lines of a head; more than were meant to be where a value would begin one of its own."""
    return max(text.count(b"\r"), text.count(b"\n"))
