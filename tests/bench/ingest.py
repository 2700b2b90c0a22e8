"""Rounds of deliveries into one growing database, in turn with an endpoint that does nothing.

In every round the same signed requests go to both sides, and the first side alternates, so that
other load on the machine falls on both. Each leg waits until all is folded, so that the next leg
does not pay for it.
"""

import asyncio
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from app.config.settings import Settings
from app.core.clock import SystemClock
from app.core.ids import new_secret
from app.orders.history_store import gather
from app.receiving.inbox import open_inbox
from reconcile.ledger.fold import fold
from reconcile.ledger.policy import Policy
from tests.bench import stored
from tests.bench.generator import Generator
from tests.bench.load import Leg
from tests.bench.orders import Stretch, order_reference
from tests.bench.processes import server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS, Sizes
from tests.bench.stored import Audit

SEED = 20_261_120
DATABASE = "bench.db"
LOOKUPS = 200


YARDSTICK_CORES = 0.8
"""Cores that the do-nothing server must have had: a starved one would flatter the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One leg of the service, the orders not folded at its end, and the seconds until they were."""

    leg: Leg
    waiting: int
    settling: float

    @property
    def settled_rate(self) -> float:
        """Deliveries per second from the first to the fold of the last."""
        return self.leg.counted / (self.leg.seconds + self.settling)


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Results of all rounds in order; the first of each list only warms up.

    lookups  µs to gather and fold one order: in the small database, and at the end
    """

    served: list[Served] = field(default_factory=list)
    idle: list[Leg] = field(default_factory=list)
    lookups: list[float] = field(default_factory=list)
    audit: Audit | None = None


def environment(database: Path, secret: str) -> dict[str, str]:
    """Return the settings that a service needs; all others are defaults."""
    return {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{database.absolute()}",
        "TALLYHOOK_SOURCES__SHOP__SECRETS": secret,
    }


def run_rounds(folder: Path, *, sizes: Sizes, rounds: int) -> Rounds:
    """Play all rounds, then compare the store with what was sent."""
    done, digests, sent = Rounds(), 0, list[Stretch]()
    secret, database = secret_text(new_secret()), folder / DATABASE
    words, env = ["app", "serve", "--port"], environment(database, secret)
    serving = server(words, log=folder / "serve.log", env=env)
    idling = server(["tests.bench.donothing"], log=folder / "donothing.log", env={})
    with serving as service, idling as idle, Generator(secret) as generator:
        for number in range(rounds + 1):
            sent.append(after(sent, sizes.round_orders if number else sizes.warm))
            digests += generator.prepare(sent[-1])
            for served in (number % 2 == 0, number % 2 == 1):
                leg = generator.send(
                    service if served else idle,
                    connections=sizes.connections,
                    warm=sizes.warm,
                    times=1 if served else sizes.idle_times,
                )
                if served:
                    waiting, settling = stored.due(database), stored.settle(database)
                    done.served.append(Served(leg=leg, waiting=waiting, settling=settling))
                else:
                    done.idle.append(leg)
            last = done.served[-1]
            print(
                f"ingest: round {number} of {rounds}: {last.leg.rate:,.0f}/s, doing nothing "
                f"{done.idle[-1].rate:,.0f}/s; {last.waiting:,} orders waiting, folded after "
                f"{last.settling:.1f} s",
                file=sys.stderr,
            )
            if number in (1, rounds):
                done.lookups.append(lookup_us(database, sent[-1]))
    done.audit = stored.audit(database, sent=sent, digests=digests)
    return done


def after(sent: Sequence[Stretch], count: int) -> Stretch:
    """Return the stretch of so many orders that follows the last one sent."""
    first = sent[-1].first + sent[-1].count if sent else 0
    return Stretch(seed=SEED, first=first, count=count)


def lookup_us(database: Path, stretch: Stretch) -> float:
    """Return the median µs of gathering and folding single orders spread over the stretch."""
    settings = Settings(database_url=f"sqlite+aiosqlite:///{database.absolute()}")
    step = max(1, stretch.count // LOOKUPS)
    numbers = range(stretch.first, stretch.first + stretch.count, step)
    return asyncio.run(_lookups(settings, numbers))


async def _lookups(settings: Settings, numbers: range) -> float:
    now, seconds = SystemClock().now(), []
    async with open_inbox(settings, purpose="reading") as inbox:
        for number in numbers:
            order = order_reference(number)
            started = perf_counter()
            async with inbox.database.reading() as connection:
                histories = await gather(connection, [order])
            fold(histories[order], policy=Policy(), as_of=now)
            seconds.append(perf_counter() - started)
    return statistics.median(seconds) * 1e6


# --- figures --------------------------------------------------------------------------------------


def loading(folder: Path, sizes: Sizes, *, names: Sequence[str]) -> list[Figure]:
    """Measure rounds of load, once for both figures."""
    flat = "flatness" in names
    rounds = run_rounds(folder, sizes=sizes, rounds=sizes.rounds if flat else sizes.ingest_rounds)
    found = ingest_figures(rounds) if "ingest" in names else []
    return found + ([flatness_figure(rounds)] if flat else [])


def ingest_figures(rounds: Rounds) -> list[Figure]:
    """Return the share of the do-nothing endpoint's rate, and both rates."""
    served, legs, idle = rounds.served[1:], [each.leg for each in rounds.served], rounds.idle
    rate, yardstick = median_of(legs, lambda leg: leg.rate), median_of(idle, lambda leg: leg.rate)
    settled, audit = statistics.median(each.settled_rate for each in served), rounds.audit
    assert audit is not None
    enough = median_of(idle, lambda leg: leg.cores) >= YARDSTICK_CORES
    ratio = Figure(
        name="ingest beside doing nothing",
        value=rate / yardstick,
        unit="of its rate",
        bar=BARS["ingest"],
        checks={
            f"the do-nothing server had at least {YARDSTICK_CORES} of a core": enough,
            **_correctness(rounds),
        },
        details={
            "rounds": len(served),
            "by processor time instead of the clock": (
                median_of(legs, lambda leg: leg.per_cpu) / median_of(idle, lambda leg: leg.per_cpu)
            ),
            "per round": [
                round(one.leg.rate / other.rate, 3)
                for one, other in zip(served, idle[1:], strict=True)
            ],
            "with the folding that was left over": settled / yardstick,
            "sent": sum(leg.sent for leg in legs),
            "acknowledged": _acknowledged(rounds),
            "stored": audit.stored,
            "lost": audit.lost,
            "doubled or never sent": audit.surplus,
            "orders folded": audit.folded,
        },
    )
    stored_rate = Figure(
        name="deliveries stored",
        value=rate,
        unit="per second",
        details={
            **_of_legs(legs),
            "orders not yet folded when a leg ended, at most": max(s.waiting for s in served),
            "seconds until they were, at most": max(s.settling for s in served),
            "per second until all is folded": settled,
        },
    )
    ceiling = median_of(idle, lambda leg: leg.counted / leg.generator_cpu)
    details = _of_legs(idle) | {"the generator's own ceiling, per second of a whole core": ceiling}
    doing_nothing = Figure(
        name="doing nothing", value=yardstick, unit="per second", details=details
    )
    return [ratio, stored_rate, doing_nothing]


