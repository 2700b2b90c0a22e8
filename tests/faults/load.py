"""A load of signed deliveries over a few connections, which keeps every acknowledgement."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from app.core.clock import SystemClock
from reconcile.instants import Instant
from tests.api.driving import of_order, signed
from tests.waiting import PATIENCE_S, until

CONNECTIONS = 8
REFUSED_S = 0.1
"""Pause of a connection after a 503."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `verdict` and `delivery` are empty without an acknowledgement."""

    at: Instant
    status: int
    event: str
    verdict: str = ""
    delivery: str = ""


@dataclass(slots=True)
class Ledger:
    """Every answer, in order."""

    answers: list[Answer] = field(default_factory=list)

    @property
    def acknowledged(self) -> list[Answer]:
        """Answers that promise a delivery."""
        return [answer for answer in self.answers if answer.status == 200]

    @property
    def deliveries(self) -> set[str]:
        """Ids of deliveries that must be found."""
        return {answer.delivery for answer in self.acknowledged}

    def statuses(self) -> set[int]:
        return {answer.status for answer in self.answers}


def request(event_id: str, *, at: Instant, filler: int = 0) -> bytes:
    """Return a whole signed request: one event of one order in four."""
    document = of_order(f"ORD-{event_id[:-1]}", event_id)
    if filler:
        document["note"] = "x" * filler
    body = json.dumps(document).encode()
    lines = [b"POST /webhooks/shop HTTP/1.1", b"host: faults", b"content-length: %d" % len(body)]
    lines += [name + b": " + value for name, value in signed(body, at=at, event_id=event_id)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Connection:
    """One keep-alive connection."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_S)
        self._stream = self._socket.makefile("rb")
        self.headers: dict[str, str] = {}
        """Headers of the last answer, by names in lower case."""

    def send(self, event_id: str, *, at: Instant | None = None, filler: int = 0) -> Answer:
        """Deliver an event once. Raises OSError if the connection breaks before an answer."""
        now = SystemClock().now() if at is None else at
        self._socket.sendall(request(event_id, at=now, filler=filler))
        status, body = self._read()
        document = json.loads(body) if status == 200 else {}
        words = (document.get("verdict", ""), document.get("delivery", ""))
        return Answer(SystemClock().now(), status, event_id, *words)

    def _read(self) -> tuple[int, bytes]:
        first = self._stream.readline()
        self.headers = {}
        while (line := self._stream.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.lower()] = value.strip()
        length = int(self.headers.get("content-length", 0))
        body = self._stream.read(length)
        if not first or len(body) < length:
            raise ConnectionError("the answer was cut off")
        return int(first.split()[1]), body

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@dataclass
class Load:
    """Connections that send event after event until stopped, whatever is answered.

    again   every n-th event is delivered twice: a duplicate is a promise too
    rest_s  pause of a connection after each acknowledgement
    """

    port: int
    name: str = "e"
    filler: int = 0
    again: int = 4
    rest_s: float = 0.0
    host: str = "127.0.0.1"
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._sent: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(CONNECTIONS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, once the requests under way have been answered or have failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def unpromised(self) -> list[str]:
        """Events without an acknowledged delivery, which a provider delivers again."""
        promised = {answer.event for answer in self.ledger.acknowledged}
        return [event_id for event_id in dict.fromkeys(self._sent) if event_id not in promised]

    def until(self, count: int) -> None:
        """Wait for so many acknowledgements, or until nobody is left to give any."""
        self.until_it(lambda: len(self.ledger.acknowledged) >= count)

    def until_it(self, holds: Callable[[], object]) -> None:
        """Wait until this holds, or until nobody is left to answer."""
        until(
            lambda: holds() or not any(thread.is_alive() for thread in self._threads),
            otherwise=lambda: f"{len(self.ledger.acknowledged)} acknowledgements",
        )

    def _run(self, number: int) -> None:
        with suppress(OSError):
            connection = Connection(self.port, self.host)
            try:
                for event_id in self._ids(number):
                    self._sent.append(event_id)
                    answer = connection.send(event_id, filler=self.filler)
                    self.ledger.answers.append(answer)
                    time.sleep(self.rest_s if answer.status == 200 else REFUSED_S)
            finally:
                connection.close()

    def _ids(self, number: int) -> Iterator[str]:
        count = 0
        while not self._stop.is_set():
            event_id = f"{self.name}-{number}-{count}"
            yield event_id
            if count % self.again == 0:
                yield event_id
            count += 1


@contextmanager
def load(port: int, **more: Any) -> Iterator[Load]:
    """Run a load until the block ends. `more` is for `Load`."""
    driver = Load(port, **more)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()


def deliver(port: int, *event_ids: str) -> list[Answer]:
    """Deliver these events in turn on one connection."""
    connection = Connection(port)
    try:
        return [connection.send(event_id) for event_id in event_ids]
    finally:
        connection.close()
