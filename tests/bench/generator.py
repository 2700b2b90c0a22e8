"""The load generator in a process of its own: it prepares requests, then sends them.

`python -m tests.bench.generator`: one JSON command a line in, one JSON answer a line out."""

from __future__ import annotations

import gc
import hashlib
import json
import subprocess
import sys
from dataclasses import asdict
from types import TracebackType
from typing import Any

from app.core.clock import SystemClock
from reconcile.instants import SECOND
from tests.bench.load import Leg, Target, send
from tests.bench.orders import Stretch
from tests.bench.processes import last_core, on_cores
from tests.bench.requests import mixed, signed_request, source


class Generator:
    """The generator, for the process that starts it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __enter__(self) -> Generator:
        command = [sys.executable, "-m", "tests.bench.generator"]
        with on_cores({last_core()}):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def prepare(self, stretch: Stretch, *, rate: int | None = None) -> int:
        """Write and sign the stretch's requests; return the sum of their bodies' digests.

        rate  a second, at which they will be sent: each is dated for its turn
        """
        asked = {"secret": self._secret, "stretch": asdict(stretch), "rate": rate}
        return int(self._ask(do="prepare", **asked)["digests"], 16)

    def send(
        self,
        target: Target,
        *,
        connections: int,
        warm: int,
        times: int = 1,
        rate: int | None = None,
        count: int | None = None,
    ) -> Leg:
        asked = {"connections": connections, "warm": warm, "times": times, "rate": rate}
        asked["count"] = count
        return Leg(**self._ask(do="send", port=target.port, pid=target.pid, **asked))

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load generator ended; its reason stands above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def prepared(stretch: Stretch, secret: str, *, rate: int | None = None) -> tuple[list[bytes], int]:
    """Return the signed requests, and the sum of their bodies' SHA-256."""
    signer, now = source(secret), SystemClock().now()
    requests, digests = [], 0
    for place, message in enumerate(mixed(stretch, now=now)):
        due = now if rate is None else now + place * SECOND // rate
        requests.append(signed_request(signer, message, now=due))
        digests += int.from_bytes(hashlib.sha256(message.body).digest())
    return requests, digests


def main() -> None:
    requests: list[bytes] = []
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "prepare":
            requests, digests = prepared(
                Stretch(**command["stretch"]), command["secret"], rate=command["rate"]
            )
            answer: dict[str, Any] = {"digests": f"{digests:x}"}
        else:
            answer = _sent(requests, command)
        print(json.dumps(answer), flush=True)


def _sent(requests: list[bytes], command: dict[str, Any]) -> dict[str, Any]:
    gc.collect()
    gc.disable()  # a collection would walk all prepared requests and show as the server's latency
    target = Target(port=command["port"], pid=command["pid"])
    sizes = {name: command[name] for name in ("connections", "warm", "times", "rate", "count")}
    try:
        return asdict(send(requests, target=target, **sizes))
    except (OSError, TimeoutError) as error:
        return {"error": f"the load generator gave up: {error or 'no answer in time'}"}
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
