"""Waiting for what must come: until it is there, however busy the machine is, but not for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""Seconds after which a wait is given up. It only ends a hang: what comes at all comes far sooner,
even on a machine that does ten other things."""

LOOK_S = 0.01
"""Seconds between two looks."""


def until(
    holds: Callable[..., object], *, otherwise: Callable[[], object] = lambda: "it never came"
) -> None:
    """Wait until this holds, which is asked without arguments: what it has are defaults, by which a
    loop binds its variables. `otherwise` is what the failure says where it never does."""
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, otherwise()
        time.sleep(LOOK_S)


async def soon(holds: Callable[..., object]) -> None:
    """The same for whoever has a loop, which goes on meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
