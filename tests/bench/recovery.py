"""Seconds from the start of a killed service to readiness, on a database of a known size.

A load before the kill makes the write-ahead log long. The start folds and syncs all of it, and
drops the page cache of the database, so that the disk is read.
"""

import http.client
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

from app.core.ids import new_secret
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.generator import Generator
from tests.bench.ingest import SEED, environment
from tests.bench.orders import EVENTS_PER_ORDER, Stretch
from tests.bench.processes import server
from tests.bench.report import Figure
from tests.bench.requests import secret_text, source
from tests.bench.sizes import BARS, Sizes

LOAD_ORDERS = 2_000
"""Orders whose deliveries come between the start and the kill."""

CONNECTIONS = 32


def recovery_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Fill a database, kill a service that is writing to it, and start it again."""
    secret, path, orders = secret_text(new_secret()), folder / "recovery.db", sizes.recovery_orders
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
    kept, acknowledged = count - orders * EVENTS_PER_ORDER, leg.sent - len(leg.refused)
    return [
        Figure(
            name="recovery after kill -9",
            value=seconds,
            unit="s to ready",
            bar=BARS["recovery"],
            checks={"none of the acknowledged is lost": kept >= acknowledged},
            details={"deliveries stored": count, "MiB of log to fold": log / 2**20},
        )
    ]


def _wait_until_ready(port: int) -> None:
    while True:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.01)
