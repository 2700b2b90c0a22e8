"""The shop's own calls beside other writers: `PUT /api/v1/orders/…` at a steady rate.

First beside a burst of deliveries and their folds, then beside the import of an order book by the
command line. A customer waits for each call, so the slowest of a hundred counts. Afterwards the
database is compared with what was called and sent.
"""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from app.core.ids import new_secret
from tests.bench import stored
from tests.bench.generator import Generator
from tests.bench.importing import held_lines, write_book
from tests.bench.ingest import DATABASE, SEED, environment
from tests.bench.load import Target, quantile
from tests.bench.orders import Stretch
from tests.bench.processes import last_core, run, server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS, Sizes

CALLERS = 16
CALLS_PER_S = 20.0
"""Of all callers together; each is idle most of the time."""

PATIENCE_S = 60
BODY = json.dumps({"amount": "1500.00", "currency": "KES"})


@dataclass(slots=True)
class Calls:
    """Seconds of each call, and the orders that were answered with 200."""

    seconds: list[float] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)

    def figure(self, name: str, *, checks: dict[str, bool], details: dict[str, object]) -> Figure:
        """Return the slowest of a hundred calls beside its bar."""
        ordered = sorted(self.seconds)
        answered = len(self.recorded) == len(ordered)
        return Figure(
            name=name,
            value=quantile(ordered, 0.99) * 1000,
            unit="ms",
            bar=BARS["put beside"],
            checks={"every call was answered with 200": answered, **checks},
            details={
                "calls": len(ordered),
                "p50 ms": quantile(ordered, 0.5) * 1000,
                "slowest ms": ordered[-1] * 1000,
                **details,
            },
        )


def beside_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Start a service, and call it beside a burst and beside an import."""
    print("put_beside_burst: beside deliveries, then beside an import", file=sys.stderr)
    secret, path = secret_text(new_secret()), folder / DATABASE
    env = environment(path, secret)
    stretch = Stretch(seed=SEED, first=0, count=sizes.beside_orders)
    minor = write_book(folder / "book.csv", sizes.beside_rows)
    words = ("app", "records", "import", str(folder / "book.csv"), "--format", "json")
    with server(["app", "serve", "--port"], log=folder / "serve.log", env=env) as target:
        token = _token(env)
        with Generator(secret) as generator:
            digests = generator.prepare(stretch)
            with calling(target, token, prefix="burst") as burst:
                leg = generator.send(target, connections=sizes.connections, warm=1)
                stored.settle(path)
        with calling(target, token, prefix="book") as book:
            ran = run(words, log=folder / "import.log", env=env, cores={last_core()})
        stored.settle(path)
    audit = stored.audit(path, sent=[stretch], digests=digests)
    with stored.opened(path) as connection:
        rows = connection.execute("SELECT order_key FROM records ORDER BY order_key").fetchall()
    kept = [order for (order,) in rows] == sorted(burst.recorded + book.recorded)
    return [
        burst.figure(
            "p99 of PUT beside a burst of deliveries",
            checks={
                "every order that was called has its record, once": kept,
                "every delivery was acknowledged and is stored": (
                    not leg.refused and not audit.lost and not audit.surplus
                ),
                "the stored bodies are those that were sent": audit.bodies_agree,
            },
            details={"deliveries": leg.sent, "deliveries per second": leg.rate},
        ),
        book.figure(
            "p99 of PUT beside an import",
            checks={
                "the database holds every row and the sum of all amounts": (
                    held_lines(path) == (sizes.beside_rows, minor)
                )
            },
            details={"seconds of the import": ran.seconds},
        ),
    ]


def _token(env: dict[str, str]) -> str:
    words = [sys.executable, "-m", "app", "tokens", "add", "shop", "--format", "json"]
    made = subprocess.run(words, env=os.environ | env, check=True, capture_output=True)
    token: str = json.loads(made.stdout)["token"]
    return token


@contextmanager
def calling(target: Target, token: str, *, prefix: str) -> Iterator[Calls]:
    """Call with new orders at a steady rate until the block ends."""
    done, stop = Calls(), Event()
    with ThreadPoolExecutor(CALLERS) as pool:
        running = [
            pool.submit(_call, target.port, token, prefix=f"{prefix}-{n}", first=n, stop=stop)
            for n in range(CALLERS)
        ]
        try:
            yield done
        finally:
            stop.set()
    for each in running:
        found = each.result()
        done.seconds += found.seconds
        done.recorded += found.recorded


def _call(port: int, token: str, *, prefix: str, first: int, stop: Event) -> Calls:
    """Call until `stop`; seconds count from when a call was due, so that waiting ones count too.

    first: the caller's place between the calls of the others.
    """
    done, due = Calls(), time.monotonic() + first / CALLS_PER_S
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    while not stop.wait(max(0.0, due - time.monotonic())):
        order = f"{prefix}-{len(done.seconds)}"
        connection.request("PUT", f"/api/v1/orders/{order}", body=BODY, headers=headers)
        answer = connection.getresponse()
        answer.read()
        done.seconds.append(time.monotonic() - due)
        if answer.status == 200:
            done.recorded.append(order)
        due += CALLERS / CALLS_PER_S
    connection.close()
    return done
