"""The long form of a server that ends under load: whole services, one database, many orders."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SystemClock
from app.database.hosts import CONNECT_S
from reconcile.instants import SECOND
from tests.database.builders import opened
from tests.e2e.processes import Process, command, running, serving
from tests.faults.load import Load, deliver, load
from tests.postgres.conftest import a_database, ask, ask_in_loop
from tests.postgres.loading import stored_twice, told_wrongly
from tests.postgres.server import ENDINGS, Server
from tests.postgres.server import running as a_server
from tests.waiting import until

pytestmark = pytest.mark.postgres

ROUNDS = (*["killed"] * 6, "stopped at once", "stopped fast")
WORKERS = 4
ACKS = 15_000
"""Acknowledgements in a round, at least, before the server ends."""


@dataclass(slots=True)
class Promised:
    """Promises of all rounds.

    deliveries  ids that must be found
    orders      those that were paid
    refused     answers that promised nothing
    kept        events that were refused, and were there all the same when they came again
    gaps        seconds from a server that is there again to the next acknowledgement
    """

    deliveries: set[str] = field(default_factory=set)
    orders: set[str] = field(default_factory=set)
    refused: int = 0
    kept: int = 0
    gaps: list[float] = field(default_factory=list)

    def add(self, driver: Load, port: int) -> None:
        """Add a round; what was refused is first sent again, and taken."""
        again = deliver(port, *driver.unpromised)
        assert {answer.status for answer in again} <= {200}
        answers = [*driver.ledger.acknowledged, *again]
        assert driver.ledger.statuses() <= {200, 503}
        self.deliveries |= {answer.delivery for answer in answers}
        self.orders |= {f"ORD-{answer.event[:-1]}" for answer in answers}
        self.refused += len(driver.ledger.answers) - len(driver.ledger.acknowledged)
        self.kept += sum(answer.verdict == "duplicate" for answer in again)

    def __str__(self) -> str:
        return (
            f"{len(ROUNDS)} ends of the server, {len(self.deliveries):,} acknowledgements, "
            f"{self.refused:,} refused and sent again, {self.kept} of them kept before; gaps of "
            f"{min(self.gaps):.2f} to {max(self.gaps):.2f} s; {len(self.orders):,} orders paid, "
            "each told once, none lost"
        )


@contextmanager
def services(folder: Path, url: str) -> Iterator[list[Process]]:
    """Run two receivers, and workers that read and fold, which end well."""
    own: dict[str, Any] = {"DATABASE_URL": url}
    with ExitStack() as stack:
        receivers = [stack.enter_context(serving(folder, "--no-worker", **own)) for _ in range(2)]
        workers = [stack.enter_context(running(folder, "worker", **own)) for _ in range(WORKERS)]
        yield receivers
        for process in (*receivers, *workers):
            assert process.end() == 0
            assert all("Traceback" not in str(line) for line in process.lines)


def refusals(driver: Load) -> int:
    """Return how often senders were asked to come again."""
    return sum(answer.status == 503 for answer in driver.ledger.answers)


def one_round(
    server: Server, receivers: Sequence[Process], number: int, promised: Promised
) -> None:
    """Keep up the load until the server ends and has come back; every connection outlives that."""
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(load(receiver.port, name=f"r{number}-{place}"))
            for place, receiver in enumerate(receivers)
        ]
        for driver in drivers:
            driver.until(ACKS // len(drivers))
        ENDINGS[ROUNDS[number]](server)
        for driver in drivers:
            driver.until_it(partial(lambda one: refusals(one) >= 10, driver))
        before = [len(driver.ledger.acknowledged) for driver in drivers]
        server.start()
        there = SystemClock().now()
        for driver, count in zip(drivers, before, strict=True):
            driver.until(count + 50)
            first = driver.ledger.acknowledged[count]
            promised.gaps.append(max(0.0, (first.at - there) / SECOND))
    for driver, receiver in zip(drivers, receivers, strict=True):
        promised.add(driver, receiver.port)


async def assert_once(url: str, promised: Promised) -> None:
    """Check that nothing is lost or there twice, and that each paid order was published once."""
    found = await ask_in_loop(url, "SELECT id FROM deliveries")
    assert promised.deliveries <= {row[0] for row in found}
    async with opened(url) as inbox:
        assert await stored_twice(inbox) == []
        now = SystemClock().now()
        assert await told_wrongly(inbox, promised.orders, as_of=now) == []


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_services_whose_server_ends_again_and_again(tmp_path: Path) -> None:
    """Killed and stopped. Nothing acknowledged is lost or has its effect twice, and the services go
    on as soon as the server is back."""
    promised = Promised()
    with a_server() as server, a_database(server.url("postgres")) as url:
        assert command(tmp_path, "db", "upgrade", DATABASE_URL=url).returncode == 0
        with services(tmp_path, url) as receivers:
            for number in range(len(ROUNDS)):
                one_round(server, receivers, number, promised)
            waiting = "SELECT count(*) FROM order_due WHERE due_at IS NOT NULL"
            until(lambda: ask(url, waiting)[0][0] == 0)
        asyncio.run(assert_once(url, promised))
    print(promised)
    assert len(promised.deliveries) >= len(ROUNDS) * ACKS
    assert max(promised.gaps) <= CONNECT_S  # an attempt that begins too early lasts no longer
