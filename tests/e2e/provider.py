"""The simulated provider as the process it is, and the settings of a service that uses it."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from app.sandbox.settings import SANDBOX_SECRET, SANDBOX_TOKEN
from tests.forking import Started, start
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

UNIT_S = 0.05
"""Seconds in one unit of a scenario: a session lives one second."""

UNIT_OF_PEOPLE_S = 60.0
"""Seconds in one unit where a session must not end before the test does."""


def checkout_settings(port: int) -> dict[str, Any]:
    """Return the settings of a service that opens sessions at this port."""
    return {
        "SOURCES__SHOP__SECRETS": SANDBOX_SECRET,
        "CHECKOUT__BASE_URL": f"http://127.0.0.1:{port}",
        "CHECKOUT__TOKEN": SANDBOX_TOKEN,
        "PAYMENT_WINDOW_S": "5",
        "GRACE_S": "1",
    }


def get(port: int, path: str) -> Any:
    """Get the JSON at a path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@contextmanager
def provider(*, webhook_port: int, seed: int = 0, unit_s: float = UNIT_S) -> Iterator[int]:
    """Run the provider until the block ends; yield its port, once it answers."""
    port = free_port()
    words = ["sandbox", "--port", str(port), "--unit", str(unit_s), "--seed", str(seed)]
    words += ["--webhook-url", f"http://127.0.0.1:{webhook_port}/webhooks/shop"]
    process = start(
        [sys.executable, "-m", "app", *words],
        env=os.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(process, port)
        yield port
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def _wait_for(process: Started, port: int) -> None:
    def answers() -> bool:
        assert process.poll() is None, "the provider ended"
        with suppress(OSError):
            return bool(get(port, "/livez") == {"status": "ok"})
        return False

    until(answers, otherwise=lambda: "the provider does not answer")
