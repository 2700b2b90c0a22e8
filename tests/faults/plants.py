"""Mistakes for controls, planted in a child by a script that changes the code before it starts.

A test whose control does not fail proves nothing: an injector that does nothing looks like a pass.
Each text here is Python that runs before `main`.
"""

from __future__ import annotations

NORMAL = """
import app.store.engine as engine

engine._check_durable = lambda cursor: cursor.execute("PRAGMA synchronous=NORMAL")
"""
"""The log is synced at checkpoints only: what was committed last is lost with the power."""

EARLY = """
import asyncio
from app.store.journal import Journal

commit, running = Journal.submit, set()

async def submit(journal, item):
    task = asyncio.ensure_future(commit(journal, item))
    running.add(task)
    task.add_done_callback(running.discard)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return "stored"

Journal.submit = submit
"""
"""The answer is sent while the commit is under way."""

SMALL_LOG = """
import app.store.log_length as log_length

log_length.FOLD_PAGES = 120
"""
"""The log is folded every so many pages, so that a short recording has many folds in it."""


def script(*plants: str) -> str:
    """The program with these planted in it."""
    return "\n".join([*plants, "from app.__main__ import main", "main()"])
