"""Deliveries into one growing database, in turn with the do-nothing endpoint: rounds of load.

In every round the same signed requests go to both sides, one after the other, and the side that
begins changes; so what the machine does meanwhile falls on both. Folding is waited for after each
leg, so that no leg pays for the one before it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.core.ids import new_secret
from tests.bench import stored
from tests.bench.generator import Generator
from tests.bench.load import Leg, Target
from tests.bench.lookups import lookup_us
from tests.bench.orders import Stretch
from tests.bench.processes import server
from tests.bench.requests import secret_text
from tests.bench.sizes import Sizes
from tests.bench.stored import Audit

SEED = 20_261_120
DATABASE = "bench.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One leg of the service's, how many orders were not yet folded at its end, and the seconds
    from then until all were."""

    leg: Leg
    waiting: int
    settling: float


@dataclass(slots=True, kw_only=True)
class Rounds:
    """What came of all rounds, in their order. The first of each list only warms up.

    lookups  µs to gather and fold one order: when the database was small, and at the end
    """

    served: list[Served] = field(default_factory=list)
    idle: list[Leg] = field(default_factory=list)
    lookups: list[float] = field(default_factory=list)
    audit: Audit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The two servers, the generator between them, and the database."""

    service: Target
    idle: Target
    generator: Generator
    database: Path
    sizes: Sizes


def environment(database: Path, secret: str) -> dict[str, str]:
    """The service's settings: only what it cannot do without; all else is the default."""
    return {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{database.absolute()}",
        "TALLYHOOK_SOURCES__SHOP__SECRETS": secret,
    }


@contextmanager
def started(folder: Path, sizes: Sizes) -> Iterator[Bench]:
    """Everything running."""
    secret, database = secret_text(new_secret()), folder / DATABASE
    serve = server(
        ["app", "serve", "--port"], log=folder / "serve.log", env=environment(database, secret)
    )
    idle = server(["tests.bench.donothing"], log=folder / "donothing.log", env={})
    with serve as service, idle as other, Generator(secret) as generator:
        yield Bench(
            service=service, idle=other, generator=generator, database=database, sizes=sizes
        )


def run_rounds(folder: Path, *, sizes: Sizes, rounds: int) -> Rounds:
    """All rounds, then the comparison of the store with what was sent."""
    done, digests = Rounds(), 0
    stretches = [Stretch(seed=SEED, first=0, count=sizes.warm)]
    with started(folder, sizes) as bench:
        for number in range(rounds + 1):
            digests += bench.generator.prepare(stretches[-1])
            _round(bench, done, served_first=number % 2 == 0)
            _tell(done, rounds)
            if number in (1, rounds):
                done.lookups.append(lookup_us(bench.database, stretches[-1]))
            stretches.append(_next(stretches[-1], sizes.round_orders))
    done.audit = stored.audit(folder / DATABASE, sent=stretches[:-1], digests=digests)
    return done


def _next(stretch: Stretch, count: int) -> Stretch:
    return Stretch(seed=SEED, first=stretch.first + stretch.count, count=count)


def _round(bench: Bench, done: Rounds, *, served_first: bool) -> None:
    for served in (served_first, not served_first):
        if served:
            done.served.append(_serve(bench))
        else:
            done.idle.append(_send(bench, bench.idle, times=bench.sizes.idle_times))


def _serve(bench: Bench) -> Served:
    leg = _send(bench, bench.service, times=1)
    waiting = stored.due(bench.database)
    return Served(leg=leg, waiting=waiting, settling=stored.settle(bench.database))


def _send(bench: Bench, target: Target, *, times: int) -> Leg:
    sizes = bench.sizes
    return bench.generator.send(target, connections=sizes.connections, warm=sizes.warm, times=times)


def _tell(done: Rounds, rounds: int) -> None:
    last, idle = done.served[-1], done.idle[-1]
    print(
        f"ingest: round {len(done.idle) - 1} of {rounds}: {last.leg.rate:,.0f}/s, doing nothing "
        f"{idle.rate:,.0f}/s; {last.waiting:,} orders waiting, folded after {last.settling:.1f} s",
        file=sys.stderr,
    )
