"""From what was measured to figures with their bars. Measures nothing itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from tests.bench.engine import WANTED, Cost
from tests.bench.flood import RING_BYTES, Flooded
from tests.bench.ingest import Rounds, Served
from tests.bench.load import Leg
from tests.bench.rebuild import Rebuilt
from tests.bench.report import Figure
from tests.bench.schemes import Verified
from tests.bench.sizes import BARS

YARDSTICK_CORES = 0.8
"""A do-nothing server that had less than this was held up by something else, and a ratio to its
rate would flatter the service."""


def median_of(legs: Sequence[Leg], value: Callable[[Leg], float]) -> float:
    """The median of one value over all legs but the first, which only warmed up."""
    return statistics.median(value(leg) for leg in legs[1:])


def _rate(leg: Leg) -> float:
    return leg.rate


def _cores(leg: Leg) -> float:
    return leg.server_cpu / leg.seconds


def _per_cpu(leg: Leg) -> float:
    """Answers per processor second of the server: what other programs take does not show in it."""
    return leg.counted / leg.server_cpu


def _settled_rate(served: Served) -> float:
    """Deliveries per second from the first to the fold of the last."""
    return served.leg.counted / (served.leg.seconds + served.settling)


def ingest_figures(rounds: Rounds) -> list[Figure]:
    """The ratio to the do-nothing endpoint, and the rate by itself."""
    legs = [served.leg for served in rounds.served]
    rate, idle = median_of(legs, _rate), median_of(rounds.idle, _rate)
    settled = statistics.median(_settled_rate(served) for served in rounds.served[1:])
    ratio = Figure(
        name="ingest beside doing nothing",
        value=rate / idle,
        unit="of its rate",
        bar=BARS["ingest"],
        checks={
            f"the do-nothing server had at least {YARDSTICK_CORES} of a core": (
                median_of(rounds.idle, _cores) >= YARDSTICK_CORES
            ),
            **_correctness(rounds),
        },
        details={
            "rounds": len(legs) - 1,
            "by processor time instead of the clock": (
                median_of(legs, _per_cpu) / median_of(rounds.idle, _per_cpu)
            ),
            "per round": [
                round(served.rate / other.rate, 3)
                for served, other in zip(legs[1:], rounds.idle[1:], strict=True)
            ],
            "with the folding that was left over": settled / idle,
            **_sums(rounds),
        },
    )
    return [ratio, _rate_figure("deliveries stored", legs, rounds.served[1:]), _idle_figure(rounds)]


def _rate_figure(name: str, legs: Sequence[Leg], served: Sequence[Served]) -> Figure:
    return Figure(
        name=name,
        value=median_of(legs, _rate),
        unit="per second",
        details={
            **_of_legs(legs),
            "orders not yet folded when a leg ended, at most": max(s.waiting for s in served),
            "seconds until they were, at most": max(s.settling for s in served),
            "per second until all is folded": statistics.median(map(_settled_rate, served)),
        },
    )


def _idle_figure(rounds: Rounds) -> Figure:
    ceiling = median_of(rounds.idle, lambda leg: leg.counted / leg.generator_cpu)
    return Figure(
        name="doing nothing",
        value=median_of(rounds.idle, _rate),
        unit="per second",
        details={
            **_of_legs(rounds.idle),
            "the generator's own ceiling, per second of a whole core": ceiling,
        },
    )


def _of_legs(legs: Sequence[Leg]) -> dict[str, object]:
    return {
        "rates": [round(leg.rate) for leg in legs[1:]],
        "seconds in all": sum(leg.seconds for leg in legs[1:]),
        "p50 ms": median_of(legs, lambda leg: leg.p50_ms),
        "p99 ms": median_of(legs, lambda leg: leg.p99_ms),
        "server's cores": median_of(legs, _cores),
        "generator's cores": median_of(legs, lambda leg: leg.generator_cpu / leg.seconds),
    }


def _sums(rounds: Rounds) -> dict[str, object]:
    audit = rounds.audit
    assert audit is not None
    return {
        "sent": sum(served.leg.sent for served in rounds.served),
        "acknowledged": _acknowledged(rounds),
        "stored": audit.stored,
        "lost": audit.lost,
        "doubled or never sent": audit.surplus,
        "orders folded": audit.folded,
    }


def _acknowledged(rounds: Rounds) -> int:
    return sum(served.leg.sent - len(served.leg.refused) for served in rounds.served)


def _correctness(rounds: Rounds) -> dict[str, bool]:
    audit = rounds.audit
    assert audit is not None
    sent = sum(served.leg.sent for served in rounds.served)
    return {
        "every delivery sent was acknowledged": _acknowledged(rounds) == sent,
        "as many are stored as were acknowledged": audit.stored == _acknowledged(rounds),
        "none is lost": audit.lost == 0,
        "none is doubled or was never sent": audit.surplus == 0,
        "the stored digests are those of the bodies sent": audit.bodies_agree,
        "every order's ledger has the outcome of the ground truth": audit.outcomes_agree,
    }


def flatness_figure(rounds: Rounds) -> Figure:
    """The last round's rate beside the first's, in one database that grows all the while."""
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
            "by processor time instead of the clock": _per_cpu(served[-1]) / _per_cpu(served[0]),
            "the same of the do-nothing endpoint": idle[-1].rate / idle[0].rate,
            "µs to gather and fold one order after the first round": small,
            "µs to gather and fold one order at the end": large,
        },
    )


def fold_figure(found: Cost, codes: frozenset[str], deliveries: int) -> Figure:
    """One fold of a crooked history."""
    return Figure(
        name=f"fold of {deliveries} deliveries",
        value=found.best,
        unit="µs",
        bar=BARS["fold"],
        sense="at most",
        checks={"the ledger has the findings it must have": codes >= WANTED},
        details={"median µs": found.median, "findings": sorted(codes)},
    )


def rebuild_figures(rebuilt: Rebuilt) -> list[Figure]:
    """Speed without the start of the command, on one core and on two, and peak memory."""
    seconds = rebuilt.ran.seconds - rebuilt.empty.seconds
    processor = rebuilt.ran.processor - rebuilt.empty.processor
    checks = {
        "there were no ledgers before": rebuilt.before == 0,
        "every order's ledger has the outcome of the ground truth": rebuilt.right,
    }
    speed = Figure(
        name="rebuild of all ledgers",
        value=rebuilt.events / seconds,
        unit="events per second",
        bar=BARS["rebuild"],
        checks=checks,
        details={
            "events": rebuilt.events,
            "ledgers": rebuilt.ledgers,
            "seconds, whole command": rebuilt.ran.seconds,
            "seconds, the first time, publishing every order": rebuilt.first.seconds,
            "seconds, the same command without orders": rebuilt.empty.seconds,
            "seconds, bare ordered scan": rebuilt.scan,
            "times the bare scan": seconds / rebuilt.scan,
            "events per second of processor time": rebuilt.events / processor,
        },
    )
    memory = Figure(
        name="rebuild's peak memory",
        value=rebuilt.ran.peak_rss_mib,
        unit="MiB",
        bar=BARS["rebuild memory"],
        sense="at most",
        details={"MiB without orders": rebuilt.empty.peak_rss_mib},
    )
    return [speed, _rebuild_on_two_cores(rebuilt), memory]


def _rebuild_on_two_cores(rebuilt: Rebuilt) -> Figure:
    start = rebuilt.empty
    seconds, processor = (
        rebuilt.on_two.seconds - start.seconds,
        rebuilt.on_two.processor - start.processor,
    )
    one, two = rebuilt.digests
    return Figure(
        name="rebuild of all ledgers on two cores",
        value=rebuilt.events / seconds,
        unit="events per second",
        bar=BARS["rebuild on two"],
        checks={"ledgers and revisions are those of one core": one == two},
        details={
            "times the rate on one core": (rebuilt.ran.seconds - start.seconds) / seconds,
            "seconds, whole command": rebuilt.on_two.seconds,
            "events per second of processor time": rebuilt.events / processor,
            "digest on one core": one,
            "digest on two cores": two,
        },
    )


def reading_figures(verifying: Cost, reading: Cost, *, size: int, genuine: bool) -> list[Figure]:
    """The provider engine on one delivery."""
    checks = {"the delivery is genuine": genuine}
    return [
        Figure(
            name=f"{name} {size:,} bytes",
            value=cost.best,
            unit="µs",
            checks=checks,
            details={"median µs": cost.median},
        )
        for name, cost in (("verifying", verifying), ("reading", reading))
    ]


def flood_figures(flooded: Flooded) -> list[Figure]:
    """How many genuine deliveries got through, how fast, and what the flood cost."""
    count, size = flooded.rejections
    checks = {
        "every slow connection was closed": not any(flooded.slow_left.values()),
        "the rejections kept are within the ring's bound": size <= RING_BYTES,
        "the log grew by no more than its budget": flooded.log <= flooded.log_bound,
    }
    during, before = flooded.flooded, flooded.quiet
    return [
        Figure(
            name="genuine deliveries acknowledged in a flood",
            value=during.share,
            unit="of those sent",
            bar=BARS["flood share"],
            checks=checks,
            details={
                "unsigned requests": flooded.unsigned,
                "seconds until all were answered": flooded.seconds,
                "slow connections": flooded.slow,
                "seconds until the last was closed": flooded.slow_gone_s,
                "genuine deliveries": during.sent,
                "rejections kept": count,
                "bytes of rejections kept": size,
                "bytes that the database's files grew by": flooded.written,
                "bytes that the log grew by": flooded.log,
            },
        ),
        Figure(
            name="p99 of genuine deliveries in a flood",
            value=during.p99_ms,
            unit="ms",
            bar=BARS["flood p99"],
            sense="at most",
            details={
                "p50 ms": during.p50_ms,
                "p50 before": before.p50_ms,
                "p99 before": before.p99_ms,
            },
        ),
        Figure(
            name="memory a flood takes",
            value=flooded.grown_mib,
            unit="MiB",
            bar=BARS["flood memory"],
            sense="at most",
        ),
    ]


def scheme_figure(verified: Verified) -> Figure:
    """One scheme on a kilobyte; keyed hashes have a bar."""
    return Figure(
        name=f"verifying {verified.mac}",
        value=verified.cost.best,
        unit="µs",
        bar=BARS["verifying"] if verified.mac.startswith("hmac-") else None,
        sense="at most",
        checks={"the genuine passes and the changed does not": verified.right},
        details={"median µs": verified.cost.median},
    )
