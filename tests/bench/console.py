"""The console's pages over a large database, requested in turn without a socket, in a process of
their own."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2

from app.access.operators import register_operator
from app.access.session_store import add_session
from app.config.load import load_settings
from app.console.application import build_console
from app.console.page_list import PAGES
from app.core.ids import new_secret, new_token
from app.core.process import collect_garbage_rarely, freeze_objects
from app.wiring.opening import open_context
from app.wiring.serving import console_of
from reconcile.instants import DAY
from tests.bench.dataset import fill
from tests.bench.load import quantile
from tests.bench.orders import SEED, Stretch, order_reference
from tests.bench.processes import DATABASE, environment, last_two_cores, run
from tests.bench.report import Figure
from tests.bench.requests import secret_text, source
from tests.bench.sizes import BARS, Sizes
from tests.contexts import Here

PORT = 8081
ORIGIN = f"http://127.0.0.1:{PORT}"
OPERATOR = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One page that was requested several times.

    seconds  until its first byte, each time
    worked   processor seconds of one request
    """

    path: str
    status: int
    seconds: list[float]
    worked: float

    def p95_ms(self) -> float:
        return quantile(sorted(self.seconds), 0.95) * 1000


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
    """Measure the pages of a database with ledgers."""
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
    return [page_figure(pages, stretch)]


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
            freeze_objects()
            return [await _page(client, path, times) for path in paths]


async def _page(client: httpx2.AsyncClient, path: str, times: int) -> Asked:
    seconds, worked = list[float](), time.process_time()
    for _ in range(times):
        started = time.perf_counter()
        answer = await client.get(path)
        seconds.append(time.perf_counter() - started)
    worked = time.process_time() - worked
    return Asked(
        path=path,
        status=answer.status_code,
        seconds=seconds,
        worked=worked / times,
    )


def page_figure(pages: Sequence[Asked], stretch: Stretch) -> Figure:
    """Return the slowest page."""
    slowest = max(pages, key=lambda each: each.p95_ms())
    return Figure(
        name="slowest page of the console, first byte",
        value=slowest.p95_ms(),
        unit="ms, p95",
        bar=BARS["console page"],
        checks={"every page answered": all(each.status == 200 for each in pages)},
        details={"of": slowest.path, "orders": stretch.count, "deliveries": stretch.events}
        | {
            each.path: f"{each.p95_ms():.1f}, {each.worked * 1000:.1f} of the processor"
            for each in pages
        },
    )


if __name__ == "__main__":
    collect_garbage_rarely()  # as the command does
    given = json.load(sys.stdin)
    told = asyncio.run(_pages(given["token"], orders=given["orders"], times=given["times"]))
    print(json.dumps([asdict(each) for each in told]))
