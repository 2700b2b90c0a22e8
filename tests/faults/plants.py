"""Mistakes for controls, planted in a child by a script that changes the code before it starts.

A test whose control does not fail proves nothing: an injector that does nothing looks like a pass.
Each text here is Python that runs before `main`.
"""

from __future__ import annotations

NORMAL = """
import app.database.engine as engine

engine._check_durable = lambda cursor: cursor.execute("PRAGMA synchronous=NORMAL")
"""
"""The log is synced at checkpoints only: what was committed last is lost with the power."""

EARLY = """
from app.receiving.inbox_queue import InboxQueue

import asyncio

submit, sent = InboxQueue.submit, set()

async def early(journal, item):
    sent.add(asyncio.create_task(submit(journal, item)))
    await asyncio.sleep(0)

InboxQueue.submit = early
"""
"""The answer is sent while the commit is under way."""

SMALL_LOG = """
import app.receiving.inbox_file_store as inbox_file
import app.database.writer as log_length

inbox_file.FOLD_PAGES = 60
log_length.FOLD_PAGES = 120
"""
"""Both logs are folded every so many pages, so that a short recording has many folds in it."""

INSISTENT = """
import app.database.writer as log_length
import app.orders.worker as worker
import app.receiving.reader as reader

log_length.INSIST_S = 0.25
reader.TRY_AGAIN_S = worker.TRY_AGAIN_S = 0.1
"""
INSIST_S = 0.25
"""Who cannot write tries again soon: no mistake, but a full disk is told of without long waits."""

KEEPS_LOG = """
from app.database.writer import LogLength

LogLength.may_give_room = lambda log: False
LogLength.folding_due = lambda log: None
"""
"""No log is ever folded: a full disk is left to whoever filled it, be it our own log."""

UNGUARDED = """
import app.database.database as database
import app.receiving.inbox as inbox

async def nothing(*given):
    return []

database.drop_cached_pages = inbox.drop_cached_pages = lambda path: None
database.Database.look = nothing
inbox.InboxFile.damage = nothing
database.sync_file = inbox.sync_file = nothing
"""
"""A start that opens the database as it finds it: the page cache is not dropped, the file is not
looked at, and the log is neither folded nor synced."""

KEEPS_CACHED_LOG = """
import os

advise = os.posix_fadvise

def some(descriptor, *words):
    if not os.readlink(f"/proc/self/fd/{descriptor}").endswith("-wal"):
        advise(descriptor, *words)

os.posix_fadvise = some
"""
"""A start that reads the log as the page cache shows it."""

GOES_ON = """
import sqlite3
import app.database.faults as faults

faults._PASSING_SQLITE |= {sqlite3.SQLITE_IOERR: ("planted", "disk")}
faults._FATAL_SQLITE.clear()
"""
"""An I/O error is taken for trouble that passes."""

HASTY = """
import app.receiving.inbox_queue as journal

journal.PATIENCE_S = 0.5
"""
"""Whoever delivers is told sooner that a write takes too long: no mistake, but no long wait."""

PATIENT = """
import app.receiving.inbox_queue as journal
import app.database.writer as writer

journal.PATIENCE_S = writer.TURN_S = 1_000
"""
"""Whoever delivers waits for as long as a write takes."""

FAILING_JOURNAL = """
from app.receiving.inbox_queue import InboxQueue

async def run(journal):
    while journal.committed < 20:
        await journal._wake.wait()
        journal._wake.clear()
        while journal._waiting:
            await journal._write(journal._take())
    raise RuntimeError("planted")

InboxQueue.run = run
"""
"""The task that commits dies after some deliveries."""

FAILING_WORKER = """
import app.orders.worker as worker
import app.core.child_processes as process

process.MISSED_S = 0.5
folding = worker.refold_due

async def refold_due(context, **words):
    done = await folding(context, **words)
    if done:
        raise RuntimeError("planted")
    return done

worker.refold_due = refold_due
"""
"""The task that folds dies after the first orders; readiness says soon that none reads."""

STEPWISE_FOLD = """
import os
import app.orders.refold as refold

folding = refold.fold

def fold(history, **words):
    os.write(1, b"folding\\n")
    os.read(0, 1)
    return folding(history, **words)

refold.fold = fold
"""
"""A rebuild that says each fold and waits to be told to go on: no mistake, but time for a kill."""


WATCHFUL = """
import app.wiring.service as service

service.REST_S = 0.05
"""
"""A watchdog that looks all the time: no mistake, but an alarm comes within the test's patience."""


def stepping(seconds: int, file: str) -> str:
    """A clock that is set by so many seconds while a file is there."""
    return f"""
import os
from app.core.clock import SystemClock

now = SystemClock.now
SystemClock.now = lambda clock: now(clock) + {seconds} * 1_000_000 * os.path.exists({file!r})
"""


def script(*plants: str) -> str:
    """What plants these in every process of the program: see `starting`."""
    return "\n".join(plants)


def program(*plants: str) -> str:
    """The program with these planted in it, for `python -c`."""
    return "\n".join([*plants, "from app.__main__ import main", "main()"])


ALWAYS_TWO = """
import app.orders.folding_process as process

process.BEHIND, process.LOOK_S, process.REST_S = -1, 0.02, 0.02
"""
"""Whoever reads is taken to be behind all the time: a second process folds."""

SOON_QUIET = """
import app.orders.folding_process as process

process.BEHIND, process.LOOK_S, process.REST_S = 10, 0.02, 0.02
process.QUIET_S = 0.5
"""
"""A second process is started for ten deliveries, and ends after half a second without work."""
