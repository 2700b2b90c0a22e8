"""Deliveries at a rate that the sender chooses, as a provider does, whatever the answers take.

Latency counts from when a delivery was due, so that waiting ones count too. Every 50 ms the ages
of the oldest unread delivery and of the oldest due order are added up; the sum is at least the age
of the oldest delivery that no ledger shows yet.
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

from app.core.clock import SystemClock
from app.core.ids import new_secret
from app.receiving.framing import items_in
from reconcile.instants import SECOND
from tests.bench import stored
from tests.bench.burst import SERVE, behind, profile
from tests.bench.generator import Generator
from tests.bench.load import Leg, Target, quantile
from tests.bench.machine import family_mib
from tests.bench.orders import EVENTS_PER_ORDER, Stretch, after
from tests.bench.processes import DATABASE, environment, server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sampler import lines
from tests.bench.sizes import BARS, Sizes
from tests.ports import free_port

LOOK_S = 0.05
WEIGH_S = 5.0
"""Seconds between two looks at memory, since each stops the process for some milliseconds."""

RESTED_S = 10
"""Seconds without deliveries before memory counts as idle."""

RATES = (1_000, 3_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """One offered rate: its legs, seconds behind at each look, and MiB of all the processes."""

    rate: int
    legs: list[Leg] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def p99_ms(self) -> float:
        """Return the p99 of the slowest leg."""
        return max(leg.p99_ms for leg in self.legs)

    def behind_s(self, share: float) -> float:
        """Return the seconds that a share of all looks did not exceed."""
        return quantile(sorted(self.behind), share)


def offered_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Offer a service with its console a calm rate for some legs, then a high one."""
    secret, path = secret_text(new_secret()), folder / DATABASE
    env, sent, digests, found = environment(path, secret), list[Stretch](), 0, list[At]()
    env |= {"TALLYHOOK_CONSOLE__PORT": str(free_port())}
    serve = server((*SERVE[:2], "--console", "--port"), log=folder / "serve.log", env=env)
    with serve as target, Generator(secret) as generator:
        with watching(path, target, rest := At(rate=0)):
            sleep(RESTED_S)
        for rate, seconds, legs in zip(RATES, sizes.offered_s, sizes.offered_legs, strict=True):
            found.append(at := At(rate=rate))
            for _ in range(legs):
                sent.append(after(sent, rate * seconds // EVENTS_PER_ORDER))
                digests += generator.prepare(sent[-1], rate=rate)
                with watching(path, target, at):
                    at.legs.append(
                        generator.send(target, connections=sizes.connections, warm=rate, rate=rate)
                    )
                stored.settle(path)
            print(
                f"offered: {rate:,}/s: answered {min(leg.rate for leg in at.legs):,.0f}/s, p99 "
                f"{at.p99_ms():.1f} ms, behind p99 {at.behind_s(0.99):.2f} s, at most "
                f"{max(at.behind):.2f} s, {max(at.memory):.0f} MiB",
                file=sys.stderr,
            )
    audit = stored.audit(path, sent=sent, digests=digests)
    refused = any(leg.refused for at in found for leg in at.legs)
    checks = {"every delivery sent was acknowledged": not refused, **audit.checks()}
    bounds = lines(behind(profile(path, secret, sent, sizes)))
    return figures_of(rest, *found, checks=checks, bounds=bounds)


@contextmanager
def watching(path: Path, target: Target, seen: At) -> Iterator[None]:
    """Add looks to `seen` until the block ends."""
    stop = Event()

    def look() -> None:
        weigh_at = 0.0
        with stored.opened(path) as database, stored.opened(Path(f"{path}.inbox")) as inbox:
            while not stop.wait(LOOK_S):
                seen.behind.append(_behind_s(database, inbox))
                if monotonic() >= weigh_at:
                    seen.memory.append(family_mib(target.pid))
                    weigh_at = monotonic() + WEIGH_S

    looker = Thread(target=look)
    looker.start()
    try:
        yield
    finally:
        stop.set()
        looker.join()


def _behind_s(database: sqlite3.Connection, inbox: sqlite3.Connection) -> float:
    oldest = "SELECT records FROM inbox WHERE seq > ? ORDER BY seq LIMIT 1"
    unread = inbox.execute(oldest, (stored.position(database),)).fetchone()
    due = "SELECT min(due_at) FROM order_due WHERE due_at IS NOT NULL"
    due_at = database.execute(due).fetchone()[0]
    now = SystemClock().now()
    first = now if unread is None else next(items_in(unread[0])).received_at
    return (max(0, now - first) + max(0, now - (now if due_at is None else due_at))) / SECOND


def figures_of(
    rest: At, calm: At, high: At, *, checks: dict[str, bool], bounds: list[str]
) -> list[Figure]:
    """Return latency, lag and memory. `bounds` are the functions in which reading and folding
    spend most processor time."""
    half = len(calm.memory) // 2
    answered = min(leg.rate for leg in high.legs)
    return [
        Figure(
            name="acknowledged at 1,000/s",
            value=calm.p99_ms(),
            unit="ms, p99",
            bar=BARS["offered p99"],
            checks=checks,
            details={"p50 ms": max(leg.p50_ms for leg in calm.legs), "legs": len(calm.legs)}
            | {"receiver's cores": max(leg.cores for leg in calm.legs)},
        ),
        Figure(
            name="folded after the acknowledgement, at 1,000/s",
            value=calm.behind_s(0.99),
            unit="s, p99",
            bar=BARS["offered behind"],
            checks=checks,
            details={"p50 s": calm.behind_s(0.5), "looks": len(calm.behind), "profile": bounds},
        ),
        Figure(
            name=f"greatest lag at {high.rate:,}/s for {high.legs[0].seconds:.0f} s",
            value=max(high.behind),
            unit="s",
            bar=BARS["steady lag"],
            checks=checks | {"all were answered at the rate": answered > 0.97 * high.rate},
            details={"p99 ms": high.p99_ms(), "MiB": max(high.memory), "profile": bounds},
        ),
        Figure(
            name="memory of receiver, reader and console, idle",
            value=max(rest.memory),
            unit="MiB",
            bar=BARS["memory idle"],
        ),
        Figure(
            name="memory of receiver, reader and console, at 1,000/s",
            value=max(calm.memory),
            unit="MiB",
            bar=BARS["memory"],
            checks=checks,
            details={"at most in each half": [max(calm.memory[:half]), max(calm.memory[half:])]},
        ),
    ]
