"""What sealing costs the door, how fast it is, and how long a proof takes in a long log.

The same signed requests go to a service that seals and to one that does not, each with a database
of its own; the side that begins changes from round to round. Folding and sealing are waited for
after each leg, so that no leg pays for the one before it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from app.context.context import AppContext
from app.core.clock import SystemClock
from app.core.ids import new_secret
from app.evidence.seal import seal_all
from app.evidence.verify_log import verify_log
from app.receiving.inbox import open_inbox
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.generator import Generator
from tests.bench.ingest import environment
from tests.bench.load import Leg, Target
from tests.bench.orders import Stretch
from tests.bench.processes import server
from tests.bench.requests import secret_text, source
from tests.bench.sizes import Sizes
from tests.contexts import settings_of
from tests.database.builders import SIGNER

SEED = 20_261_122

SEALED_S = 300
"""Seconds that sealing may take after the last acknowledgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """One leg of the service that seals: how many deliveries waited for a leaf at its end, and the
    seconds from then until none did."""

    leg: Leg
    waiting: int
    settling: float


@dataclass(slots=True, kw_only=True)
class Beside:
    """What came of all rounds, in their order; the first only warms up."""

    sealing: list[Sealed] = field(default_factory=list)
    without: list[Leg] = field(default_factory=list)
    unsealed: int = 0


def beside(folder: Path, *, sizes: Sizes) -> Beside:
    """Rounds of load with sealing and without."""
    secret, done = secret_text(new_secret()), Beside()
    paths = [folder / "sealing.db", folder / "without.db"]
    commands = (["app", "serve", "--port"], ["tests.bench.unsealed"])
    servers = [
        server(command, log=path.with_suffix(".log"), env=environment(path, secret))
        for command, path in zip(commands, paths, strict=True)
    ]
    stretch = Stretch(seed=SEED, first=0, count=sizes.round_orders)
    with servers[0] as sealing, servers[1] as without, Generator(secret) as generator:
        for number in range(sizes.ingest_rounds + 1):
            generator.prepare(stretch)
            for seals in (number % 2 == 0, number % 2 == 1):
                if seals:
                    done.sealing.append(_sealing(generator, sealing, paths[0], sizes))
                else:
                    done.without.append(_send(generator, without, sizes))
                    stored.settle(paths[1])
            _tell(done, number)
            stretch = Stretch(seed=SEED, first=stretch.first + stretch.count, count=stretch.count)
    done.unsealed = _unsealed(paths[0])
    return done


def _sealing(generator: Generator, target: Target, path: Path, sizes: Sizes) -> Sealed:
    leg = _send(generator, target, sizes)
    waiting, started = _unsealed(path), time.monotonic()
    while _unsealed(path):
        if time.monotonic() - started > SEALED_S:
            raise TimeoutError("deliveries are still unsealed; the sealer does not keep up")
        time.sleep(0.02)
    settling = time.monotonic() - started
    stored.settle(path)
    return Sealed(leg=leg, waiting=waiting, settling=settling)


def _send(generator: Generator, target: Target, sizes: Sizes) -> Leg:
    return generator.send(target, connections=sizes.connections, warm=sizes.warm)


def _unsealed(path: Path) -> int:
    """Deliveries without a leaf, by the tables themselves."""
    with stored.opened(path) as connection:
        count: int = connection.execute(
            "SELECT (SELECT count(*) FROM deliveries) - "
            "(SELECT count(*) FROM log_leaves WHERE kind = 'delivery')"
        ).fetchone()[0]
        return count


def _tell(done: Beside, number: int) -> None:
    sealed, other = done.sealing[-1], done.without[-1]
    print(
        f"sealing: round {number}: {sealed.leg.rate:,.0f}/s, without {other.rate:,.0f}/s; "
        f"{sealed.waiting:,} waited, sealed after {sealed.settling:.1f} s",
        file=sys.stderr,
    )


# --- the sealer alone ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Sealing what is there, with nothing else to do, and verifying it afterwards."""

    leaves: int
    seconds: float
    verifying: float
    fits: bool


def alone(folder: Path, *, orders: int) -> Alone:
    """Fill a database, seal all of it, verify it."""
    path, stretch = folder.absolute() / "alone.db", Stretch(seed=SEED, first=0, count=orders)
    fill(path, stretch, source(secret_text(new_secret())))
    return asyncio.run(_alone(path.absolute()))


async def _alone(path: Path) -> Alone:
    settings = settings_of(path)
    async with open_inbox(settings) as inbox:
        context = inbox.context(clock=SystemClock())
        await _begin(context)
        started = perf_counter()
        leaves = await seal_all(context, SIGNER)
        sealed = perf_counter()
        found = await verify_log(context, progress=lambda done, total: None)
        return Alone(
            leaves=found.leaves,
            seconds=sealed - started,
            verifying=perf_counter() - sealed,
            fits=not found.found and 0 < found.leaves <= leaves,
        )


async def _begin(context: AppContext) -> None:
    from app.sealing.log_store import begin_log

    public = SIGNER.key.public.raw.hex()
    async with context.database.writing() as connection:
        await begin_log(connection, origin=SIGNER.origin, public=public, now=context.clock.now())


def rates(legs: Sequence[Leg]) -> list[float]:
    """Answers per second of each leg but the first."""
    return [leg.rate for leg in legs[1:]]
