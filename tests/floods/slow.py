"""Slow clients, which send a byte a second, or nothing, or never read the answer."""

from __future__ import annotations

import contextlib
import select
import socket
from types import TracebackType

from app.receiving.guard import MAX_PIPELINED

HEAD = b"POST /webhooks/shop HTTP/1.1\r\nhost: slow\r\n"
PIPELINED = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: slow\r\n\r\n" * (1 + MAX_PIPELINED)
"""Requests that are taken at once: with one more, the server would hang up."""

OPENINGS = {
    "silent": b"",
    "headers": HEAD + b"x-slow: ",
    "body": HEAD + b"content-length: 1000\r\n\r\n",
    "reader": PIPELINED,
}
"""Bytes that each kind sends at once."""

DRIPS = {"silent": b"", "headers": b"a", "body": b"a", "reader": PIPELINED}
"""Bytes that each kind sends later, again and again."""

PER_ADDRESS = 250
"""Connections from one address of the loopback network, 127.0.1.1 and up."""

_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLRDHUP


class SlowClients:
    """Open connections of all four kinds, until the block ends."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._open: dict[int, tuple[str, socket.socket]] = {}

    def __enter__(self) -> SlowClients:
        kinds = list(OPENINGS)
        for number in range(self._count):
            kind = kinds[number % len(kinds)]
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.bind((f"127.0.1.{1 + number // PER_ADDRESS}", 0))
            client.settimeout(30)
            client.connect(("127.0.0.1", self._port))
            client.sendall(OPENINGS[kind])
            client.setblocking(False)
            self._open[client.fileno()] = kind, client
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _, client in self._open.values():
            client.close()

    def drip(self) -> None:
        """Send one more byte, or one more request without reading, on each connection."""
        for kind, client in self._open.values():
            with contextlib.suppress(OSError):  # hung up on, or full: `still_open` will see it
                client.send(DRIPS[kind])

    def still_open(self) -> dict[str, int]:
        """Return how many of each kind the server has not closed."""
        watch = select.poll()
        for number in self._open:
            watch.register(number, select.POLLRDHUP)
        for number, _ in (found for found in watch.poll(0) if found[1] & _HUNG_UP):
            self._open.pop(number)[1].close()
        kinds = [kind for kind, _ in self._open.values()]
        return {kind: kinds.count(kind) for kind in OPENINGS}
