"""Sends prepared requests as fast as they are answered, one at a time on each connection.

Lean on purpose, so that the server is what is measured: requests are bytes made beforehand, and of
an answer only the status, the length and the verdict are looked at. Plain sockets and epoll, not
an event loop: uvloop holds writes back until it has read from all connections, so that sender and
server would work in turns and each look slower than it is.
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
"""Seconds without any answer after which a leg is given up."""

RECEIVE = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to send: a port of this machine, and the process that listens there."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What came of one row of requests; rates and shares leave the warm-up out.

    sent          requests, the warm-up included
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


@dataclass(slots=True)
class Course:
    """The shared state of one leg's connections.

    rate  requests a second from `begun` on; None: each connection sends as soon as it is answered
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

    def next_place(self) -> int | None:
        """The place of the next request to send; None when all are sent."""
        place = self.place
        if place == self.total:
            return None
        self.place = place + 1
        return place

    def due(self) -> float:
        """When the next request is due, where there is a rate."""
        assert self.rate is not None
        return self.begun + self.place / self.rate

    def answer(self, place: int, latency: float, good: bool) -> None:
        """Count one answer; the last of the warm-up starts the clock, the last of all stops it."""
        self.latencies.append(latency)
        if not good:
            self.refused.append(place % len(self.requests))
        self.answered += 1
        if self.answered == self.warm:
            self.started = self._moment()
        elif self.answered == self.total:
            self.ended = self._moment()

    def _moment(self) -> tuple[float, float, float]:
        """Now: the clock, our processor time, and the server's."""
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
        """For epoll."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send_next(self) -> None:
        """Send the next request, if there is one. It fits in the socket's buffer."""
        course = self._course
        due = time.perf_counter() if course.rate is None else course.due()
        place = course.next_place()
        if place is not None:
            self._place = place
            self._sent_at = due
            self._socket.sendall(course.requests[place % len(course.requests)])

    def receive(self) -> None:
        """Take in an answer, or a part of one; a whole one is counted and the next request sent."""
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
    """Whether an answer with its announced body is complete."""
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
) -> Leg:
    """Send all requests, `times` over; more than `warm` in all. `rate`: so many a second, as long
    as a connection is free; latency then counts from when a request was due.

    Raises ConnectionError when a connection is lost, TimeoutError when no answer comes.
    """
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
    return _leg(course)


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
            pause = _send_what_is_due(course)
            ready = waiting.poll(SILENCE_S if pause is None else pause)
            if not ready and pause is None:
                raise TimeoutError(f"no answer in {SILENCE_S} s")
            for number, _ in ready:
                opened[number].receive()


def _send_what_is_due(course: Course) -> float | None:
    """Seconds until a further request is due; None where only an answer lets one be sent."""
    while course.rate is not None and course.idle and course.place < course.total:
        pause = course.due() - time.perf_counter()
        if pause > 0:
            return pause
        course.idle.popleft().send_next()
    return None


def _leg(course: Course) -> Leg:
    counted = sorted(course.latencies[course.warm :])
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


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of the ordered values do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
