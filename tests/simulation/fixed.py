"""Sources of accident that one run replaces: chance, timers, free space, and the driver's threads.

It also fixes warnings and garbage collection, and stretches pauses that would cost a simulated hour
thousands of empty rounds. It replaces no decision of the product.
"""

import gc
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sqlalchemy.exc import SAWarning

from app.receiving.refusals import RejectionRate
from tests.simulation.disk import DiskQueue, NoThread, connecting
from tests.simulation.loop import VirtualLoop

HOUR_S = 3_600.0
IDLE_S = {
    "app.orders.worker.IDLE_S": 24 * HOUR_S,
    "app.checkout.ask_session.IDLE_S": 12 * HOUR_S,
    "app.wiring.service.REST_S": 4 * 24 * HOUR_S,
    "app.evidence.seal.REST_S": 24 * HOUR_S,
    "app.receiving.reader.LOOK_S": 12 * HOUR_S,
    "app.receiving.inbox_writer_store.LOOK_S": HOUR_S,
}
"""The longest sleeps of tasks that would otherwise look for work all the time."""


@contextmanager
def everything_fixed(loop: VirtualLoop, chance: random.Random) -> Iterator[None]:
    """Allow no chance but the seed's, no time but the loop's, no thread, no garbage collection."""
    replaced: dict[str, Any] = {
        **IDLE_S,
        "aiosqlite.core.SimpleQueue": DiskQueue,
        "aiosqlite.core.Thread": NoThread,
        "aiosqlite.core.Connection._connect": connecting,
        "app.core.ids._chances": [],
        "app.core.ids.os": SimpleNamespace(urandom=chance.randbytes),
        "app.receiving.diagnose.asyncio": SimpleNamespace(to_thread=_inline),
        "app.orders.read_feed.monotonic": loop.time,
        "app.orders.clock_correction.monotonic": loop.time,
        "app.core.clock.monotonic": loop.time,
        "app.receiving.inbox_writer_store.monotonic": loop.time,
        "app.checkout.client.time": SimpleNamespace(monotonic=loop.time),
        "sqlalchemy.pool.base.time": SimpleNamespace(time=loop.time),
        "app.database.writer.os": SimpleNamespace(**{**vars(os), "statvfs": _roomy}),
        "app.sandbox.provider.TRUTH_PAUSE_S": 10.0**9,
        "starlette._exception_handler.run_in_threadpool": _inline,
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(patch(name, value))
        stack.enter_context(patch.dict(RejectionRate.__init__.__kwdefaults__, clock=loop.time))
        stack.enter_context(_no_collecting())
        stack.enter_context(_same_warnings())
        yield


@contextmanager
def _same_warnings() -> Iterator[None]:
    """Raise all warnings, since a raised one takes another way than a printed one.

    One is ignored: a process that is killed during a commit has its task cleared away.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "transaction already deassociated", SAWarning)
        yield


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Keep finalizers of earlier worlds and tests out of this one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _roomy(_: Path) -> SimpleNamespace:
    """Return a disk with room, however full the real one is."""
    return SimpleNamespace(f_bavail=1 << 20, f_frsize=4_096)


async def _inline(work: Any, *given: Any, **named: Any) -> Any:
    return work(*given, **named)