def flatness_figure(rounds: Rounds) -> Figure:
    """Compare the last round's rate with the first's, in one growing database."""
    served, idle = [s.leg for s in rounds.served[1:]], rounds.idle[1:]
    small, large = rounds.lookups
    return Figure(
        name="flatness of ingest",
        value=served[-1].rate / served[0].rate,
        unit="of the first round's rate",
        bar=BARS["flatness"],
        checks=_correctness(rounds),
        details={
            "deliveries in the database": sum(s.leg.sent for s in rounds.served),
            "deliveries in a round": served[0].sent,
            "rates": [round(leg.rate) for leg in served],
            "by processor time instead of the clock": served[-1].per_cpu / served[0].per_cpu,
            "the same of the do-nothing endpoint": idle[-1].rate / idle[0].rate,
            "µs to gather and fold one order after the first round": small,
            "µs to gather and fold one order at the end": large,
        },
    )


def median_of(legs: Sequence[Leg], value: Callable[[Leg], float]) -> float:
    """Return the median over all legs but the first, which only warms up."""
    return statistics.median(value(leg) for leg in legs[1:])


def _of_legs(legs: Sequence[Leg]) -> dict[str, object]:
    return {
        "rates": [round(leg.rate) for leg in legs[1:]],
        "seconds in all": sum(leg.seconds for leg in legs[1:]),
        "p50 ms": median_of(legs, lambda leg: leg.p50_ms),
        "p99 ms": median_of(legs, lambda leg: leg.p99_ms),
        "server's cores": median_of(legs, lambda leg: leg.cores),
        "generator's cores": median_of(legs, lambda leg: leg.generator_cpu / leg.seconds),
    }


def _acknowledged(rounds: Rounds) -> int:
    return sum(served.leg.sent - len(served.leg.refused) for served in rounds.served)


def _correctness(rounds: Rounds) -> dict[str, bool]:
    audit, acknowledged = rounds.audit, _acknowledged(rounds)
    assert audit is not None
    sent = sum(served.leg.sent for served in rounds.served)
    return {
        "every delivery sent was acknowledged": acknowledged == sent,
        "as many are stored as were acknowledged": audit.stored == acknowledged,
        **audit.checks(),
    }
