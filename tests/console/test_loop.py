"""What computes for long does not do so in the console's loop: other pages answer meanwhile.

A use case that the console gives away runs here in the same loop, with its processor time counted
apart. The longest step of the loop without that time is a small part of what the act takes.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Any, Final

import pytest

from app.console.application import build_console
from app.evidence.seal import open_signer, seal_all
from tests.api.driving import driving, event
from tests.console.conftest import (
    RunningConsole,
    console_over,
    until_async,
    with_orders,
)
from tests.console.test_finance_pages import of_form
from tests.copied import copy_of

DELIVERIES = 60
"""Deliveries of the heavy order."""


async def with_heavy_order(folder: Path) -> None:
    """Add an order with many deliveries, all sealed."""
    copy_of(with_orders, folder)
    async with driving(folder, looking=True) as driver:
        for number in range(DELIVERIES):
            await driver.send(event(f"evt_h{number}", "declined"))
        context = driver.service.context
        await until_async(
            lambda: driver.rows("SELECT count(*) FROM deliveries") >= [(DELIVERIES + 2,)]
        )
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


ACTS: Final[dict[str, dict[str, str]]] = {
    "evidence": {}, "prove": {}, "letter": {"ending": "html"}, "verify-log": {},
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
    assert steps.longest < (steps.total + steps.elsewhere) / 10, steps
