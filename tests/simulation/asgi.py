"""One HTTP request to an ASGI application, without a socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx2

from app.sandbox.server import EXTENSION

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Packet:
    """A POST request as bytes."""

    path: str
    headers: tuple[Header, ...]
    body: bytes

    @classmethod
    def of(cls, request: httpx2.Request) -> Packet:
        """Return the packet of a client's request whose body was read."""
        headers = tuple((name.lower(), value) for name, value in request.headers.raw)
        return cls(request.url.path, headers, request.content)

    def header(self, name: bytes) -> str:
        """Return the first value of a header, or nothing."""
        return next((value.decode() for key, value in self.headers if key == name), "")


@dataclass(slots=True)
class Reply:
    """The application's answer; `dropped`: it closed the connection instead."""

    status: int = 0
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""
    dropped: bool = False

    def response(self) -> httpx2.Response:
        """Return the answer as a client gets it."""
        return httpx2.Response(
            self.status, headers=self.headers, stream=httpx2.ByteStream(self.body)
        )


async def call(application: Any, packet: Packet) -> Reply:
    """Send the packet and return the answer."""
    reply = Reply()
    messages = iter([{"type": "http.request", "body": packet.body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], list(message["headers"])
        else:
            reply.body += message.get("body", b"")

    def close() -> None:
        reply.dropped = True

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": packet.path,
        "raw_path": packet.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(packet.headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "extensions": {EXTENSION: {"close": close}},
    }
    await application(scope, receive, send)
    return reply
