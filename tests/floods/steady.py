"""A provider that delivers at a steady rate, whatever else is going on.

`python -m tests.floods.steady PORT SECRET RATE [SEED]` delivers until its standard input ends, then
writes its results as one JSON line."""

import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from threading import Event

from app.core.clock import SystemClock
from tests.bench.load import is_whole, quantile
from tests.bench.orders import Message, Stretch
from tests.bench.requests import signed_request, source

CONNECTIONS = 32

Sent = tuple[bool, float]
"""Acknowledgement of one delivery, and seconds until that or until it was given up."""

PATIENCE_S = 10
"""Seconds after which an answer no longer counts: providers wait about as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Results: deliveries sent and acknowledged, and how fast."""

    sent: int
    acknowledged: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def share(self) -> float:
        """Share of deliveries that were acknowledged."""
        return self.acknowledged / self.sent


class Provider:
    """A sender of one delivery after the other, which reopens a lost connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def deliver(self, request: bytes) -> bool:
        """Return whether the request was acknowledged as accepted."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
            self._socket.sendall(request)
            answer = b""
            while not is_whole(answer):
                part = self._socket.recv(65_536)
                if not part:
                    raise ConnectionResetError
                answer += part
        except OSError:
            self.close()
            return False
        return answer[9:12] == b"200" and b'"accepted"' in answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def deliver_until(port: int, secret: str, rate: float, *, seed: int, stop: Event) -> list[Sent]:
    """Deliver at this rate on one connection.

    Seconds count from when a delivery was due, so that waiting ones count too."""
    signer, clock, provider = source(secret), SystemClock(), Provider(port)
    done: list[Sent] = []
    due, messages = time.monotonic(), _messages(seed)
    while not stop.wait(max(0.0, due - time.monotonic())):
        request = signed_request(signer, next(messages), now=clock.now())
        good = provider.deliver(request)
        done.append((good, time.monotonic() - due))
        due += 1 / rate
    provider.close()
    return done


def _messages(seed: int) -> Iterator[Message]:
    for number in count():
        stretch = Stretch(seed=seed, first=number, count=1)
        for messages in stretch.messages(ended_at=SystemClock().now()):
            yield from messages


def main(port: int, secret: str, rate: float, seed: int = 1) -> None:
    stop = Event()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        running = [
            pool.submit(
                deliver_until,
                port,
                secret,
                rate / CONNECTIONS,
                seed=1000 * seed + number,
                stop=stop,
            )
            for number in range(CONNECTIONS)
        ]
        sys.stdin.read()
        stop.set()
    done = [sent for future in running for sent in future.result()]
    ordered = sorted(seconds for _, seconds in done)
    told = Steady(
        sent=len(done),
        acknowledged=sum(good for good, _ in done),
        p50_ms=quantile(ordered, 0.5) * 1000,
        p99_ms=quantile(ordered, 0.99) * 1000,
        max_ms=ordered[-1] * 1000,
    )
    print(json.dumps(asdict(told)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *map(int, sys.argv[4:]))
