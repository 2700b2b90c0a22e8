"""What computes for long does not do so in the console's loop: other pages answer meanwhile.

A use case that the console gives away runs here in the same loop, with its processor time counted
apart. The longest step of the loop without that time is a small part of what the act takes.
"""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Any, Final

import pytest

from app.access.tokens import issue_token
from app.api import routes
from app.console.application import build_console
from app.core import jobs
from app.evidence.seal import open_signer, seal_all
from app.orders import read_orders
from tests.api.driving import driving, event
from tests.console.conftest import (
    RunningConsole,
    console_over,
    with_orders,
)
from tests.console.test_finance_pages import of_form
from tests.copied import copy_of
from tests.waiting import soon

DELIVERIES = 60
"""Deliveries of the heavy order."""


async def with_heavy_order(folder: Path) -> None:
    """Add an order with many deliveries, all sealed."""
    copy_of(with_orders, folder)
    async with driving(folder, looking=True) as driver:
        for number in range(DELIVERIES):
            await driver.send(event(f"evt_h{number}", "declined"))
        context = driver.service.context
        await soon(lambda: driver.rows("SELECT count(*) FROM deliveries") >= [(DELIVERIES + 2,)])
        await seal_all(context, await open_signer(context))


@dataclass
class Steps:
    """Processor seconds of the loop: given away, and of the longest step that was not."""

    elsewhere: float = 0.0
    longest: float = 0.0
    total: float = 0.0


class Counted:
    """Awaits a use case, and counts the time of its steps as spent elsewhere."""

    def __init__(self, work: Any, steps: Steps) -> None:
        self._work, self._steps = work, steps

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, given = self._work.__await__(), None
        while True:
            began = thread_time()
            try:
                waiting = steps.send(given)
            except StopIteration as ended:
                return ended.value
            finally:
                self._steps.elsewhere += thread_time() - began
            given = yield waiting


@asynccontextmanager
async def watched(steps: Steps) -> AsyncIterator[None]:
    """Measure each turn of the loop meanwhile."""

    async def tick() -> None:
        while True:
            now, away = thread_time(), steps.elsewhere
            await asyncio.sleep(0)
            step = thread_time() - now - (steps.elsewhere - away)
            steps.total += step
            steps.longest = max(steps.longest, step)

    ticking = asyncio.create_task(tick())
    gc.disable()  # its pauses are of what other tests have left
    try:
        yield
    finally:
        gc.enable()
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking


def apart(console: RunningConsole, steps: Steps) -> RunningConsole:
    """Return the console with the time of what it gives away counted apart."""

    def counted(work: Any) -> Any:
        async def run(*args: Any, **words: Any) -> Any:
            return await Counted(work(*args, **words), steps)

        return run

    made = console.console
    made = replace(made, work=counted(made.work), makes=counted(made.makes))
    return replace(console, console=made, application=build_console(made))


READS: Final = "/api/v1/orders/ORD-1", "/api/v1/orders?limit=9", "/orders/ORD-1"


@pytest.mark.usefixtures("database_in_threads")
@pytest.mark.parametrize("read", READS)
async def test_an_order_with_many_deliveries_is_computed_in_another_thread(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the API and of the console: the fold, the document, and the answer's fingerprint."""
    copy_of(with_heavy_order, tmp_path)
    monkeypatch.setattr(jobs, "LARGE", DELIVERIES)
    here, there = list[str](), list[str]()

    def noted(name: str, work: Any) -> Any:
        def noting(*args: Any, **words: Any) -> Any:
            in_loop = threading.current_thread() is threading.main_thread()
            if name != "fold" or len(args[0].deliveries) >= DELIVERIES:
                (here if in_loop else there).append(name)
            return work(*args, **words)

        return noting

    for module, name in ((read_orders, "fold"), (read_orders, "_document"), (routes, "_if_new")):
        monkeypatch.setattr(module, name, noted(name, getattr(module, name)))
    async with console_over(tmp_path) as running:
        if read.startswith("/api"):
            driver = running.driver
            driver.token = await issue_token(driver.context, name="shop", by="a admin")
            answer = await driver.api("GET", read.removeprefix("/api/v1"))
        else:
            async with running.signed_in("admin") as client:
                answer = await client.get(read)
    assert answer.status_code == 200
    assert (here, "fold" in there) == ([], True)


ACTS: Final[dict[str, dict[str, str]]] = {
    "evidence": {}, "prove": {}, "letter": {"ending": "html"}, "verify-log": {},
    "erase": {"what": "order", "subject": "ORD-1"},
    "copy": {"what": "order", "subject": "ORD-1", "reason": "seen"},
}  # fmt: skip


@pytest.mark.parametrize("act", ACTS)
async def test_an_act_computes_elsewhere(act: str, tmp_path: Path) -> None:
    copy_of(with_heavy_order, tmp_path)
    steps = Steps()
    async with (
        console_over(tmp_path) as running,
        apart(running, steps).signed_in("admin") as client,
    ):
        path = f"/do/{act}?order=ORD-1"
        form = await of_form(client, path)
        async with watched(steps):
            answer = await client.post(path, data={"form": form, **ACTS[act]})
    assert answer.status_code in (200, 303)
    assert steps.longest < (steps.total + steps.elsewhere) / 4, steps
