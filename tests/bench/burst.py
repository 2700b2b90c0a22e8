"""Bursts of deliveries to the service, in turn with receivers that do less.

In every round the same signed requests go to all sides, and the side that begins changes, so that
other load on the machine falls on all. After each leg of the service all is read, folded and
sealed: the processor time until sealed is that of all its processes.
"""

import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.core.ids import new_secret
from tests.bench import stored
from tests.bench.generator import Generator
from tests.bench.load import Leg, Target
from tests.bench.machine import cpu_seconds, family, family_seconds
from tests.bench.orders import Stretch, after
from tests.bench.processes import DATABASE, environment, server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sampler import STAGES, lines, planted, sampled
from tests.bench.sizes import BARS, Sizes

SHARES = {"service": 1.0, "obvious": 0.1, "lean": 0.2, "nothing": 1.0}
"""Sides, and the share of a round's requests that each gets, as some are much slower."""

SERVE = ("app", "serve", "--port")
PROFILED_S = 2
"""Seconds after which samples are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One leg, and what its side took until nothing was left to do.

    whole     processor seconds of all the side's processes
    receiver  those of the process that answers
    settling  seconds from the last answer until all was read and folded
    """

    leg: Leg
    whole: float
    receiver: float
    settling: float

    def us(self, seconds: float) -> float:
        """Return µs a delivery."""
        return seconds / self.leg.sent * 1e6


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Turns of each side in order; the first of each only warms up.

    drained  deliveries a second of backlogs, read and folded with nothing beside
    checks   sentences that must be true
    profile  processor time by (stage, function), of a service that samples itself
    """

    turns: dict[str, list[Turn]] = field(default_factory=lambda: {side: [] for side in SHARES})
    drained: list[float] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    profile: Counter[tuple[str, str]] = field(default_factory=Counter)


def play(folder: Path, sizes: Sizes) -> Rounds:
    """Play all rounds, drain backlogs, then compare the store with what was sent."""
    done, digests, sent = Rounds(), 0, list[Stretch]()
    secret, database = secret_text(new_secret()), folder / DATABASE
    obvious, lean = folder / "obvious.db", folder / "lean.db"
    commands = {
        "service": SERVE,
        "obvious": ("tests.bench.obvious", str(obvious), secret),
        "lean": ("tests.bench.obvious", str(lean), secret, "lean"),
        "nothing": ("tests.bench.donothing",),
    }
    env = environment(database, secret)
    with ExitStack() as stack:
        targets = {
            side: stack.enter_context(server(command, log=folder / f"{side}.log", env=env))
            for side, command in commands.items()
        }
        generator = stack.enter_context(Generator(secret))
        sides = list(commands)
        for number in range(sizes.rounds + 1):
            sent.append(after(sent, sizes.round_orders))
            digests += generator.prepare(sent[-1])
            for side in sides[number % 4 :] + sides[: number % 4]:
                count = round(sent[-1].events * SHARES[side])
                path = database if side == "service" else None
                done.turns[side].append(turn(generator, targets[side], sizes, path, count=count))
            rates = (f"{side} {turns[-1].leg.rate:,.0f}/s" for side, turns in done.turns.items())
            print(f"burst: round {number} of {sizes.rounds}: {', '.join(rates)}", file=sys.stderr)
        for _ in range(sizes.rounds):
            sent.append(after(sent, sizes.round_orders))
            digests += generator.prepare(sent[-1])
            done.drained.append(drain(generator, targets["service"], database, sizes))
    audit = stored.audit(database, sent=sent, digests=digests)
    legs = [turn.leg for turns in done.turns.values() for turn in turns]
    done.checks = {"every delivery sent was acknowledged": not any(leg.refused for leg in legs)}
    done.checks |= audit.checks() | {"every delivery is sealed": stored.unsealed(database) == 0}
    for side, path in (("obvious", obvious), ("lean", lean)):
        done.checks[f"the {side} receiver has stored each once"] = _webhooks(path) == sum(
            turn.leg.sent for turn in done.turns[side]
        )
    return done


def turn(
    generator: Generator,
    target: Target,
    sizes: Sizes,
    path: Path | None,
    *,
    count: int | None = None,
) -> Turn:
    """Send all that is prepared, or `count`; wait until the database has nothing left to do."""
    whole, receiver = family_seconds(target.pid), cpu_seconds(target.pid)
    warm = sizes.warm if count is None else min(sizes.warm, count // 5)
    leg = generator.send(target, connections=sizes.connections, warm=warm, count=count)
    settling = 0.0 if path is None else stored.settle(path)
    if path is not None:
        stored.wait_until_sealed(path)
    return Turn(
        leg=leg,
        whole=family_seconds(target.pid) - whole,
        receiver=cpu_seconds(target.pid) - receiver,
        settling=settling,
    )


def drain(generator: Generator, target: Target, path: Path, sizes: Sizes) -> float:
    """Send a burst while nobody reads; return how many a second are read and folded then."""
    with paused(target.pid):
        leg = generator.send(target, connections=sizes.connections, warm=1)
    rate = leg.sent / stored.settle(path)
    stored.wait_until_sealed(path)
    print(f"backlog of {leg.sent:,} drained: {rate:,.0f}/s", file=sys.stderr)
    return rate


@contextmanager
def paused(pid: int, then: signal.Signals = signal.SIGCONT) -> Iterator[None]:
    """Stop the processes behind a receiver until the block ends, then continue or kill them."""
    behind = family(pid)[1:]
    for each in behind:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in behind:
            os.kill(each, then)


def _webhooks(path: Path) -> int:
    with stored.opened(path) as connection:
        count: int = connection.execute("SELECT count(*) FROM webhook").fetchone()[0]
        return count


def profile(
    path: Path, secret: str, sent: Sequence[Stretch], sizes: Sizes
) -> Counter[tuple[str, str]]:
    """Return the processor time of each (stage, function) in one more burst to a database, until
    all is sealed."""
    samples = path.with_suffix(".samples")
    samples.mkdir()
    env, log = environment(path, secret) | planted(samples), path.with_suffix(".profiled")
    with server(SERVE, log=log, env=env) as target, Generator(secret) as sender:
        sender.prepare(after(sent, sizes.round_orders))
        time.sleep(PROFILED_S)
        before = sampled(samples, target.pid)
        turn(sender, target, sizes, path)
        time.sleep(PROFILED_S)
        return sampled(samples, target.pid) - before


# --- figures --------------------------------------------------------------------------------------


def burst_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Measure rounds, then a profile, and compare the sides."""
    done = play(folder, sizes)
    done.profile = profile(folder / "profile.db", secret_text(new_secret()), [], sizes)
    return figures_of(done)


