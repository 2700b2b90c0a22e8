"""The console over a large database: speed and size of its pages, and deliveries beside it.

Pages are requested in turn, without a socket, in a process of their own, where its event loop can
be watched. People browse a real console, each a page every few seconds, beside a real service that
gets deliveries at a steady rate; legs with and without them take turns."""

import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

import httpx2

from app.access.operators import register_operator
from app.access.session_store import add_session
from app.config.load import load_settings
from app.console.application import build_console
from app.console.page_list import PAGES
from app.core.ids import new_secret, new_token
from app.core.process import look_seldom, pass_over_start
from app.wiring.opening import open_context
from app.wiring.serving import console_of
from reconcile.instants import DAY
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.generator import Generator
from tests.bench.ingest import DATABASE, SEED, environment
from tests.bench.load import Leg, Target, quantile
from tests.bench.orders import EVENTS_PER_ORDER, Stretch, order_reference
from tests.bench.processes import last_two_cores, run, server
from tests.bench.report import Figure
from tests.bench.requests import secret_text, source
from tests.bench.sizes import BARS, Sizes
from tests.contexts import Here

PORT = 8081
ORIGIN = f"http://127.0.0.1:{PORT}"
PEOPLE = 20
REST_S = 5.0
"""Seconds between two pages of one person."""

RATE = 200
"""Deliveries a second while they browse."""

BEAT_S = 0.001
PATIENCE_S = 60
OPERATOR = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One page that was requested several times.

    seconds       until its first byte, each time
    worked        processor seconds of one request
    held, paused  longest time that it held the event loop, by the processor and by the clock
    """

    path: str
    status: int
    seconds: list[float]
    size: int
    worked: float
    held: float
    paused: float

    def p95_ms(self) -> float:
        return quantile(sorted(self.seconds), 0.95) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Browsed:
    """Legs without and with people, and the number of pages that they saw."""

    alone: list[Leg]
    beside: list[Leg]
    pages: int


def paths_of(orders: int) -> list[str]:
    """Return every page with an address of its own, some of their filters, and one order."""
    plain = [page.path for page in PAGES if "{subject}" not in page.path]
    return [
        *plain,
        "/orders?outcome=unresolved",
        "/orders?outcome=pending",
        "/orders?finding=conflicting_amounts",
        "/deliveries?verdict=unreadable",
        f"/orders/{order_reference(orders // 2)}",
    ]


def console_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Measure the pages of a database with ledgers, then people beside deliveries."""
    secret, path = secret_text(new_secret()), folder / DATABASE
    stretch = Stretch(seed=SEED, first=0, count=sizes.console_orders)
    fill(path, stretch, source(secret))
    env = environment(path, secret)
    print("console: ledgers of all orders", file=sys.stderr)
    log, cores = folder / "refold.log", last_two_cores()
    run(("app", "refold", "--all", "--jobs", "2"), log=log, env=env, cores=cores)
    token = new_token("")

    async def begin_session() -> None:
        async with open_context(load_settings(env), purpose="writing") as context:
            await register_operator(context, name=OPERATOR, role="admin", by=None)
            async with context.database.writing() as connection:
                now = context.clock.now()
                await add_session(
                    connection, token=token, name=OPERATOR, now=now, until=now + 7 * DAY
                )

    asyncio.run(begin_session())
    print("console: each page", file=sys.stderr)
    asked = {"token": token, "orders": sizes.console_orders, "times": sizes.console_times}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.console"],
        env=os.environ | env, input=json.dumps(asked), text=True, stdout=-1, check=True,
    )  # fmt: skip
    pages = [Asked(**each) for each in json.loads(done.stdout)]
    browsed = _browse(folder, env, token, stretch=stretch, secret=secret, sizes=sizes)
    return [*page_figures(pages, stretch), browsing_figure(browsed)]


# --- each page, in a process of its own -----------------------------------------------------------


async def _pages(token: str, *, orders: int, times: int) -> list[Asked]:
    settings = load_settings()
    async with open_context(settings, purpose="writing") as context:
        with_pages = build_console(
            console_of(context, host="127.0.0.1", port=PORT, elsewhere=Here(context))
        )
        cookies = {f"tallyhook-{PORT}": token}
        transport = httpx2.ASGITransport(app=with_pages)
        async with httpx2.AsyncClient(
            transport=transport, base_url=ORIGIN, cookies=cookies
        ) as client:
            paths = paths_of(orders)
            for path in paths:
                await client.get(path)  # templates are compiled once
            pass_over_start()
            return [await _page(client, path, times) for path in paths]


async def _page(client: httpx2.AsyncClient, path: str, times: int) -> Asked:
    seconds, beats = list[float](), Beats()
    beats.begin()
    worked = time.process_time()
    for _ in range(times):
        started = time.perf_counter()
        answer = await client.get(path)
        seconds.append(time.perf_counter() - started)
    worked = time.process_time() - worked
    beats.end()
    return Asked(
        path=path,
        status=answer.status_code,
        seconds=seconds,
        size=len(answer.content),
        worked=worked / times,
        held=beats.held,
        paused=beats.paused,
    )


