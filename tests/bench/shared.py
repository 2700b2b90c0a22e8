"""Deliveries into one PostgreSQL by one receiver and by two, beside as many do-nothing processes.

The receivers only receive: where there are several, reading and folding is a worker's, which reads
what was kept once all rounds are over. Each has a load generator of its own, and all of them begin
together; the generators keep to one core.

The side that begins changes from round to round, and the one that is faster is sent more: a second
beside many would only tell what else the machine did in it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from app.config.settings import Settings
from app.core.ids import new_secret
from app.database.database import Database
from tests.bench.generator import Generator
from tests.bench.load import Leg, Target
from tests.bench.orders import EVENTS_PER_ORDER, Stretch
from tests.bench.processes import process, server
from tests.bench.requests import secret_text
from tests.bench.sizes import Sizes
from tests.postgres.server import Server, running

SEED = 20_261_121
COUNTS = (1, 2)
SECRETS = "TALLYHOOK_SOURCES__SHOP__SECRETS"
READ_S = 600
"""Seconds in which a worker must have read all that was kept."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """What came of all rounds with some number of receivers. The first round only warms up.

    served, idle  for each round, the leg of each process
    sent, stored  event ids in all
    """

    served: list[list[Leg]] = field(default_factory=list)
    idle: list[list[Leg]] = field(default_factory=list)
    sent: int = 0
    stored: int = 0


def run_shared(folder: Path, *, sizes: Sizes) -> dict[int, Shared]:
    """Rounds with one receiver, then with two, each on a database of its own."""
    with running() as database:
        return {count: _rounds(folder, database, count, sizes) for count in COUNTS}


def _rounds(folder: Path, database: Server, count: int, sizes: Sizes) -> Shared:
    done, name = Shared(), f"bench{count}"
    asyncio.run(_make(database, name))
    stretch = Stretch(seed=SEED, first=0, count=sizes.shared_orders)
    env = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": database.url(name),
        SECRETS: secret_text(new_secret()),
    }
    with started(folder, env, count) as (receivers, idle, generators):
        for number in range(sizes.shared_rounds + 1):
            for generator in generators:
                generator.prepare(stretch)
                done.sent += EVENTS_PER_ORDER * stretch.count
                stretch = Stretch(
                    seed=SEED, first=stretch.first + stretch.count, count=stretch.count
                )
            for served in (number % 2 == 0, number % 2 == 1):
                if served:
                    done.served.append(_send(receivers, generators, sizes))
                else:
                    done.idle.append(_send(idle, generators, sizes, times=sizes.shared_idle_times))
            _tell(done, number, count)
        with process(["app", "worker"], log=folder / f"worker{count}.log", env=env):
            done.stored = asyncio.run(_count(database, name))
    return done


@contextmanager
def started(
    folder: Path, env: Mapping[str, str], count: int
) -> Iterator[tuple[list[Target], list[Target], list[Generator]]]:
    """So many receivers, do-nothing servers and load generators."""
    words, secret = ["app", "serve", "--no-worker", "--port"], env[SECRETS]
    with ExitStack() as stack:
        receivers = [
            stack.enter_context(server(words, log=folder / f"serve{n}.log", env=env))
            for n in range(count)
        ]
        idle = [
            stack.enter_context(
                server(["tests.bench.donothing"], log=folder / f"donothing{n}.log", env={})
            )
            for n in range(count)
        ]
        yield receivers, idle, [stack.enter_context(Generator(secret)) for _ in range(count)]


def _send(
    targets: Sequence[Target], generators: Sequence[Generator], sizes: Sizes, *, times: int = 1
) -> list[Leg]:
    def send(pair: tuple[Target, Generator]) -> Leg:
        target, generator = pair
        return generator.send(
            target, connections=sizes.connections, warm=sizes.shared_warm, times=times
        )

    with ThreadPoolExecutor(len(targets)) as pool:
        return list(pool.map(send, zip(targets, generators, strict=True)))


async def _make(database: Server, name: str) -> None:
    connection = await asyncpg.connect(
        host=str(database.folder), user="postgres", database="postgres"
    )
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    inbox = Database(Settings(database_url=database.url(name)))
    await inbox.upgrade()
    await inbox.close()


async def _count(database: Server, name: str) -> int:
    """How many are stored once all of them are read. Raises TimeoutError when they never are."""
    connection = await asyncpg.connect(host=str(database.folder), user="postgres", database=name)
    async with asyncio.timeout(READ_S):
        while await connection.fetchval("SELECT EXISTS (SELECT 1 FROM inbox)"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    found: int = await connection.fetchval(
        "SELECT count(*) FROM deliveries WHERE verdict = 'stored'"
    )
    await connection.close()
    return found


def rate(legs: Sequence[Leg]) -> float:
    """Answers per second of all processes together, until the slowest of them is done.

    Not the sum of their rates: where they take turns on too few cores, each is fast in a time of
    its own, and the sum is a rate that never was.
    """
    return sum(leg.counted for leg in legs) / max(leg.seconds for leg in legs)


def _tell(done: Shared, number: int, count: int) -> None:
    print(
        f"postgresql: {count} at once, round {number}: {rate(done.served[-1]):,.0f}/s, "
        f"doing nothing {rate(done.idle[-1]):,.0f}/s",
        file=sys.stderr,
    )
