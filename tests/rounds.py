"""Stop the periodic tasks that the test of a service does not need.

The watchdog and the sealing of evidence use a fifth of the time of a service in a test. They
report that they run, but do nothing. With `TALLYHOOK_LONG` all of them run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from app.core.periodic import PeriodicTask
from tests.searching import LONG

STILL: Final = ("the watchdog", "sealing")
"""Names of the components in the log."""

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
    """Make the tasks of these components that start from here on do nothing."""
    if LONG:
        yield
        return
    with patch.object(PeriodicTask, "run", _run_or_wait):
        yield