def figures_of(done: Rounds) -> list[Figure]:
    """Return the shares of rates and of processor time, which leave the warm-up out."""
    turns = {side: all_of[1:] for side, all_of in done.turns.items()}
    rates = {side: statistics.median(t.leg.rate for t in each) for side, each in turns.items()}
    service, nothing = turns["service"], [t.us(t.whole) for t in turns["nothing"]]
    details = {
        side: {
            "rates": [round(t.leg.rate) for t in each],
            "p99 ms": statistics.median(t.leg.p99_ms for t in each),
            "processor µs a delivery": statistics.median(t.us(t.whole) for t in each),
        }
        for side, each in turns.items()
    }
    beside = [
        Figure(
            name=f"burst, {rates['service']:,.0f}/s, beside {what}, {rates[side]:,.0f}/s",
            value=rates["service"] / rates[side],
            unit="times its rate",
            bar=BARS[f"beside {side}"],
            checks=done.checks,
            details=details[side]
            | {f"service's {what}": value for what, value in details["service"].items()}
            | {"profile": lines(done.profile, "receive")},
        )
        for side, what in (
            ("obvious", "the obvious receiver"),
            ("lean", "the obvious receiver with sqlite3 in one thread"),
        )
    ]
    receiver, whole = ([t.us(getattr(t, part)) for t in service] for part in ("receiver", "whole"))
    others = statistics.median(whole) - statistics.median(receiver)
    costs = {
        "processor µs a delivery": statistics.median(whole),
        "of it receive": statistics.median(receiver),
        **{f"of it {stage}": others * share for stage, share in _behind(done.profile).items()},
        "an endpoint that does nothing": statistics.median(nothing),
    }
    return [
        *beside,
        _multiple(
            "the receiver",
            receiver,
            nothing,
            done,
            {"profile": lines(done.profile, "receive")},
        ),
        _multiple(
            "all processes until sealed",
            whole,
            nothing,
            done,
            costs | {"profile": lines(done.profile)},
        ),
        Figure(
            name="backlog drained",
            value=statistics.median(done.drained),
            unit="deliveries/s",
            bar=BARS["drained"],
            checks=done.checks,
            details={
                "each": [round(rate) for rate in done.drained],
                "profile": lines(behind(done.profile)),
                "from the first of a burst to the fold of the last": statistics.median(
                    t.leg.sent / (t.leg.seconds + t.settling) for t in service
                ),
            },
        ),
    ]


def behind(profile: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return a profile without the process that answers."""
    return Counter({key: used for key, used in profile.items() if key[0] != "receive"})


def _multiple(
    name: str, costs: list[float], nothing: list[float], done: Rounds, details: Mapping[str, object]
) -> Figure:
    each = [one / other for one, other in zip(costs, nothing, strict=True)]
    return Figure(
        name=f"processor time of {name}",
        value=statistics.median(each),
        unit="times the receiver that does nothing",
        bar=BARS[name],
        checks=done.checks,
        details={"per round": [round(value, 2) for value in each], **details},
    )


def _behind(profile: Counter[tuple[str, str]]) -> dict[str, float]:
    """Return the share of each stage in the time of all processes behind the receiver."""
    shares = dict.fromkeys(STAGES, 0)
    for (stage, _), used in profile.items():
        if stage in shares:
            shares[stage] += used
    whole = sum(shares.values())
    return {stage: used / whole for stage, used in shares.items()}
