"""Sends signed deliveries over a few connections and keeps every acknowledgement, in its order."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from app.core.clock import SystemClock
from reconcile.instants import Instant
from tests.api.driving import of_order, signed
from tests.waiting import PATIENCE_S, until

CONNECTIONS = 8
REFUSED_S = 0.1
"""For which a connection rests that was told 503."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `verdict` and `delivery` are empty where nothing was acknowledged."""

    at: Instant
    status: int
    event: str
    verdict: str = ""
    delivery: str = ""


@dataclass(slots=True)
class Ledger:
    """What was promised: every answer, and the delivery ids of those that were acknowledged."""

    answers: list[Answer] = field(default_factory=list)

    @property
    def acknowledged(self) -> list[Answer]:
        """The promises."""
        return [answer for answer in self.answers if answer.status == 200]

    @property
    def deliveries(self) -> set[str]:
        """Ids that must be found."""
        return {answer.delivery for answer in self.acknowledged}

    def statuses(self) -> set[int]:
        """Every status that was seen."""
        return {answer.status for answer in self.answers}


def request(event_id: str, *, at: Instant, filler: int = 0) -> bytes:
    """A whole signed request: one event of one order in four."""
    document = of_order(f"ORD-{event_id[:-1]}", event_id)
    if filler:
        document["note"] = "x" * filler
    body = json.dumps(document).encode()
    lines = [b"POST /webhooks/shop HTTP/1.1", b"host: faults", b"content-length: %d" % len(body)]
    lines += [name + b": " + value for name, value in signed(body, at=at, event_id=event_id)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Connection:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._stream = self._socket.makefile("rb")
        self.headers: dict[str, str] = {}
        """Those of the last answer, by their names in lower case."""

    def send(self, event_id: str, *, at: Instant | None = None, filler: int = 0) -> Answer:
        """Deliver an event once. Raises OSError when the connection breaks before an answer."""
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
        """Hang up."""
        self._stream.close()
        self._socket.close()


class Load:
    """Connections that send event after event until told to stop, whatever is answered."""

    def __init__(
        self, port: int, *, name: str = "e", filler: int = 0, again: int = 4, rest_s: float = 0.0
    ) -> None:
        """again: every so-manieth event is delivered twice: a duplicate is a promise too. rest_s:
        for which a connection rests after each answer, where the load only is to go on."""
        self._port = port
        self._name = name
        self._filler = filler
        self._again = again
        self._rest_s = rest_s
        self._stop = threading.Event()
        self.ledger = Ledger()
        self._sent: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(CONNECTIONS)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, once the requests under way have been answered or have failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def unpromised(self) -> list[str]:
        """Events of which no delivery was acknowledged: refused, or never answered. A provider
        delivers them again."""
        promised = {answer.event for answer in self.ledger.acknowledged}
        return [event_id for event_id in dict.fromkeys(self._sent) if event_id not in promised]

    def until(self, count: int) -> None:
        """Wait for so many acknowledgements, or for nobody being left to give any."""
        self.until_it(lambda: len(self.ledger.acknowledged) >= count)

    def until_it(self, holds: Callable[[], object]) -> None:
        """Wait until this holds, or for nobody being left to answer."""
        until(
            lambda: holds() or not any(thread.is_alive() for thread in self._threads),
            otherwise=lambda: f"{len(self.ledger.acknowledged)} acknowledgements",
        )

    def _run(self, number: int) -> None:
        with suppress(OSError):
            connection = Connection(self._port)
            try:
                for event_id in self._ids(number):
                    self._sent.append(event_id)
                    answer = connection.send(event_id, filler=self._filler)
                    self.ledger.answers.append(answer)
                    time.sleep(self._rest_s if answer.status == 200 else REFUSED_S)
            finally:
                connection.close()

    def _ids(self, number: int) -> Iterator[str]:
        count = 0
        while not self._stop.is_set():
            event_id = f"{self._name}-{number}-{count}"
            yield event_id
            if count % self._again == 0:
                yield event_id
            count += 1


@contextmanager
def load(
    port: int, *, name: str = "e", filler: int = 0, again: int = 4, rest_s: float = 0.0
) -> Iterator[Load]:
    """A load that has surely ended afterwards."""
    driver = Load(port, name=name, filler=filler, again=again, rest_s=rest_s)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()


def deliver(port: int, *event_ids: str) -> list[Answer]:
    """Deliver these events one after another on one connection."""
    connection = Connection(port)
    try:
        return [connection.send(event_id) for event_id in event_ids]
    finally:
        connection.close()
