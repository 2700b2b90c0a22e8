"""Senders of bodies without end: declared as 1 GB, in endless chunks, or packed to burst."""

import gzip
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from select import select

from tests.floods.wire import post, status_of
from tests.waiting import PATIENCE_S

SENDERS = 3
"""Connections that send at a time, mostly one of each kind."""

ADDRESSES = 50
"""Sending addresses, so that none uses up its allowance of rejections."""

_PLAIN = b"x" * 65_536
_PACKED = 16 * gzip.compress(bytes(4 * 1024 * 1024))
"""64 MiB in 64 KiB, which can be repeated for ever, since gzip members may follow each other."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of body: the request's head, the repeated piece, and the right status."""

    head: bytes
    piece: bytes
    status: int


KINDS = {
    "declared": Kind(post("/webhooks/shop", length=10**9), _PLAIN, 413),
    "chunked": Kind(
        post("/webhooks/shop", "transfer-encoding: chunked", length=-1),
        b"10000\r\n" + _PLAIN + b"\r\n",
        413,
    ),
    "packed": Kind(post("/webhooks/shop", "content-encoding: gzip", length=10**9), _PACKED, 415),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one sender: its kind, the status that it got (0: none), and whether the server
    closed the connection."""

    kind: str
    status: int
    hung_up: bool


def send_large(port: int, count: int, *, most: int) -> Counter[Ended]:
    """Send so many, the kinds in turn, each until the server closes or `most` bytes are sent."""
    names = list(KINDS)

    def send(number: int) -> Ended:
        return _send(port, names[number % len(names)], f"127.0.9.{1 + number % ADDRESSES}", most)

    with ThreadPoolExecutor(SENDERS) as pool:
        return Counter(pool.map(send, range(count)))


def _send(port: int, name: str, address: str, most: int) -> Ended:
    kind, sent = KINDS[name], 0
    try:
        connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0))
    except ConnectionRefusedError:  # nobody is there any more
        return Ended(name, 0, False)
    with connection:
        answer = _Answer(connection)
        try:
            connection.sendall(kind.head)
            while sent < most:
                connection.sendall(kind.piece)
                sent += len(kind.piece)
                answer.take()
        except (BrokenPipeError, ConnectionResetError):
            answer.take()
            return Ended(name, answer.status, True)
    return Ended(name, answer.status, False)


class _Answer:
    """An answer that is read while we send: after the server has closed, it may be lost."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._found = b""
        self._goes_on = True

    @property
    def status(self) -> int:
        """Status; 0 without an answer."""
        return status_of(self._found) if self._found else 0

    def take(self) -> None:
        while self._goes_on and select([self._connection], [], [], 0)[0]:
            part = b""
            with suppress(ConnectionResetError):
                part = self._connection.recv(65_536)
            self._found += part
            self._goes_on = bool(part)
