"""A burst of deliveries, each sent when it is due, however many still wait for an answer."""

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.core.process import affordable
from tests.bench.load import is_whole
from tests.waiting import PATIENCE_S

CONNECTIONS = 1_600
"""Open at a time at most, below the limit of a service; deliveries beyond it wait."""

PER_ADDRESS = 200
"""Connections from one address, below the limit of a service."""

RECEIVE = 65_536
LATE_S = 0.1


@dataclass(slots=True, kw_only=True)
class Burst:
    """Results, with deliveries by their place in the row of requests.

    answers  the answer of each, filled while it lasts
    lost     deliveries whose connection was closed without an answer
    late     how many were sent at least `LATE_S` late
    opened   connections
    seconds  until the last was sent, and until the last was answered
    slowest  longest time of an answer, from when its delivery was due
    """

    answers: dict[int, bytes] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    late: int = 0
    opened: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)
    slowest: float = 0.0


class _Connection:
    """One connection with one delivery under way at a time."""

    __slots__ = ("due", "found", "place", "socket")

    def __init__(self, port: int, number: int) -> None:
        address = f"127.0.10.{1 + number // PER_ADDRESS}"
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.place = -1
        self.due = 0.0
        self.found = b""


class Sender:
    """A sender of one burst to a port of this machine; `burst` may be read meanwhile."""

    def __init__(
        self, port: int, requests: Sequence[bytes], *, rate: float, kept: bool = True
    ) -> None:
        """Prepare; a `kept` connection takes more than one delivery."""
        self.burst = Burst()
        self._port = port
        self._requests = requests
        self._rate = rate
        self._kept = kept
        self._most = affordable(CONNECTIONS)
        self._open: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._sent = 0

    def run(self) -> Burst:
        """Send until all are answered. Raises TimeoutError if nothing is for a long time."""
        burst, total, heard = self.burst, len(self._requests), time.monotonic()
        began = heard
        with select.epoll() as waiting:
            try:
                while len(burst.answers) + len(burst.lost) < total:
                    now = time.monotonic()
                    self._send_due(began, now, waiting)
                    for number, _ in waiting.poll(self._left(began, now)):
                        self._receive(self._open[number])
                        heard = now
                    if now - heard > PATIENCE_S:
                        raise TimeoutError(f"no answer in {PATIENCE_S} s")
            finally:
                for connection in self._open.values():
                    connection.socket.close()
        burst.seconds = burst.seconds[0], time.monotonic() - began
        return burst

    def _due_at(self, began: float, place: int) -> float:
        return began + place / self._rate

    def _left(self, began: float, now: float) -> float:
        """Return the seconds in which there is nothing to send."""
        if self._sent == len(self._requests) or not (self._idle or self._may_open):
            return 1.0
        return max(0.0, self._due_at(began, self._sent) - now)

    @property
    def _may_open(self) -> bool:
        return len(self._open) < self._most

    def _send_due(self, began: float, now: float, waiting: select.epoll) -> None:
        while self._sent < len(self._requests) and self._due_at(began, self._sent) <= now:
            if not self._idle and not self._may_open:
                return
            if not self._idle:
                self._connect(waiting)
            connection = self._idle.pop()
            connection.place, connection.due = self._sent, self._due_at(began, self._sent)
            self._sent += 1
            self.burst.late += now - connection.due >= LATE_S
            try:
                connection.socket.sendall(self._requests[connection.place])
            except (BrokenPipeError, ConnectionResetError):
                self._lose(connection)
        if self._sent == len(self._requests) and not self.burst.seconds[0]:
            self.burst.seconds = now - began, 0.0

    def _connect(self, waiting: select.epoll) -> None:
        connection = _Connection(self._port, self.burst.opened % CONNECTIONS)
        self.burst.opened += 1
        self._open[connection.socket.fileno()] = connection
        self._idle.append(connection)
        waiting.register(connection.socket, select.EPOLLIN)

    def _receive(self, connection: _Connection) -> None:
        try:
            part = connection.socket.recv(RECEIVE)
        except ConnectionResetError:
            part = b""
        if not part:
            self._lose(connection)
            return
        connection.found += part
        if not is_whole(connection.found):
            return
        self.burst.answers[connection.place] = connection.found
        self.burst.slowest = max(self.burst.slowest, time.monotonic() - connection.due)
        connection.place, connection.found = -1, b""
        if self._kept:
            self._idle.append(connection)
        else:
            self._close(connection)

    def _lose(self, connection: _Connection) -> None:
        """Record that the server has closed a connection, with or without a delivery under way."""
        if connection.place >= 0:
            self.burst.lost.append(connection.place)
        else:
            self._idle.remove(connection)
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        del self._open[connection.socket.fileno()]
        connection.socket.close()
