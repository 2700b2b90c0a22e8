"""Deliveries into one PostgreSQL by one receiver and by two, beside as many do-nothing processes.

The receivers only receive; a worker reads what they kept once all rounds are over. Each receiver
has its own load generator, and all begin together; the generators share one core. The first side
alternates, and the faster one is sent more, so that both take many seconds.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import asyncpg

from app.config.settings import Settings
from app.core.ids import new_secret
from app.database.database import Database
from tests.bench.generator import Generator
from tests.bench.load import Leg, Target
from tests.bench.orders import EVENTS_PER_ORDER, Stretch
from tests.bench.processes import process, server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS, Sizes
from tests.postgres.server import Server, running

SEED = 20_261_121
COUNTS = (1, 2)
SECRETS = "TALLYHOOK_SOURCES__SHOP__SECRETS"
READ_S = 600
"""Longest time that a worker may take to read all that was kept."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """Results of all rounds with one number of receivers; the first round only warms up.

    served, idle  for each round, the leg of each process
    sent, stored  event ids in all
    """

    served: list[list[Leg]] = field(default_factory=list)
    idle: list[list[Leg]] = field(default_factory=list)
    sent: int = 0
    stored: int = 0


def run_shared(folder: Path, *, sizes: Sizes) -> dict[int, Shared]:
    """Play rounds with one receiver, then with two, each on a new database."""
    with running() as database:
        return {count: _rounds(folder, database, count, sizes) for count in COUNTS}


def _rounds(folder: Path, database: Server, count: int, sizes: Sizes) -> Shared:
    done, name = Shared(), f"bench{count}"
    asyncio.run(make_database(database, name))
    stretch = Stretch(seed=SEED, first=0, count=sizes.shared_orders)
    env = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": database.url(name),
        SECRETS: secret_text(new_secret()),
    }
    receiving = (["app", "serve", "--no-worker", "--port"], "serve", env)
    idling = (["tests.bench.donothing"], "donothing", dict[str, str]())
    with ExitStack() as stack:
        receivers, idle = (
            [
                stack.enter_context(server(words, log=folder / f"{log}{n}.log", env=given))
                for n in range(count)
            ]
            for words, log, given in (receiving, idling)
        )
        generators = [stack.enter_context(Generator(env[SECRETS])) for _ in range(count)]
        for number in range(sizes.shared_rounds + 1):
            for generator in generators:
                generator.prepare(stretch)
                done.sent += EVENTS_PER_ORDER * stretch.count
                stretch = replace(stretch, first=stretch.first + stretch.count)
            for served in (number % 2 == 0, number % 2 == 1):
                if served:
                    done.served.append(_send(receivers, generators, sizes))
                else:
                    done.idle.append(_send(idle, generators, sizes, times=sizes.shared_idle_times))
            print(
                f"postgresql: {count} at once, round {number}: {rate(done.served[-1]):,.0f}/s, "
                f"doing nothing {rate(done.idle[-1]):,.0f}/s",
                file=sys.stderr,
            )
        with process(["app", "worker"], log=folder / f"worker{count}.log", env=env):
            done.stored = asyncio.run(_count(database, name))
    return done


def _send(
    targets: Sequence[Target], generators: Sequence[Generator], sizes: Sizes, *, times: int = 1
) -> list[Leg]:
    def send(target: Target, generator: Generator) -> Leg:
        return generator.send(
            target, connections=sizes.connections, warm=sizes.shared_warm, times=times
        )

    with ThreadPoolExecutor(len(targets)) as pool:
        return list(pool.map(send, targets, generators))


async def make_database(database: Server, name: str) -> None:
    """Make a database of the newest version."""
    connection = await asyncpg.connect(
        host=str(database.folder), user="postgres", database="postgres"
    )
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    inbox = Database(Settings(database_url=database.url(name)))
    await inbox.upgrade()
    await inbox.close()


async def _count(database: Server, name: str) -> int:
    """Return how many are stored once all are read. Raises TimeoutError after `READ_S`."""
    connection = await asyncpg.connect(host=str(database.folder), user="postgres", database=name)
    async with asyncio.timeout(READ_S):
        while await connection.fetchval("SELECT EXISTS (SELECT 1 FROM inbox)"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    found: int = await connection.fetchval(
        "SELECT count(*) FROM deliveries WHERE verdict = 'stored'"
    )
    await connection.close()
    return found


# --- figures --------------------------------------------------------------------------------------


def shared_figures(found: Mapping[int, Shared]) -> list[Figure]:
    """Return the share of the do-nothing endpoint's rate for each number of receivers."""
    return [_ratio(count, done) for count, done in found.items()]


def _ratio(count: int, done: Shared) -> Figure:
    pairs = zip(done.served[1:], done.idle[1:], strict=True)  # each met the same machine
    ratios = [rate(served) / rate(idle) for served, idle in pairs]
    legs = [leg for legs in done.served[1:] for leg in legs]
    return Figure(
        name=f"PostgreSQL, {count} receiving, share of as many that do nothing",
        value=median(ratios),
        unit="of their rate",
        bar=BARS["postgresql"],
        checks={
            "every delivery sent is stored, once": done.stored == done.sent,
            "every one was acknowledged": not any(
                leg.refused for legs in done.served for leg in legs
            ),
        },
        details={
            "deliveries per second": median(rate(legs) for legs in done.served[1:]),
            "doing nothing, per second": median(rate(legs) for legs in done.idle[1:]),
            "per round": [round(ratio, 3) for ratio in ratios],
            "by the receivers' processor time instead of the clock": (
                _per_cpu(done.served) / _per_cpu(done.idle)
            ),
            "rounds": len(done.served) - 1,
            "sent": done.sent,
            "stored": done.stored,
            "p99 ms": max(leg.p99_ms for leg in legs),
            "a receiver's cores": median(leg.cores for leg in legs),
            "a do-nothing server's cores": median(
                leg.cores for legs in done.idle[1:] for leg in legs
            ),
        },
    )


def rate(legs: Sequence[Leg]) -> float:
    """Return answers per second of all processes together, until the slowest is done.

    The sum of their rates would count processes that take turns on too few cores as if they ran
    side by side.
    """
    return sum(leg.counted for leg in legs) / max(leg.seconds for leg in legs)


def _per_cpu(rounds: Sequence[Sequence[Leg]]) -> float:
    """Return answers per processor second, without the database and other programs."""
    return median(
        sum(leg.counted for leg in legs) / sum(leg.server_cpu for leg in legs)
        for legs in rounds[1:]
    )
