"""The shop's own calls beside other writers: `PUT /api/v1/orders/…` at a steady rate.

First beside a burst of deliveries and their folds, then beside the import of an order book by the
command line.

Whoever calls waits for an answer before a customer goes on, so what counts is the slowest of a
hundred. Beside the speed stands what the database then holds, against what was told and sent.
"""

from __future__ import annotations

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
from tests.bench.load import Leg, Target, quantile
from tests.bench.orders import Stretch
from tests.bench.processes import last_core, run, server
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS, Sizes
from tests.bench.stored import Audit

CALLERS = 16
CALLS_PER_S = 20.0
"""Of all callers together: each waits for its answer, and is idle most of the time."""

PATIENCE_S = 60
BODY = json.dumps({"amount": "1500.00", "currency": "KES"})


@dataclass(slots=True)
class Calls:
    """What became of the calls: seconds of each, and the orders that were told with 200."""

    seconds: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def ms(self, share: float) -> float:
        """The milliseconds that `share` of the calls did not exceed."""
        return quantile(sorted(self.seconds), share) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Calls beside a burst and beside an import, and what the database held afterwards.

    leg, audit  the burst, and the deliveries that are stored of it
    kept        whether every order that was told has its record, once
    complete    whether every line of the book is there, and the sum of their amounts
    """

    burst: Calls
    book: Calls
    leg: Leg
    audit: Audit
    kept: bool
    complete: bool
    import_s: float


def put_beside(folder: Path, sizes: Sizes) -> Beside:
    """Start a service, and call it beside the one and the other."""
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
    return Beside(
        burst=burst,
        book=book,
        leg=leg,
        audit=stored.audit(path, sent=[stretch], digests=digests),
        kept=_recorded(path) == sorted(burst.told + book.told),
        complete=held_lines(path) == (sizes.beside_rows, minor),
        import_s=ran.seconds,
    )


def _token(env: dict[str, str]) -> str:
    words = [sys.executable, "-m", "app", "tokens", "add", "shop", "--format", "json"]
    made = subprocess.run(words, env=os.environ | env, check=True, capture_output=True)
    token: str = json.loads(made.stdout)["token"]
    return token


@contextmanager
def calling(target: Target, token: str, *, prefix: str) -> Iterator[Calls]:
    """Tell new orders at a steady rate until the block ends."""
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
        done.told += found.told


def _call(port: int, token: str, *, prefix: str, first: int, stop: Event) -> Calls:
    """Seconds count from when a call was due, so that those behind a slow one are not forgotten.
    first: which of the callers it is, for each has its place between those of the others."""
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
            done.told.append(order)
        due += CALLERS / CALLS_PER_S
    connection.close()
    return done


def _recorded(path: Path) -> list[str]:
    """The orders that have a record, sorted; one with two stands there twice."""
    with stored.opened(path) as connection:
        rows = connection.execute("SELECT order_key FROM records ORDER BY order_key").fetchall()
    return [order for (order,) in rows]


def beside_figures(done: Beside) -> list[Figure]:
    """The slowest of a hundred calls, beside the one and the other."""
    every = len(done.burst.told) == len(done.burst.seconds)
    return [
        Figure(
            name="p99 of PUT beside a burst of deliveries",
            value=done.burst.ms(0.99),
            unit="ms",
            bar=BARS["put beside"],
            sense="at most",
            checks={
                "every call was answered with 200": every,
                "every order that was told has its record": done.kept,
                "every delivery was acknowledged and is stored": (
                    not done.leg.refused and not done.audit.lost and not done.audit.surplus
                ),
                "the stored bodies are those that were sent": done.audit.bodies_agree,
            },
            details={
                "calls": len(done.burst.seconds),
                "p50 ms": done.burst.ms(0.5),
                "slowest ms": done.burst.ms(1.0),
                "deliveries": done.leg.sent,
                "deliveries per second": done.leg.rate,
            },
        ),
        Figure(
            name="p99 of PUT beside an import",
            value=done.book.ms(0.99),
            unit="ms",
            bar=BARS["put beside"],
            sense="at most",
            checks={
                "every call was answered with 200": (len(done.book.told) == len(done.book.seconds)),
                "the database holds every row and the sum of all amounts": done.complete,
            },
            details={
                "calls": len(done.book.seconds),
                "p50 ms": done.book.ms(0.5),
                "slowest ms": done.book.ms(1.0),
                "seconds of the import": done.import_s,
            },
        ),
    ]
