"""The cost of sealing beside deliveries, its speed alone, and a proof in a long log.

The same signed requests go to a service that seals and to one that does not, each with its own
database; the first side alternates. Each leg waits for folding and sealing, so that the next leg
does not pay for them.
"""

import asyncio
import gc
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter

from app.core.clock import SystemClock
from app.core.ids import new_secret
from app.evidence.seal import seal_all
from app.evidence.verify_log import verify_log
from app.receiving.inbox import open_inbox
from app.sealing.log_store import begin_log
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.generator import Generator
from tests.bench.ingest import environment
from tests.bench.load import Leg, Target, quantile
from tests.bench.long_log import Proved, prove_in_a_process, write_long_log
from tests.bench.orders import Stretch
from tests.bench.processes import server
from tests.bench.report import Figure
from tests.bench.requests import secret_text, source
from tests.bench.sizes import BARS, Sizes
from tests.contexts import settings_of
from tests.database.builders import SIGNER

SEED = 20_261_122

SEALED_S = 300
"""Longest time that sealing may take after the last acknowledgement."""


def sealing_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Measure sealing beside deliveries and alone, and proofs in a long log."""
    found = [ratio_figure(beside(folder, sizes=sizes))]
    found += alone_figures(alone(folder, orders=sizes.round_orders))
    path = folder / "long.db"
    write_long_log(path, leaves=sizes.log_leaves)
    return found + proof_figures(prove_in_a_process(path, count=sizes.log_proofs))


# --- beside deliveries ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """One leg of the service that seals, the deliveries without a leaf at its end, and the seconds
    until none was left."""

    leg: Leg
    waiting: int
    settling: float


@dataclass(slots=True, kw_only=True)
class Beside:
    """Results of all rounds in order; the first only warms up."""

    sealing: list[Sealed] = field(default_factory=list)
    without: list[Leg] = field(default_factory=list)
    unsealed: int = 0


def beside(folder: Path, *, sizes: Sizes) -> Beside:
    """Play rounds of load with sealing and without."""
    secret, done = secret_text(new_secret()), Beside()
    paths = [folder / "sealing.db", folder / "without.db"]
    commands = (["app", "serve", "--port"], ["tests.bench.unsealed"])
    servers = [
        server(command, log=path.with_suffix(".log"), env=environment(path, secret))
        for command, path in zip(commands, paths, strict=True)
    ]
    stretch = Stretch(seed=SEED, first=0, count=sizes.round_orders)
    with servers[0] as sealing, servers[1] as without, Generator(secret) as generator:

        def send(target: Target) -> Leg:
            return generator.send(target, connections=sizes.connections, warm=sizes.warm)

        for number in range(sizes.ingest_rounds + 1):
            generator.prepare(stretch)
            for seals in (number % 2 == 0, number % 2 == 1):
                if seals:
                    leg, waiting = send(sealing), _unsealed(paths[0])
                    settling = _settle(paths[0])
                    done.sealing.append(Sealed(leg=leg, waiting=waiting, settling=settling))
                else:
                    done.without.append(send(without))
                    stored.settle(paths[1])
            last = done.sealing[-1]
            print(
                f"sealing: round {number}: {last.leg.rate:,.0f}/s, without "
                f"{done.without[-1].rate:,.0f}/s; {last.waiting:,} waited, sealed after "
                f"{last.settling:.1f} s",
                file=sys.stderr,
            )
            stretch = replace(stretch, first=stretch.first + stretch.count)
    done.unsealed = _unsealed(paths[0])
    return done


def _settle(path: Path) -> float:
    """Wait until all is folded and sealed; return the seconds until all was sealed."""
    started = time.monotonic()
    while _unsealed(path):
        if time.monotonic() - started > SEALED_S:
            raise TimeoutError("deliveries are still unsealed; the sealer does not keep up")
        time.sleep(0.02)
    settling = time.monotonic() - started
    stored.settle(path)
    return settling


def _unsealed(path: Path) -> int:
    """Return how many deliveries have no leaf, read from the tables."""
    with stored.opened(path) as connection:
        count: int = connection.execute(
            "SELECT (SELECT count(*) FROM deliveries) - "
            "(SELECT count(*) FROM log_leaves WHERE kind = 'delivery')"
        ).fetchone()[0]
        return count


def ratio_figure(done: Beside) -> Figure:
    """Compare ingest while sealing with ingest without it."""
    sealing, without = [each.leg for each in done.sealing[1:]], done.without[1:]
    rates = [median(leg.rate for leg in legs) for legs in (sealing, without)]
    costs = [median(leg.server_cpu / leg.counted for leg in legs) for legs in (sealing, without)]
    return Figure(
        name="ingest while sealing",
        value=rates[0] / rates[1],
        unit="of the rate without",
        bar=BARS["sealing share"],
        checks={
            "every delivery was acknowledged": not any(leg.refused for leg in sealing + without),
            "every delivery is sealed": done.unsealed == 0,
        },
        details={
            "by processor time instead of the clock": costs[1] / costs[0],
            "per round": [
                round(one.rate / other.rate, 3) for one, other in zip(sealing, without, strict=True)
            ],
            "per second while sealing": rates[0],
            "per second without": rates[1],
            "p99 ms while sealing": median(leg.p99_ms for leg in sealing),
            "p99 ms without": median(leg.p99_ms for leg in without),
            "not yet sealed when a leg ended, at most": max(s.waiting for s in done.sealing[1:]),
            "seconds until they were, at most": max(s.settling for s in done.sealing[1:]),
        },
    )


# --- the sealer alone ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Seconds to seal a database with nothing beside it, and to verify it afterwards."""

    leaves: int
    seconds: float
    verifying: float
    fits: bool


