"""What is made certain for the length of one run: chance, timers, room, and the driver's threads.

Everything here replaces a source of accident (the machine's chance, its stopwatch, its threads, its
free space, what whoever started it does with warnings, when garbage is collected),
or stretches a pause that would cost a simulated hour thousands of empty rounds. None of it
replaces what the product decides.
"""

from __future__ import annotations

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

WORKER_IDLE_S = 24 * 3_600.0
"""The longest sleep of the fold worker here. It would otherwise look around all the time."""

WATCHING_IDLE_S = 4 * 24 * 3_600.0
"""The same, of the watchdog, which looks at every start, too."""

ASKING_IDLE_S = 12 * 3_600.0
"""The same, of what asks for unknown sessions again."""

SEALING_IDLE_S = 24 * 3_600.0
"""The same, of what seals the evidence."""


READING_IDLE_S = 12 * 3_600.0
"""The same, of what reads the inbox, which is given a signal."""

DELETING_IDLE_S = 3_600.0
"""The same, of what looks at how far it was read."""


@contextmanager
def everything_fixed(loop: VirtualLoop, chance: random.Random) -> Iterator[None]:
    """No chance but the seed's, no time but the loop's, no thread, no collection of garbage."""
    replaced: dict[str, Any] = {
        "aiosqlite.core.SimpleQueue": DiskQueue,
        "aiosqlite.core.Thread": NoThread,
        "aiosqlite.core.Connection._connect": connecting,
        "app.core.ids._chances": [],
        "app.core.ids.os": SimpleNamespace(urandom=chance.randbytes),
        "app.orders.worker.IDLE_S": WORKER_IDLE_S,
        "app.checkout.ask_session.IDLE_S": ASKING_IDLE_S,
        "app.wiring.service.REST_S": WATCHING_IDLE_S,
        "app.evidence.seal.REST_S": SEALING_IDLE_S,
        "app.orders.read_feed.monotonic": loop.time,
        "app.receiving.reader.LOOK_S": READING_IDLE_S,
        "app.receiving.inbox_writer_store.LOOK_S": DELETING_IDLE_S,
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
    """A warning that is raised takes another way than one that is printed, so all are raised.

    But for one: the process is killed during a commit, and its task is then cleared away.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "transaction already deassociated", SAWarning)
        yield


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Finalizers of an earlier world, or of an earlier test, must not run in this one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _roomy(_: Path) -> SimpleNamespace:
    """A disk with room: how full the real one is, other programs decide."""
    return SimpleNamespace(f_bavail=1 << 20, f_frsize=4_096)


async def _inline(work: Any, *given: Any, **named: Any) -> Any:
    return work(*given, **named)
