"""From rounds on PostgreSQL to figures with their bars. Measures nothing itself."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence

from tests.bench.load import Leg
from tests.bench.report import Figure
from tests.bench.shared import Shared, rate
from tests.bench.sizes import BARS

CORES_FOR_TWO = 6
"""Two receivers, their two processes of the server, and two load generators."""


def shared_figures(found: Mapping[int, Shared]) -> list[Figure]:
    """The ratio to the do-nothing endpoint for each number of receivers, and two beside one."""
    figures = [_ratio(count, done) for count, done in found.items()]
    cores = len(os.sched_getaffinity(0))
    enough = cores >= CORES_FOR_TWO
    two = Figure(
        name="PostgreSQL, two receivers beside one",
        value=_served(found[2]) / _served(found[1]),
        unit="times its rate",
        bar=BARS["two receivers"] if enough else None,
        details={
            "cores": cores,
            "bar": f"{BARS['two receivers']} where there are {CORES_FOR_TWO} cores",
        },
    )
    return [*figures, two]


def _ratio(count: int, done: Shared) -> Figure:
    return Figure(
        name=f"PostgreSQL, {count} receiving, beside as many doing nothing",
        value=statistics.median(_ratios(done)),
        unit="of their rate",
        bar=BARS["postgresql"],
        checks={
            "every delivery sent is stored, once": done.stored == done.sent,
            "every one was acknowledged": not any(
                leg.refused for legs in done.served for leg in legs
            ),
        },
        details={
            "deliveries per second": _served(done),
            "doing nothing, per second": _idle(done),
            "per round": [round(ratio, 3) for ratio in _ratios(done)],
            "by the receivers' processor time instead of the clock": (
                _per_cpu(done.served) / _per_cpu(done.idle)
            ),
            "rounds": len(done.served) - 1,
            "sent": done.sent,
            "stored": done.stored,
            "p99 ms": max(leg.p99_ms for legs in done.served[1:] for leg in legs),
            "a receiver's cores": _cores(done.served),
            "a do-nothing server's cores": _cores(done.idle),
        },
    )


def _ratios(done: Shared) -> list[float]:
    """Of each round: its two sides met the same machine."""
    pairs = zip(done.served[1:], done.idle[1:], strict=True)
    return [rate(served) / rate(idle) for served, idle in pairs]


def _cores(rounds: Sequence[Sequence[Leg]]) -> float:
    return statistics.median(leg.server_cpu / leg.seconds for legs in rounds[1:] for leg in legs)


def _served(done: Shared) -> float:
    return statistics.median(rate(legs) for legs in done.served[1:])


def _idle(done: Shared) -> float:
    return statistics.median(rate(legs) for legs in done.idle[1:])


def _per_cpu(rounds: Sequence[Sequence[Leg]]) -> float:
    """Answers per processor second: neither the database nor other programs show in it."""
    return statistics.median(
        sum(leg.counted for leg in legs) / sum(leg.server_cpu for leg in legs)
        for legs in rounds[1:]
    )
