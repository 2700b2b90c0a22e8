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
from time import monotonic

from app.core.clock import SystemClock
from app.core.ids import new_secret
from app.receiving.framing import items_in
from reconcile.instants import SECOND
from tests.bench import stored
from tests.bench.generator import Generator
from tests.bench.ingest import DATABASE, after, environment
from tests.bench.load import Leg, Target, quantile
from tests.bench.machine import shared_out_mib
from tests.bench.orders import EVENTS_PER_ORDER, Stretch
from tests.bench.processes import server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS, Sizes

LOOK_S = 0.05
WEIGH_S = 5.0
"""Seconds between two looks at memory, since each stops the process for some milliseconds."""

LAG_S = 2.0
"""Seconds behind at which a rate is too high."""

RATES = (2_000, 2_500, 3_000, 4_000, 6_000, 8_000)
"""Tried in turn until one is too high."""


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

    def kept_up(self) -> bool:
        """Return whether all were answered at the rate, and reading was never far behind."""
        answered = all(leg.rate > 0.97 * self.rate for leg in self.legs)
        return answered and max(self.behind) < LAG_S


def offered_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Offer a service a calm rate, rising rates and a burst, and wait until its backlog ends."""
    secret, path = secret_text(new_secret()), folder / DATABASE
    env, sent, digests = environment(path, secret), list[Stretch](), 0
    serve = server(["app", "serve", "--port"], log=folder / "serve.log", env=env)
    with serve as target, Generator(secret) as generator:

        def prepare(orders: int) -> None:
            nonlocal digests
            sent.append(after(sent, orders))
            digests += generator.prepare(sent[-1])

        def offer(rate: int, seconds: int, legs: int) -> At:
            at = At(rate=rate)
            for _ in range(legs):
                prepare(rate * seconds // EVENTS_PER_ORDER)
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
            return at

        calm, steady = offer(1_000, sizes.offered_s, sizes.offered_legs), list[At]()
        for rate in RATES:
            steady.append(offer(rate, sizes.steady_s, 1))
            if not steady[-1].kept_up():
                break
        prepare(sizes.round_orders)
        generator.send(target, connections=sizes.connections, warm=1)
        unread, due = stored.unread(path), stored.due(path)
        drained_s = stored.settle(path)
    audit = stored.audit(path, sent=sent, digests=digests)
    refused = any(leg.refused for at in (calm, *steady) for leg in at.legs)
    drained = Figure(
        name="backlog drained",
        value=unread / drained_s,
        unit="deliveries per second",
        bar=BARS["drained"],
        details={"unread": unread, "orders due": due, "seconds": drained_s},
    )
    checks = {"every delivery sent was acknowledged": not refused, **audit.checks()}
    return [*_calm_figures(calm, checks), _steady_figure(steady), drained, _memory_figure(calm)]


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
                    seen.memory.append(sum(shared_out_mib(pid) for pid in _processes(target.pid)))
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


def _processes(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        children = Path(f"/proc/{each}/task/{each}/children")
        found += map(int, children.read_text().split())
    return found


def _calm_figures(calm: At, checks: dict[str, bool]) -> list[Figure]:
    return [
        Figure(
            name="acknowledged at 1,000 a second",
            value=calm.p99_ms(),
            unit="ms, p99",
            bar=BARS["offered p99"],
            checks=checks,
            details={"p50 ms": max(leg.p50_ms for leg in calm.legs), "legs": len(calm.legs)},
        ),
        Figure(
            name="folded behind it at 1,000 a second",
            value=calm.behind_s(0.99),
            unit="s, p99",
            bar=BARS["offered behind"],
            details={"p50 s": calm.behind_s(0.5), "looks": len(calm.behind)},
        ),
    ]


def _steady_figure(steady: list[At]) -> Figure:
    return Figure(
        name="steady rate",
        value=max((at.rate for at in steady if at.kept_up()), default=0),
        unit="per second",
        bar=BARS["steady rate"],
        details={
            f"{at.rate:,}/s": f"answered {at.legs[0].rate:,.0f}/s, behind at most "
            f"{max(at.behind):.2f} s, p99 {at.p99_ms():.1f} ms"
            for at in steady
        },
    )


def _memory_figure(calm: At) -> Figure:
    half = len(calm.memory) // 2
    first, second = max(calm.memory[:half]), max(calm.memory[half:])
    return Figure(
        name="memory of receiver and reader",
        value=max(first, second),
        unit="MiB",
        bar=BARS["offered memory"],
        checks={"flat in the second half": second < 1.05 * first},
        details={"first half": first, "second half": second},
    )
