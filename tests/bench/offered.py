"""Deliveries at a rate that the sender chooses, as a provider does, whatever the answers take.

Latency counts from when a delivery was due to be sent, so that those behind a slow answer are not
forgotten. How far reading and folding are behind is looked at every 50 ms: the age of the oldest
accepted delivery that is not read, and of the oldest order that is due; their sum is no less than
the age of the oldest delivery that no ledger shows yet.
"""

from __future__ import annotations

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
from tests.bench.ingest import DATABASE, SEED, environment
from tests.bench.load import Leg, Target, quantile
from tests.bench.machine import shared_out_mib
from tests.bench.orders import EVENTS_PER_ORDER, Stretch
from tests.bench.processes import server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS, Sizes
from tests.bench.stored import Audit

LOOK_S = 0.05
WEIGH_S = 5.0
"""Seconds between two looks at memory: each takes the kernel some milliseconds, in which the
process that is looked at cannot be given any. At every look it took a fifth of a processor."""

LAG_S = 2.0
"""Seconds behind which a steady rate is too high."""

RATES = (2_000, 2_500, 3_000, 4_000, 6_000, 8_000)
"""Tried one after the other, until one is too high."""


@dataclass(slots=True)
class Watched:
    """Seconds behind at each look, and now and then MiB of all processes of the service."""

    behind: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """One rate that was offered: what was answered, and how far the rest was behind."""

    rate: int
    legs: list[Leg]
    watched: Watched

    def p99_ms(self) -> float:
        """The slowest leg's."""
        return max(leg.p99_ms for leg in self.legs)

    def behind_s(self, share: float) -> float:
        """Seconds that a share of all looks did not exceed."""
        return quantile(sorted(self.watched.behind), share)

    def kept_up(self) -> bool:
        """Whether as many were answered as offered, and the rest was never far behind."""
        answered = all(leg.rate > 0.97 * self.rate for leg in self.legs)
        return answered and max(self.watched.behind) < LAG_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """All that was offered.

    calm     at 1,000 a second, for ten minutes
    steady   each rate that was tried, in turn
    backlog  deliveries unread, and orders due, at the end of a burst; and seconds until none were
    """

    calm: At
    steady: list[At]
    backlog: tuple[int, int, float]
    audit: Audit


def offered(folder: Path, sizes: Sizes) -> Offered:
    """Start a service; a calm stretch, higher and higher rates, a burst, and its end."""
    secret, path = secret_text(new_secret()), folder / DATABASE
    env, sent = environment(path, secret), list[Stretch]()
    digests = 0
    serve = server(["app", "serve", "--port"], log=folder / "serve.log", env=env)
    with serve as target, Generator(secret) as generator:

        def at(rate: int, seconds: int, legs: int) -> At:
            nonlocal digests
            done, seen = list[Leg](), Watched()
            for _ in range(legs):
                digests += generator.prepare(_after(sent, rate * seconds // EVENTS_PER_ORDER))
                with watching(path, target, seen):
                    done.append(
                        generator.send(target, connections=sizes.connections, warm=rate, rate=rate)
                    )
                stored.settle(path)
            found = At(rate=rate, legs=done, watched=seen)
            _tell(found)
            return found

        calm = at(1_000, sizes.offered_s, sizes.offered_legs)
        steady = list[At]()
        for rate in RATES:
            steady.append(at(rate, sizes.steady_s, 1))
            if not steady[-1].kept_up():
                break
        digests += generator.prepare(_after(sent, sizes.round_orders))
        generator.send(target, connections=sizes.connections, warm=1)
        unread, due = stored.behind(path)
        backlog = unread, due, stored.settle(path)
    return Offered(
        calm=calm,
        steady=steady,
        backlog=backlog,
        audit=stored.audit(path, sent=sent, digests=digests),
    )


def _after(sent: list[Stretch], count: int) -> Stretch:
    first = sent[-1].first + sent[-1].count if sent else 0
    sent.append(Stretch(seed=SEED, first=first, count=count))
    return sent[-1]


def _tell(found: At) -> None:
    print(
        f"offered: {found.rate:,}/s: answered {min(leg.rate for leg in found.legs):,.0f}/s, p99 "
        f"{found.p99_ms():.1f} ms, behind p99 {found.behind_s(0.99):.2f} s, at most "
        f"{max(found.watched.behind):.2f} s, {max(found.watched.memory):.0f} MiB",
        file=sys.stderr,
    )


@contextmanager
def watching(path: Path, target: Target, seen: Watched) -> Iterator[None]:
    """Look again and again until the block ends."""
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


def offered_figures(found: Offered) -> list[Figure]:
    """From what was seen to figures."""
    return [*_calm_figures(found), *_steady_figures(found), _memory_figure(found.calm.watched)]


def _calm_figures(found: Offered) -> list[Figure]:
    legs = [leg for at in (found.calm, *found.steady) for leg in at.legs]
    calm = found.calm
    return [
        Figure(
            name="acknowledged at 1,000 a second",
            value=calm.p99_ms(),
            unit="ms, p99",
            bar=BARS["offered p99"],
            sense="at most",
            checks={
                "every delivery sent was acknowledged": not any(leg.refused for leg in legs),
                "none is lost": found.audit.lost == 0,
                "none is doubled or was never sent": found.audit.surplus == 0,
                "bodies are those that were sent": found.audit.bodies_agree,
                "every order has the outcome that is true": found.audit.outcomes_agree,
            },
            details={"p50 ms": max(leg.p50_ms for leg in calm.legs), "legs": len(calm.legs)},
        ),
        Figure(
            name="folded behind it at 1,000 a second",
            value=calm.behind_s(0.99),
            unit="s, p99",
            bar=BARS["offered behind"],
            sense="at most",
            details={"p50 s": calm.behind_s(0.5), "looks": len(calm.watched.behind)},
        ),
    ]


def _steady_figures(found: Offered) -> list[Figure]:
    kept_up = [at.rate for at in found.steady if at.kept_up()]
    unread, due, seconds = found.backlog
    return [
        Figure(
            name="steady rate",
            value=max(kept_up, default=0),
            unit="per second",
            bar=BARS["steady rate"],
            details={
                f"{at.rate:,}/s": f"answered {at.legs[0].rate:,.0f}/s, behind at most "
                f"{max(at.watched.behind):.2f} s, p99 {at.p99_ms():.1f} ms"
                for at in found.steady
            },
        ),
        Figure(
            name="backlog drained",
            value=unread / seconds,
            unit="deliveries per second",
            bar=BARS["drained"],
            details={"unread": unread, "orders due": due, "seconds": seconds},
        ),
    ]


def _memory_figure(seen: Watched) -> Figure:
    half = len(seen.memory) // 2
    first, second = max(seen.memory[:half]), max(seen.memory[half:])
    return Figure(
        name="memory of receiver and reader",
        value=max(first, second),
        unit="MiB",
        bar=BARS["offered memory"],
        sense="at most",
        checks={"flat in the second half": second < 1.05 * first},
        details={"first half": first, "second half": second},
    )
