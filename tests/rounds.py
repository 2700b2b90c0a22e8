"""Periodic tasks of a driven service that its test does not ask for stand still.

The watchdog's look and the sealing of evidence are a fifth of what a driven service uses. Both
count as running, and nothing else tells that they do nothing. With `TALLYHOOK_LONG` all go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from app.core.periodic import PeriodicTask

STILL: Final = ("the watchdog", "sealing")
"""Components, as the log calls them."""

_run = PeriodicTask.run


async def _run_or_wait(task: PeriodicTask) -> None:
    if task._component not in STILL:
        await _run(task)
        return
    task.alive = True
    await task._stopping.wait()
    task.alive = False


@contextmanager
def standing_still() -> Iterator[None]:
    """Tasks that begin from here on do nothing, where they are of those components."""
    if os.environ.get("TALLYHOOK_LONG"):
        yield
        return
    with patch.object(PeriodicTask, "run", _run_or_wait):
        yield
