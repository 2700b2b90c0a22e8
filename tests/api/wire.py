"""A connection to an application over a recorded transport, without sockets or waiting."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.receiving.connection_limits import ConnectionLimits, GateLimits
from app.receiving.guard import GuardedConnection, guarded

LIMITS = GateLimits(
    receive_deadline_s=600, send_deadline_s=600, connections=9, per_address=9, max_head_bytes=9999
)
DATE = (b"date", b"Sat, 21 Nov 2026 10:00:00 GMT")
TURNS = 20
"""Turns of the event loop: more than any of these tests needs. Nothing waits for a timer or
socket."""

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]


class Wire(asyncio.Transport):
    """A transport that records each write and whether it was closed. It closes like uvloop's."""

    def __init__(self) -> None:
        super().__init__({"socket": Mock()})
        self.writes: list[bytes] = []
        self.unread = 0
        self.protocol: Any = None
        self.ended = self._closing = self._lost = False

    def get_protocol(self) -> Any:
        return self.protocol

    def write_eof(self) -> None:
        self.ended = True

    def write(self, data: Any) -> None:
        if self._lost:
            raise RuntimeError("the handler is closed")
        if not self._closing:
            self.writes.append(bytes(data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self.lose)

    abort = close

    def lose(self) -> None:
        """Drop the connection from the other end."""
        self._lost = self._closing = True
        self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self.unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    @property
    def sent(self) -> tuple[bytes, bool]:
        """Return all bytes written, and whether the transport was closed."""
        return b"".join(self.writes), self._closing or self.ended


@dataclass
class Client:
    """A connection to an application over a recorded transport."""

    connection: GuardedConnection
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        self.wire.protocol = self.connection
        self.connection.connection_made(self.wire)

    async def ask(self, request: bytes = GET) -> None:
        """Send bytes and let the application do what it can."""
        self.connection.data_received(request)
        await turns()


async def turns() -> None:
    """Let every ready task run."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def connect(application: Application, *, by_uvicorn: bool = False) -> Client:
    """Open a connection. `by_uvicorn` leaves its answers to uvicorn."""
    config = uvicorn.Config(
        application, ws="none", lifespan="off", log_config=None, proxy_headers=False
    )
    config.load()
    state = ServerState()
    state.default_headers = [DATE]
    kind: Any = guarded(ConnectionLimits(LIMITS))
    if by_uvicorn:
        kind._start_asgi_task = HttpToolsProtocol._start_asgi_task
    return Client(kind(config, state, {}))


def start(*headers: Header, status: int = 200) -> Message:
    """Return the start message of an answer."""
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(body: bytes = b"", *, more: bool = False) -> Message:
    """Return a message with a part of an answer's body."""
    return {"type": "http.response.body", "body": body, "more_body": more}


def length(size: int) -> Header:
    """Return the header that states the body's length."""
    return (b"content-length", b"%d" % size)