class Beats:
    """A watch that measures at each turn of the event loop what its thread used since the last."""

    def __init__(self) -> None:
        self.held = self.paused = 0.0
        self._over = False

    def begin(self) -> None:
        self._last = time.thread_time(), time.perf_counter()
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        used, now = time.thread_time(), time.perf_counter()
        self.held = max(self.held, used - self._last[0])
        self.paused = max(self.paused, now - self._last[1] - BEAT_S)
        self._last = used, now
        if not self._over:
            asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def end(self) -> None:
        self._over = True


def page_figures(pages: Sequence[Asked], stretch: Stretch) -> list[Figure]:
    """Return the slowest page, the one that holds the event loop longest, and the largest."""
    slowest = max(pages, key=lambda each: each.p95_ms())
    holding = max(pages, key=lambda each: each.held)
    largest = max(pages, key=lambda each: each.size)
    all_there = {"every page answered": all(each.status == 200 for each in pages)}
    stock = f"{stretch.count:,} orders, {stretch.events:,} deliveries"
    return [
        Figure(
            name="first byte of a console's page",
            value=slowest.p95_ms(),
            unit="ms, p95 of the slowest",
            bar=BARS["console page"],
            checks=all_there,
            details={"of": slowest.path, "stock": stock}
            | {
                each.path: f"{each.p95_ms():.1f}, {each.worked * 1000:.1f} of the processor"
                for each in pages
            },
        ),
        Figure(
            name="a page holds the console's loop",
            value=holding.held * 1000,
            unit="ms of the processor, at most",
            bar=BARS["console loop"],
            details={
                "of": holding.path,
                "by the clock, on a busy machine": round(max(p.paused for p in pages) * 1000, 1),
            }
            | {each.path: round(each.held * 1000, 1) for each in pages},
        ),
        Figure(
            name="largest page of the console",
            value=largest.size / 1000,
            unit="KB",
            bar=BARS["console size"],
            details={"of": largest.path},
        ),
    ]


# --- people beside deliveries ---------------------------------------------------------------------


def _browse(
    folder: Path,
    env: dict[str, str],
    token: str,
    *,
    stretch: Stretch,
    secret: str,
    sizes: Sizes,
) -> Browsed:
    print("console: people beside deliveries", file=sys.stderr)
    alone, beside, pages = list[Leg](), list[Leg](), 0
    count, first = RATE * sizes.console_s // EVENTS_PER_ORDER, stretch.first + stretch.count
    serve = server(["app", "serve", "--port"], log=folder / "serve.log", env=env)
    console = server(["app", "console", "--port"], log=folder / "console.log", env=env)
    with serve as target, console as other, Generator(secret) as generator:
        for turn in range(2 * sizes.console_legs):
            generator.prepare(Stretch(seed=SEED, first=first, count=count))
            first += count
            with people(other, token, stretch.count, browsing=turn % 2 == 1) as seen:
                leg = generator.send(target, connections=sizes.connections, warm=RATE, rate=RATE)
            (beside if turn % 2 else alone).append(leg)
            pages += len(seen)
            stored.settle(folder / DATABASE)
    return Browsed(alone=alone, beside=beside, pages=pages)


@contextmanager
def people(console: Target, token: str, orders: int, *, browsing: bool) -> Iterator[list[int]]:
    """Let people browse until the block ends; yield the statuses of their pages."""
    seen, stop = list[int](), Event()
    with ThreadPoolExecutor(PEOPLE) as pool:
        running = [
            pool.submit(_person, console.port, token, orders, number, stop, seen)
            for number in range(PEOPLE if browsing else 0)
        ]
        try:
            yield seen
        finally:
            stop.set()
    for each in running:
        each.result()


def _person(port: int, token: str, orders: int, number: int, stop: Event, seen: list[int]) -> None:
    paths = paths_of(orders)
    headers = {"Cookie": f"tallyhook-{port}={token}"}
    place = number
    stop.wait(REST_S * number / PEOPLE)
    while not stop.is_set():
        # A new one each time: the server ends one that rests as long as people rest.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", paths[place % len(paths)], headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        seen.append(answer.status)
        place += 1
        stop.wait(REST_S)


def browsing_figure(found: Browsed) -> Figure:
    """Compare the p99 of acknowledgements with and without people."""
    alone = statistics.median(leg.p99_ms for leg in found.alone)
    beside = statistics.median(leg.p99_ms for leg in found.beside)
    return Figure(
        name="p99 of a delivery while twenty people browse",
        value=beside / alone,
        unit="of that without them",
        bar=BARS["console beside"],
        checks={
            "every delivery was acknowledged": not any(
                leg.refused for leg in (*found.alone, *found.beside)
            ),
            "people saw pages": found.pages > 0,
        },
        details={
            "ms without them": [round(leg.p99_ms, 1) for leg in found.alone],
            "ms beside them": [round(leg.p99_ms, 1) for leg in found.beside],
            "pages seen": found.pages,
        },
    )


if __name__ == "__main__":
    look_seldom()  # as the command does
    given = json.load(sys.stdin)
    told = asyncio.run(_pages(given["token"], orders=given["orders"], times=given["times"]))
    print(json.dumps([asdict(each) for each in told]))
