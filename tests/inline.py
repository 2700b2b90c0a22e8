"""SQLite without its threads: in a test's own process, statements run where they are asked for.

Behind each connection aiosqlite has a thread. A statement crosses to it and back, which costs more
than most statements of tests do: a third of what a driven service uses. Here it is done at once;
whoever waits for it is woken in the next turn of the loop, so others run at the same places. What
the product starts as a process has its threads, and with `TALLYHOOK_LONG` everything has.
"""

from __future__ import annotations

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
    """Stands where aiosqlite has the queue to its thread."""

    def put_nowait(self, item: tuple[Waiting | None, Callable[[], Any]]) -> None:
        """Do it, and say to whoever waits for it what came of it."""
        future, function = item
        try:
            found: Any = function()
            tell: Callable[[Waiting, Any], None] = driver.set_result
        except Exception as error:
            found, tell = error, driver.set_exception
        if future is not None and not future.get_loop().is_closed():
            future.get_loop().call_soon(tell, future, found)


class NoThread:
    """Stands where aiosqlite has its thread."""

    daemon = True

    def __init__(self, **_: Any) -> None:
        return

    def start(self) -> None:
        """There is nothing to start."""


@contextmanager
def statements_at_once() -> Iterator[None]:
    """Connections that are opened from here on have no thread."""
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
    """Connections that are opened from here on have their threads: for a test of what they are for,
    such as a statement that waits for another's."""
    with (
        patch.object(driver, "SimpleQueue", _queue),
        patch.object(driver, "Thread", _thread),
    ):
        yield
