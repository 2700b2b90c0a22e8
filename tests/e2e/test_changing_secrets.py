"""A webhook secret that is changed while deliveries come, by a restart for each step."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.driving import of_order, secret
from tests.e2e.processes import deliver, running
from tests.faults.check import assert_kept
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.slow

OLD, NEW = b"a key for tests, to be changed", b"a newer key for tests, no secret"
SENDERS = 3
SOME = 30
PAUSE_S = 0.005
"""Between a delivery that was not taken and its next attempt."""


def attempt(port: int, event_id: str, key: bytes) -> tuple[int, dict[str, Any]]:
    """Attempt one delivery to the source, signed with a key."""
    event = of_order(f"O-{event_id}", event_id)
    status, body = deliver(port, event, path="/webhooks/cards", event_id=event_id, key=key)
    return status, json.loads(body)


class Provider:
    """Senders that sign with one key, and come again with each event until it is taken."""

    def __init__(self, port: int, name: str, key: bytes) -> None:
        self._port, self._name, self._key = port, name, key
        self._enough, self._abandoned = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(n,)) for n in range(SENDERS)]
        self.taken: list[str] = []
        """Delivery ids."""
        self.refused: list[int] = []
        """Statuses that are neither 200 nor 503."""
        self.alone = 0
        """Attempts that nobody answered."""

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def takes_some(self) -> None:
        """Wait until some more are taken, and none was refused."""
        wanted = len(self.taken) + SOME
        self._until(lambda: len(self.taken) >= wanted)

    def finish(self) -> None:
        """Send nothing new, and wait until all that was begun is taken."""
        self._enough.set()
        self._until(lambda: not any(thread.is_alive() for thread in self._threads))

    def _until(self, holds: Callable[[], bool]) -> None:
        until(lambda: self.refused or holds())
        assert self.refused == []

    def abandon(self) -> None:
        """End, whatever has become of the test."""
        self._enough.set()
        self._abandoned.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _send(self, sender: int) -> None:
        number = 0
        while not self._enough.is_set():
            self._until_taken(f"{self._name}-{sender}-{number}")
            number += 1

    def _until_taken(self, event_id: str) -> None:
        while not self._abandoned.is_set():
            try:
                status, answer = attempt(self._port, event_id, self._key)
            except (OSError, http.client.HTTPException):
                self.alone += 1
            else:
                if status == 200:
                    self.taken.append(answer["delivery"])
                    return
                if status != 503:
                    self.refused.append(status)
            time.sleep(PAUSE_S)


@contextmanager
def sending(port: int, name: str, key: bytes) -> Iterator[Provider]:
    """Run a provider that sends until the block ends."""
    provider = Provider(port, name, key)
    try:
        yield provider
    finally:
        provider.abandon()


def put(path: Path, *keys: bytes) -> None:
    """Write the file of secrets, the newest first."""
    path.write_text("".join(f"{secret(key)}\n" for key in keys))
    path.chmod(0o600)


@pytest.mark.soak
def test_a_secret_is_changed_while_deliveries_come(tmp_path: Path) -> None:
    """Old, then new and old, then new: what is signed with a secret in force is never refused, and
    all of it is kept. A change of the file means nothing until the restart; what was left out is
    refused from the first delivery after it."""
    port, secrets = free_port(), tmp_path / "secrets"
    words: dict[str, Any] = {"SOURCES__CARDS__SECRETS_FILE": str(secrets)}
    serve = ("serve", "--port", str(port))
    with sending(port, "old", OLD) as old, sending(port, "new", NEW) as new:
        put(secrets, OLD)
        with running(tmp_path, *serve, **words) as service:
            old.start()
            old.takes_some()
            put(secrets, NEW, OLD)
            assert attempt(port, "early", NEW)[0] == 401
            assert service.end() == 0
        until(lambda: old.alone)
        with running(tmp_path, *serve, **words) as service:
            new.start()
            new.takes_some()
            put(secrets, NEW)
            old.takes_some()
            old.finish()
            assert service.end() == 0
        until(lambda: new.alone)
        with running(tmp_path, *serve, **words) as service:
            assert attempt(port, "late", OLD)[0] == 401
            new.takes_some()
            new.finish()
            assert attempt(port, "later", OLD)[0] == 401
            assert service.end() == 0
    assert_kept(tmp_path / "t.db", {*old.taken, *new.taken})
