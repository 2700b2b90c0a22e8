"""From what was measured of sealing and proving to figures with their bars."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from tests.bench.load import Leg, quantile
from tests.bench.long_log import Proved, prove_in_a_process, write_long_log
from tests.bench.report import Figure
from tests.bench.sealing import Alone, Beside, alone, beside
from tests.bench.sizes import BARS, Sizes


def sealing_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Measure all of it."""
    found = [ratio_figure(beside(folder, sizes=sizes))]
    found += alone_figures(alone(folder, orders=sizes.round_orders))
    path = folder / "long.db"
    write_long_log(path, leaves=sizes.log_leaves)
    return found + proof_figures(prove_in_a_process(path, count=sizes.log_proofs))


def ratio_figure(done: Beside) -> Figure:
    """Ingest with sealing beside ingest without it."""
    sealing, without = [each.leg for each in done.sealing[1:]], done.without[1:]
    return Figure(
        name="ingest while sealing",
        value=_median_rate(sealing) / _median_rate(without),
        unit="of the rate without",
        bar=BARS["sealing share"],
        checks={
            "every delivery was acknowledged": not any(leg.refused for leg in sealing + without),
            "every delivery is sealed": done.unsealed == 0,
        },
        details={
            "by processor time instead of the clock": _median_cost(without) / _median_cost(sealing),
            "per round": [
                round(one.rate / other.rate, 3) for one, other in zip(sealing, without, strict=True)
            ],
            "per second while sealing": _median_rate(sealing),
            "per second without": _median_rate(without),
            "p99 ms while sealing": statistics.median(leg.p99_ms for leg in sealing),
            "p99 ms without": statistics.median(leg.p99_ms for leg in without),
            "not yet sealed when a leg ended, at most": max(s.waiting for s in done.sealing[1:]),
            "seconds until they were, at most": max(s.settling for s in done.sealing[1:]),
        },
    )


def _median_rate(legs: Sequence[Leg]) -> float:
    return statistics.median(leg.rate for leg in legs)


def _median_cost(legs: Sequence[Leg]) -> float:
    """Processor seconds of one delivery."""
    return statistics.median(leg.server_cpu / leg.counted for leg in legs)


def alone_figures(done: Alone) -> list[Figure]:
    """The sealer with nothing beside it, and the verification of what it made."""
    checks = {"the whole log verifies": done.fits}
    return [
        Figure(
            name="sealing",
            value=done.leaves / done.seconds,
            unit="leaves per second",
            bar=BARS["sealing"],
            checks=checks,
            details={"leaves": done.leaves},
        ),
        Figure(
            name="verifying the log",
            value=done.leaves / done.verifying,
            unit="leaves per second",
            checks=checks,
            details={"leaves": done.leaves},
        ),
    ]


def proof_figures(done: Proved) -> list[Figure]:
    """One proof in a long log: its time, and the memory it takes."""
    checks, ms = {"every proof holds": done.hold}, sorted(done.ms)
    name = f"proof of one leaf among {done.leaves:,}"
    return [
        Figure(
            name=name,
            value=quantile(ms, 0.99),
            unit="ms (p99)",
            bar=BARS["proof"],
            sense="at most",
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
            sense="at most",
            checks=checks,
            details={"MiB of the whole process": done.peak_mib},
        ),
    ]