def alone(folder: Path, *, orders: int) -> Alone:
    """Seal a new database and verify it."""
    path, stretch = folder.absolute() / "alone.db", Stretch(seed=SEED, first=0, count=orders)
    fill(path, stretch, source(secret_text(new_secret())))
    return asyncio.run(_alone(path))


async def _alone(path: Path) -> Alone:
    public = SIGNER.key.public.raw.hex()
    async with open_inbox(settings_of(path)) as inbox:
        context = inbox.context(clock=SystemClock())
        async with context.database.writing() as connection:
            now = context.clock.now()
            await begin_log(connection, origin=SIGNER.origin, public=public, now=now)
        gc.collect()
        gc.freeze()  # what the bench itself imported: each collection would look at it
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


def alone_figures(done: Alone) -> list[Figure]:
    """Return the rates of the sealer and of the verification."""
    checks, details = {"the whole log verifies": done.fits}, {"leaves": done.leaves}
    return [
        Figure(
            name="sealing",
            value=done.leaves / done.seconds,
            unit="leaves per second",
            bar=BARS["sealing"],
            checks=checks,
            details=details,
        ),
        Figure(
            name="verifying the log",
            value=done.leaves / done.verifying,
            unit="leaves per second",
            checks=checks,
            details=details,
        ),
    ]


def proof_figures(done: Proved) -> list[Figure]:
    """Return the time and memory of one proof in a long log."""
    checks, ms = {"every proof holds": done.hold}, sorted(done.ms)
    return [
        Figure(
            name=f"proof of one leaf among {done.leaves:,}",
            value=quantile(ms, 0.99),
            unit="ms (p99)",
            bar=BARS["proof"],
            checks=checks,
            details={
                "p50 ms": quantile(ms, 0.5),
                "slowest ms": ms[-1],
                "proofs": len(ms),
                "bytes of the database": done.database_bytes,
            },
        ),
        Figure(
            name="memory that proofs take",
            value=done.peak_mib - done.before_mib,
            unit="MiB",
            bar=BARS["proof memory"],
            checks=checks,
            details={"MiB of the whole process": done.peak_mib},
        ),
    ]
