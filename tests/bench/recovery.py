"""Seconds from the start of a killed service to readiness, on a database of a known size.

Its log is long: a load before the kill fills it. The start folds all of it and syncs; what the page
cache holds of the database is dropped by the start itself, so the disk is read.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from app.core.ids import new_secret
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.generator import Generator
from tests.bench.ingest import SEED, environment
from tests.bench.orders import Stretch
from tests.bench.processes import server
from tests.bench.report import Figure
from tests.bench.requests import secret_text, source
from tests.bench.sizes import BARS

LOAD_ORDERS = 2_000
"""Orders whose deliveries come between the start and the kill."""

CONNECTIONS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What came of it. `log` is the length of the log that the kill left behind, in bytes."""

    deliveries: int
    log: int
    seconds: float
    acknowledged: int
    kept: int


def recover(folder: Path, *, orders: int) -> Recovered:
    """Fill a database, kill a service that is writing to it, and start it again."""
    secret, path = secret_text(new_secret()), folder / "recovery.db"
    fill(path, Stretch(seed=SEED, first=0, count=orders), source(secret))
    words, env = ["app", "serve", "--port"], environment(path, secret)
    load = Stretch(seed=SEED, first=orders, count=LOAD_ORDERS)
    with server(words, log=folder / "killed.log", env=env) as target, Generator(secret) as sender:
        sender.prepare(load)
        leg = sender.send(target, connections=CONNECTIONS, warm=0)
        os.kill(target.pid, signal.SIGKILL)
    log = path.with_name(path.name + "-wal").stat().st_size
    print("recovery: killed, starting again", file=sys.stderr)
    began = time.perf_counter()
    with server(words, log=folder / "again.log", env=env) as target:
        _wait_until_ready(target.port)
        seconds = time.perf_counter() - began
    with stored.opened(path) as connection:
        count = connection.execute("SELECT count(*) FROM deliveries").fetchone()[0]
    return Recovered(
        deliveries=count,
        log=log,
        seconds=seconds,
        acknowledged=leg.sent - len(leg.refused),
        kept=count - orders * 4,
    )


def _wait_until_ready(port: int) -> None:
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        finally:
            connection.close()
        time.sleep(0.01)


def recovery_figure(found: Recovered) -> Figure:
    """From the start of the process to the first time it says that it is ready."""
    return Figure(
        name="recovery after kill -9",
        value=found.seconds,
        unit="s to ready",
        bar=BARS["recovery"],
        sense="at most",
        checks={"none of the acknowledged is lost": found.kept >= found.acknowledged},
        details={"deliveries stored": found.deliveries, "MiB of log to fold": found.log / 2**20},
    )
