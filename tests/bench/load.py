"""A sender of prepared requests: as fast as they are answered, one at a time on each connection.

It is lean, so that the server is what is measured: requests are prepared bytes, and only an
answer's status, length and verdict are read. It uses plain sockets and epoll, because uvloop holds
writes back until it has read from all connections; sender and server would then work in turns.
"""

from __future__ import annotations

import os
import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.machine import cpu_seconds

SILENCE_S = 30
"""Seconds without any answer after which a leg fails."""

RECEIVE = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A port of this machine, and the process that listens there."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Results of one row of requests; all but `sent` leave the warm-up out.

    refused       places in the row of requests not answered with 200 and `"accepted"`
    seconds       from the end of the warm-up to the last answer
    generator_cpu, server_cpu
                  processor seconds used in that time
    """

    sent: int
    counted: int
    refused: list[int]
    seconds: float
    p50_ms: float
    p99_ms: float
    generator_cpu: float
    server_cpu: float

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.counted / self.seconds

    @property
    def cores(self) -> float:
        """Cores that the server used."""
        return self.server_cpu / self.seconds


@dataclass(slots=True)
class Course:
    """The shared state of one leg's connections.

    rate  requests a second from `begun` on; None: send as soon as a connection is answered
    idle  connections that wait until a request is due
    """

    requests: Sequence[bytes]
    total: int
    warm: int
    pid: int
    rate: int | None = None
    begun: float = 0.0
    idle: deque[Connection] = field(default_factory=deque)
    place: int = 0
    answered: int = 0
    latencies: array[float] = field(default_factory=lambda: array("d"))
    refused: list[int] = field(default_factory=list)
    started: tuple[float, float, float] = (0.0, 0.0, 0.0)
    ended: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def due(self) -> float:
        """Return when the next request is due."""
        if self.rate is None:
            return time.perf_counter()
        return self.begun + self.place / self.rate

    def answer(self, place: int, latency: float, good: bool) -> None:
        """Count one answer; the last one of the warm-up starts the clock, the last one stops it."""
        self.latencies.append(latency)
        if not good:
            self.refused.append(place % len(self.requests))
        self.answered += 1
        if self.answered == self.warm:
            self.started = self._moment()
        elif self.answered == self.total:
            self.ended = self._moment()

    def _moment(self) -> tuple[float, float, float]:
        """Return the clock, our processor time, and the server's."""
        return time.perf_counter(), cpu_seconds(os.getpid()), cpu_seconds(self.pid)


class Connection:
    """One keep-alive connection with one request under way."""

    __slots__ = ("_course", "_partial", "_place", "_sent_at", "_socket")

    def __init__(self, course: Course, port: int) -> None:
        self._course = course
        self._place = 0
        self._sent_at = 0.0
        self._partial = b""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send_next(self) -> None:
        """Send the next request, if there is one. It fits in the socket's buffer."""
        course = self._course
        if course.place < course.total:
            self._sent_at = course.due()
            self._place = course.place
            course.place += 1
            self._socket.sendall(course.requests[self._place % len(course.requests)])

    def receive(self) -> None:
        """Read an answer or a part of one; count a whole one and send the next request."""
        data = self._socket.recv(RECEIVE)
        if not data:
            raise ConnectionError("the server closed a connection")
        if self._partial:
            data = self._partial + data
        if not is_whole(data):
            self._partial = data
            return
        self._partial = b""
        good = data[9:12] == b"200" and b'"accepted"' in data
        self._course.answer(self._place, time.perf_counter() - self._sent_at, good)
        if self._course.rate is None:
            self.send_next()
        else:
            self._course.idle.append(self)


def is_whole(data: bytes) -> bool:
    """Return whether an answer with its announced body is complete."""
    head = data.find(b"\r\n\r\n")
    if head < 0:
        return False
    start = data.find(b"content-length: ", 0, head)
    if start < 0:
        return True
    end = data.find(b"\r\n", start)
    return len(data) >= head + 4 + int(data[start + 16 : end])


def send(
    requests: Sequence[bytes],
    *,
    target: Target,
    connections: int,
    warm: int,
    times: int = 1,
    rate: int | None = None,
    count: int | None = None,
) -> Leg:
    """Send all requests, or the first `count`, `times` over, more than `warm` in all.

    With a `rate` send so many a second, if a connection is free; latency then counts from when a
    request was due. Raises ConnectionError if a connection is lost, TimeoutError without an answer.
    """
    requests = requests[:count]
    course = Course(requests, total=len(requests) * times, warm=warm, pid=target.pid, rate=rate)
    opened: dict[int, Connection] = {}
    try:
        for _ in range(connections):
            connection = Connection(course, target.port)
            opened[connection.fileno()] = connection
        _exchange(course, opened)
    finally:
        for connection in opened.values():
            connection.close()
    counted = sorted(course.latencies[warm:])
    seconds, own, servers = (
        end - start for start, end in zip(course.started, course.ended, strict=True)
    )
    return Leg(
        sent=course.total,
        counted=len(counted),
        refused=course.refused,
        seconds=seconds,
        p50_ms=quantile(counted, 0.50) * 1000,
        p99_ms=quantile(counted, 0.99) * 1000,
        generator_cpu=own,
        server_cpu=servers,
    )


def _exchange(course: Course, opened: dict[int, Connection]) -> None:
    with select.epoll() as waiting:
        for number, connection in opened.items():
            waiting.register(number, select.EPOLLIN)
            if course.rate is None:
                connection.send_next()
            else:
                course.idle.append(connection)
        course.begun = time.perf_counter()
        while course.answered < course.total:
            pause = None
            while course.idle and course.place < course.total:
                pause = course.due() - time.perf_counter()
                if pause > 0:
                    break
                course.idle.popleft().send_next()
                pause = None
            ready = waiting.poll(SILENCE_S if pause is None else pause)
            if not ready and pause is None:
                raise TimeoutError(f"no answer in {SILENCE_S} s")
            for number, _ in ready:
                opened[number].receive()


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that `share` of the ordered values do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
