"""An answer's head goes out with the first of its body, in one system call.

ASGI hands over head and body one after the other, and uvicorn writes each as it comes: two packets,
of which the second costs as much as the first. Here the head waits for the body. All bytes are
still uvicorn's own; only an application that fails between the two is answered 500, as if it had
not begun, where uvicorn would have sent a head with nothing behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, Protocol, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

JOINED_BYTES: Final = 4_096
"""A longer answer is written as it comes: its copy costs more than the call, and each of a thousand
readers that do not read would keep one."""


class HangsUp(Protocol):
    """A connection that ends once all is written, and not before its sender can read that."""

    def hang_up(self) -> None:
        """Close in place of the transport's own way."""
        ...


class OneWrite:
    """The application for one request: its answer passes through here on its way to uvicorn.

    While uvicorn writes head and body, this is its transport, too.
    """

    __slots__ = ("_app", "_cycle", "_head", "_kept", "_transport")

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle: Any = cycle
        self._transport = cycle.transport
        self._head: Message | None = None
        self._kept: list[bytes] = []

    def __call__(self, scope: Scope, receive: Receive, _send: Send) -> Awaitable[None]:
        """The application's own call."""
        return self._app(scope, receive, self.send)

    async def send(self, message: Message) -> None:
        """Take one message of the answer."""
        cycle, head = self._cycle, self._head
        if head is not None:
            self._head = None
            await self._send_together(head, message)
        elif message["type"] == "http.response.start" and not cycle.response_started:
            self._head = message
        else:
            await cycle.send(message)

    async def _send_together(self, head: Message, message: Message) -> None:
        cycle = self._cycle
        cycle.transport = self
        try:
            await cycle.send(head)
            await cycle.send(message)
        finally:
            cycle.transport = self._transport
            self._write_kept()

    def _write_kept(self) -> None:
        kept, self._kept = self._kept, []
        if kept and sum(map(len, kept)) <= JOINED_BYTES:
            kept = [b"".join(kept)]
        for part in kept:
            self._transport.write(part)

    # --- what uvicorn does with a transport while it answers --------------------------------------

    def write(self, data: bytes) -> None:
        """Keep it for what comes next."""
        self._kept.append(data)

    def is_closing(self) -> bool:
        """Whether nothing more will be sent."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Send what was kept, then nothing more."""
        self._write_kept()
        cast(HangsUp, self._transport.get_protocol()).hang_up()
