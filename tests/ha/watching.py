"""Two clients that never rest: one commits on each node, one reads the outcome feed."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import asyncpg

from app.core.clock import SystemClock
from reconcile.instants import SECOND, Instant
from tests.waiting import PATIENCE_S

TRY_S: Final = 2.0
"""Seconds that the probe waits for a connection or a commit before it tries anew."""

REST_S: Final = 0.05
"""Seconds between the probe's commits on one node."""

_REFUSALS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def can_commit(url: str) -> bool:
    """Return whether a node confirms a commit within TRY_S."""

    async def committed() -> bool:
        connection = None
        try:
            async with asyncio.timeout(TRY_S):
                connection = await asyncpg.connect(url.replace("+asyncpg", ""))
                # A transaction that writes nothing would not wait for its standby.
                await connection.execute("SELECT pg_logical_emit_message(true, 'probe', '')")
        except (OSError, *_REFUSALS):
            return False
        finally:
            if connection is not None:
                connection.terminate()
        return True

    return asyncio.run(committed())


@dataclass(frozen=True, slots=True)
class Silence:
    """The longest time without a success since a fault, in seconds, and when it ended."""

    lasted_s: float
    until: Instant


def silence(times: list[Instant], *, since: Instant) -> Silence:
    """Find the longest gap that ends after `since`. Needs a success before and one after."""
    gaps = [(b - a, b) for a, b in pairwise(times) if b > since]
    longest, until = max(gaps)
    return Silence(longest / SECOND, until)


@dataclass(slots=True)
class Probe:
    """A client of the nodes themselves, which shows when the database takes writes.

    commits  when each commit was confirmed, by any node
    """

    urls: Mapping[str, str]
    commits: list[Instant] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    async def _one(self, url: str) -> None:
        connection: asyncpg.Connection | None = None
        while not self.stopping.is_set():
            try:
                async with asyncio.timeout(TRY_S):
                    if connection is None:
                        connection = await asyncpg.connect(url)
                    await connection.execute("UPDATE probes SET number = number + 1")
                self.commits.append(SystemClock().now())
            except (OSError, *_REFUSALS):
                if connection is not None:
                    connection.terminate()
                connection = None
            await asyncio.sleep(REST_S)
        if connection is not None:
            connection.terminate()

    async def run(self) -> None:
        """Commit on all nodes until told to stop."""
        await asyncio.gather(*(self._one(url) for url in self.urls.values()))


@dataclass(slots=True)
class Feed:
    """A shop that reads the feed from any receiver that answers.

    ids     numbers of the revisions, as they came
    breaks  answers that told it to begin anew
    """

    ports: list[int]
    token: str
    ids: list[int] = field(default_factory=list)
    breaks: list[object] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Read until told to stop."""
        turn = 0
        while not self.stopping.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError):
                self._ask(self.ports[turn % len(self.ports)])
                continue
            turn += 1
            self.stopping.wait(REST_S)

    def _ask(self, port: int) -> None:
        after = self.ids[-1] if self.ids else 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            path = f"/api/v1/outcomes?after={after}&limit=100&wait=1"
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            page = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status == 200:
            self.ids += [each["id"] for each in page["outcomes"]]
        elif answer.status == 503:
            raise ConnectionError("refused for now")
        else:
            self.breaks.append((answer.status, page))
            raise ConnectionError("not the page that was asked for")


@contextmanager
def watched(probe: Probe, feed: Feed) -> Iterator[None]:
    """Run both until the block ends."""
    threads = [
        threading.Thread(target=lambda: asyncio.run(probe.run())),
        threading.Thread(target=feed.run),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in (probe, feed):
            each.stopping.set()
        for thread in threads:
            thread.join(PATIENCE_S)
