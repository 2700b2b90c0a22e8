"""What is made certain for the length of one run: chance, timers, and the driver's threads.

Everything here replaces a source of accident (the machine's chance, its stopwatch, its threads),
or stretches a pause that would cost a simulated hour thousands of empty rounds. None of it
replaces what the product decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from app.operations.rejection_rate import RejectionRate
from app.store import schema
from tests.simulation.disk import DiskQueue, NoThread, connecting
from tests.simulation.loop import VirtualLoop

WORKER_IDLE_S = 24 * 3_600.0
"""The longest sleep of the fold worker and the watchdog here. They would otherwise look around all
the time."""

ASKING_IDLE_S = 1_800.0
"""The same, of what asks for unknown sessions again."""


@contextmanager
def everything_fixed(loop: VirtualLoop, chance: random.Random) -> Iterator[None]:
    """No chance but the seed's, no time but the loop's, no thread."""
    newest = _newest_version()
    replaced: dict[str, Any] = {
        "aiosqlite.core.SimpleQueue": DiskQueue,
        "aiosqlite.core.Thread": NoThread,
        "aiosqlite.core.Connection._connect": connecting,
        "app.ids.os": SimpleNamespace(urandom=chance.randbytes),
        "app.operations.worker.perf_counter": loop.time,
        "app.operations.worker.IDLE_S": WORKER_IDLE_S,
        "app.operations.ask_again.IDLE_S": ASKING_IDLE_S,
        "app.bootstrap.REST_S": WORKER_IDLE_S,
        "app.operations.read_feed.monotonic": loop.time,
        "app.checkout.client.time": SimpleNamespace(monotonic=loop.time),
        "app.sandbox.provider.TRUTH_PAUSE_S": 10.0**9,
        "app.store.schema.newest_version": lambda: newest,
        "starlette._exception_handler.run_in_threadpool": _inline,
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(patch(name, value))
        stack.enter_context(patch.dict(RejectionRate.__init__.__kwdefaults__, clock=loop.time))
        yield


@cache
def _newest_version() -> str:
    return schema.newest_version()


async def _inline(work: Any, *given: Any, **named: Any) -> Any:
    return work(*given, **named)
