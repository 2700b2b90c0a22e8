"""Wait for what must happen, however busy the machine is, but not for ever."""

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable

PATIENCE_S = 120.0
"""Seconds after which a wait fails. It only ends a hang: whatever comes at all comes far sooner,
even on a busy machine."""

LOOK_S = 0.03
"""Seconds between two looks."""


def until(
    holds: Callable[..., object], *, otherwise: Callable[[], object] = lambda: "it never came"
) -> None:
    """Wait until `holds()` is true; fail with what `otherwise()` returns if it never is.

    `holds` is called without arguments: in a loop, bind the loop's variables as defaults.
    """
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, otherwise()
        time.sleep(LOOK_S)


async def soon(holds: Callable[..., object]) -> None:
    """Wait like `until` while the event loop goes on; `holds` may be asynchronous."""
    async with asyncio.timeout(PATIENCE_S):
        while not (await found if isawaitable(found := holds()) else found):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
