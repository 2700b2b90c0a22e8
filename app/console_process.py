"""The console's process beside `serve`: started, watched and ended from here.

A pair of sockets ties it to who started it. It takes no signal for itself, since a Ctrl-C or a
supervisor may signal both, and ends when its socket is closed: its parent says so, or is gone. One
that ends by itself is started again, later each time; its end never ends the parent.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

log = structlog.get_logger()

AGAIN_S: Final = 1.0
"""Until a console that has ended is started again; twice as long each time, up to MOST_S."""

MOST_S: Final = 60.0

STOP_S: Final = 10.0
"""A console has so long to end; then it is killed."""


@asynccontextmanager
async def console_beside(*, host: str, port: int) -> AsyncIterator[None]:
    """A console in a process of its own until the block ends."""
    stopping = asyncio.Event()
    keeping = asyncio.create_task(_keep(stopping, host=host, port=port))
    try:
        yield
    finally:
        stopping.set()
        await keeping


async def _keep(stopping: asyncio.Event, *, host: str, port: int) -> None:
    pause = AGAIN_S
    while not stopping.is_set():
        await _live(stopping, host=host, port=port)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stopping.wait()
        pause = min(2 * pause, MOST_S)


async def _live(stopping: asyncio.Event, *, host: str, port: int) -> None:
    """One console from its start to its end, or until stopping."""
    ours, theirs = socket.socketpair()
    words = ("console", "--host", host, "--port", str(port), "--parent", str(theirs.fileno()))
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "app", *words),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        ended = asyncio.ensure_future(process.wait())
        told = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
    if not stopping.is_set():
        log.error("the console ended, and is started again", exit_code=process.returncode)
    try:
        async with asyncio.timeout(STOP_S):
            await ended
    except TimeoutError:
        log.error("the console does not end; it is killed")
        process.kill()
        await process.wait()
