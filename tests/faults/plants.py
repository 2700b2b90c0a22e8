"""Defects for controls, planted by a script that changes the code of a child process.

A test whose control does not fail proves nothing: an injector that does nothing looks like a pass.
Each text here is Python that runs before `main`.
"""

NORMAL = """
import app.database.engine as engine

engine._check_durable = lambda plain: plain.ask("PRAGMA synchronous=NORMAL")
"""
"""Sync the log at checkpoints only: a power cut loses the last commits."""

EARLY = """
from app.receiving.inbox_queue import InboxQueue

import asyncio

submit, sent = InboxQueue.submit, set()

async def early(journal, item):
    sent.add(asyncio.create_task(submit(journal, item)))
    await asyncio.sleep(0)

InboxQueue.submit = early
"""
"""Answer while the commit is under way."""

SMALL_LOG = """
import app.receiving.inbox_file_store as inbox_file
import app.database.writer as log_length

inbox_file.CHECKPOINT_PAGES = 60
log_length.CHECKPOINT_PAGES = 120
"""
"""Checkpoint both logs after few pages, so that a short recording has many checkpoints."""

INSISTENT = """
import app.database.writer as log_length
import app.orders.worker as worker
import app.receiving.reader as reader

log_length.INSIST_S = 0.25
reader.TRY_AGAIN_S = worker.TRY_AGAIN_S = 0.1
"""
INSIST_S = 0.25
"""Try to write again soon: no defect, but a full disk is reported without long waits."""

KEEPS_LOG = """
from app.database.writer import LogLength

LogLength.may_give_room = lambda log: False
LogLength.checkpoint_due = lambda log: None
"""
"""Never checkpoint the log, even if it has filled the disk."""

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
"""Start without dropping the page cache, checking the file, or syncing the checkpointed log."""

KEEPS_CACHED_LOG = """
import os

advise = os.posix_fadvise

def some(descriptor, *words):
    if not os.readlink(f"/proc/self/fd/{descriptor}").endswith("-wal"):
        advise(descriptor, *words)

os.posix_fadvise = some
"""
"""Start from the log as the page cache shows it."""

GOES_ON = """
import sqlite3
import app.database.faults as faults

faults._PASSING_SQLITE |= {sqlite3.SQLITE_IOERR: ("planted", "disk")}
faults._FATAL_SQLITE.clear()
"""
"""Take an I/O error for a passing fault."""

HASTY = """
import app.receiving.inbox_queue as journal

journal.PATIENCE_S = 0.5
"""
"""Refuse a delivery sooner when a write takes long: no defect, but no long wait."""

PATIENT = """
import app.receiving.inbox_queue as journal
import app.database.writer as writer

journal.PATIENCE_S = writer.TURN_S = 1_000
"""
"""Let senders wait as long as a write takes."""

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
"""Let the task that commits die after some deliveries."""

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
"""Let the task that folds die after the first orders; readiness soon says that nothing reads."""

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
"""Report each fold of a rebuild and wait: no defect, but time for a kill."""


WATCHFUL = """
import app.wiring.service as service

service.REST_S = 0.05
"""
"""Let the watchdog look all the time: no defect, but an alarm comes soon."""

ALARMS_SOON = f"""{WATCHFUL}
import app.monitoring.watchdog as watchdog

watchdog.SHOP_PATIENCE = 300_000
"""
"""Watch all the time, and raise the alarm after 0.3 s of a shop that takes nothing."""


def stepping(seconds: int, file: str) -> str:
    """Return a plant that sets the clock by so many seconds while a file exists."""
    return f"""
import os
from app.core.clock import SystemClock

now = SystemClock.now
SystemClock.now = lambda clock: now(clock) + {seconds} * 1_000_000 * os.path.exists({file!r})
"""


def script(*plants: str) -> str:
    return "\n".join(plants)


def program(*plants: str) -> str:
    """Return the program with these plants, for `python -c`."""
    return "\n".join([*plants, "from app.__main__ import main", "main()"])


ALWAYS_TWO = """
import app.orders.folding_process as process

process.BEHIND, process.LOOK_S, process.REST_S = -1, 0.02, 0.02
"""
"""Take the reader to be behind all the time, so that a second process folds."""

SOON_QUIET = """
import app.orders.folding_process as process

process.BEHIND, process.LOOK_S, process.REST_S = 10, 0.02, 0.02
process.QUIET_S = 0.5
"""
"""Start a second process for ten deliveries, and end it after half a second without work."""

NEVER_QUIET = """
import app.receiving.inbox_writer_store as receiver

receiver.QUIET_S = 10.0**9
"""
"""Never checkpoint the database's log when nothing comes: what was read stays in it."""

DELETES_EARLY = """
import app.receiving.inbox_store as rows

in_order = rows._progress
rows._progress = lambda connection: (
    lambda found: found._replace(covered=found.position)
)(in_order(connection))
"""
"""Delete rows of the inbox that only the database's log has as read."""
