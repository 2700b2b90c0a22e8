"""Run SQLite without its threads in the tests' own process.

aiosqlite has a thread behind each connection. Passing a statement to it and back costs more than
most statements of tests: a third of what a service in a test uses. Here the statement runs at
once; whoever awaits it continues in the next turn of the loop, so that other tasks run at the same
places as before. Processes that the product starts have their threads, and so has everything when
`TALLYHOOK_LONG` is set.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import aiosqlite.core as driver

THREADED: Final = bool(os.environ.get("TALLYHOOK_LONG"))

Waiting = asyncio.Future[Any]


class AtOnce:
    """Replace the queue from aiosqlite to its thread."""

    def put_nowait(self, item: tuple[Waiting | None, Callable[[], Any]]) -> None:
        """Run the statement, and give its result or error to whoever awaits it."""
        future, function = item
        try:
            found: Any = function()
            tell: Callable[[Waiting, Any], None] = driver.set_result
        except Exception as error:
            found, tell = error, driver.set_exception
        if future is not None and not future.get_loop().is_closed():
            future.get_loop().call_soon(tell, future, found)


class NoThread:
    """Replace aiosqlite's thread."""

    daemon = True

    def __init__(self, **_: Any) -> None:
        return

    def start(self) -> None:
        """Do nothing."""


@contextmanager
def statements_at_once() -> Iterator[None]:
    """Open connections without threads."""
    if THREADED:
        yield
        return
    with (
        patch.object(driver, "SimpleQueue", AtOnce),
        patch.object(driver, "Thread", NoThread),
    ):
        yield


_queue: Any = vars(driver)["SimpleQueue"]
_thread: Any = vars(driver)["Thread"]


@contextmanager
def statements_in_threads() -> Iterator[None]:
    """Open connections with threads, as for tests of a statement that waits for another's."""
    with (
        patch.object(driver, "SimpleQueue", _queue),
        patch.object(driver, "Thread", _thread),
    ):
        yield
