"""A service that was killed with unread deliveries starts again; the disk that deliveries take.

Its readers are stopped while the backlog comes, then all of its processes are killed. Seconds count
from the start of the command. The first 200 are those of an order's deliveries.
"""

import os
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.core.ids import new_secret
from tests.bench import stored
from tests.bench.burst import PROFILED_S, SERVE, paused
from tests.bench.generator import Generator
from tests.bench.load import Target
from tests.bench.machine import family_seconds
from tests.bench.orders import Stretch, after, order_reference
from tests.bench.processes import DATABASE, environment, last_two_cores, profile_of, run, server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sampler import LINES, lines, planted, sampled
from tests.bench.sizes import BARS, Sizes

BODY_BYTES = 690
UNREAD_ORDERS = 5_000
LOOK_S = 0.005
SHOWN = 5


def start_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Measure the disk of some deliveries, then starts with a backlog, then `orders show`."""
    secret, path, sent, digests = secret_text(new_secret()), folder / DATABASE, list[Stretch](), 0
    env, log = environment(path, secret), folder / "log"
    first, folds, processor = list[float](), list[float](), list[float]()
    samples = folder / "samples"
    samples.mkdir()
    with Generator(secret) as generator:

        def prepare(orders: int, size: int = 0) -> None:
            nonlocal digests
            sent.append(replace(after(sent, orders), size=size))
            digests += generator.prepare(sent[-1])

        def send(target: Target, connections: int) -> None:
            if generator.send(target, connections=connections, warm=0).refused:
                raise RuntimeError("a delivery was not acknowledged")

        with server(SERVE, log=log, env=env) as target:
            prepare(sizes.round_orders, BODY_BYTES)
            send(target, sizes.connections)
            stored.settle(path)
            stored.wait_until_sealed(path)
        kb = path.stat().st_size / 1000  # the inbox beside it is used again and again
        largest = [f"{name} {share:.1%}" for name, share in stored.shares_of_disk(path)[:LINES]]
        for number in range(sizes.rounds + 1):  # the last has a profile instead of figures
            with server(SERVE, log=log, env=env) as target, paused(target.pid, signal.SIGKILL):
                prepare(UNREAD_ORDERS)
                send(target, sizes.connections)
                os.kill(target.pid, signal.SIGKILL)
            prepare(1)
            more = planted(samples) if number == sizes.rounds else {}
            before, began = stored.ledgers(path), time.perf_counter()
            with server(SERVE, log=log, env=env | more) as target:
                send(target, 1)
                first.append(time.perf_counter() - began)
                processor.append(family_seconds(target.pid))
                while stored.ledgers(path) == before:
                    time.sleep(LOOK_S)
                folds.append(time.perf_counter() - began)
                if more:
                    time.sleep(PROFILED_S)
                    found = sampled(samples, target.pid)
                stored.settle(path)
            print(f"start: {number}: {first[-1]:.2f} s, {folds[-1]:.2f} s", file=sys.stderr)
    shown = [
        run(
            ("app", "orders", "show", order_reference(number)),
            log=log, env=env, cores=last_two_cores(),
        )
        for number in range(SHOWN)
    ]  # fmt: skip
    bounds = profile_of(("app", "orders", "show", order_reference(0)), folder=folder, env=env)
    checks = stored.audit(path, sent=sent, digests=digests).checks()
    receiving = {"processor s": processor[:-1], "profile": lines(found, "receive")}
    what = f"start to first fold, {UNREAD_ORDERS * 4:,} unread"
    return [
        _figure("start", "start to first 200", first[:-1], checks, receiving),
        _figure("first fold", what, folds[:-1], checks, {"profile": lines(found)}),
        _figure(
            "orders show",
            "`orders show`",
            [each.seconds for each in shown],
            checks,
            {"processor s": [each.processor for each in shown], "profile": bounds},
        ),
        Figure(
            name=f"disk for a delivery, body of {BODY_BYTES} bytes",
            value=kb / sent[0].events,
            unit="kB",
            bar=BARS["disk"],
            checks=checks,
            details={"profile": largest},
        ),
    ]


def _figure(
    bar: str,
    name: str,
    seconds: Sequence[float],
    checks: Mapping[str, bool],
    details: Mapping[str, object] | None = None,
) -> Figure:
    return Figure(
        name=name,
        value=statistics.median(seconds),
        unit="s",
        bar=BARS[bar],
        checks=checks,
        details={"each": seconds, **(details or {})},
    )
