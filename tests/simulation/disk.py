"""The disk under SQLite: real files, operations at drawn instants, kills and power cuts.

aiosqlite hands its operations to a thread; here they go to the virtual loop instead. Each takes
a drawn time and then happens at once, so how operations of several connections interleave follows
from the seed. Between any two of them the process can be killed: before an operation, or after it
and before anybody learns that it is done (after a commit and before the acknowledgement, say).

A power cut also drops what was not synced. The model: what `synchronous=FULL` promises is kept
(the log as it was when the last commit returned); of what was written since, a drawn part is there.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import aiosqlite

from tests.simulation.faults import Faults
from tests.simulation.loop import OWNER

_TIDY = frozenset(("close", "close_and_stop", "rollback"))

_IN_MEMORY = frozenset(("cursor", "create_function", "fetchall", "fetchone", "fetchmany"))
"""Operations of the driver that touch no file."""

_WITHOUT_FILE = ("PRAGMA foreign", "PRAGMA busy", "BEGIN")
"""How statements begin that touch none: a transaction takes its snapshot with its first reading."""


FILES = ("t.db", "t.db.inbox")
"""The database and its inbox; each has a log."""

Sizes = dict[str, int]
"""Bytes of each file's log."""


class Kill(Protocol):
    """Ends the process: what of the logs' bytes survives is `kept`; None: all."""

    def __call__(self, how: str, kept: Sizes | None) -> None: ...


class Disk:
    """One process's view of the machine's disk, from its start to its end."""

    def __init__(
        self, folder: Path, *, synced: Sizes, chance: random.Random, faults: Faults, kill: Kill
    ) -> None:
        """synced: how much of the logs that are there would survive a power cut."""
        self.folder = folder
        self.database = folder / "t.db"
        self.dead = False
        self.quiet = False
        self._cut_next = False
        """The power goes while the log is next being written."""
        self.chance = chance
        self._faults = faults
        self._kill = kill
        self.synced = synced
        self._sizes = self._log_sizes()
        self._raw: list[sqlite3.Connection] = []
        self._connections: list[aiosqlite.Connection] = []

    def perform(self, queue: DiskQueue, future: asyncio.Future[Any] | None, act: Act) -> None:
        """One operation, its instant come."""
        name = _name_of(act)
        if self.dead:
            self._after_death(future, name, act)
            return
        fate = "" if self.quiet or name in _TIDY else self._fate()
        if fate == "cut":
            self._cut_next, fate = True, ""
        if fate in ("full", "broken"):
            if name == "commit" and queue.raw is not None:
                queue.raw.rollback()  # as SQLite itself does when a commit fails for such a reason
            _tell(future, None, _storage_error(fate))
            return
        if fate in ("killed before", "cut before"):
            self._end(fate)
            return
        before = self._sizes
        result, error = _outcome(act)
        if isinstance(result, sqlite3.Connection):
            queue.raw = result
            self._raw.append(result)
        after = self._sizes = before if _only_reads(name, act) else self._log_sizes()
        grown = [file for file in FILES if after[file] > before[file]]
        if self._cut_next and grown and not self.quiet:
            cut = {file: self.chance.randint(before[file], after[file]) for file in grown}
            self._kill("power cut in the middle of a commit", self.surviving() | cut)
            return
        self._note_sync(queue, before, after)
        if fate:
            self._end(fate)
            return
        _tell(future, result, error)

    def perform_now(self, future: asyncio.Future[Any] | None, act: Act) -> None:
        """One operation that needs no disk."""
        if self.dead:
            self._after_death(future, _name_of(act), act)
        else:
            _tell(future, *_outcome(act))

    def _after_death(self, future: asyncio.Future[Any] | None, name: str, act: Act) -> None:
        """Tasks of the dead that are being cleared away meet a closed database."""
        if name == "close_and_stop":
            _tell(future, *_outcome(act))
        elif name in _TIDY:
            _tell(future, None, None)
        else:
            _tell(future, None, sqlite3.OperationalError("the process is dead"))

    def used_by(self, connection: aiosqlite.Connection) -> None:
        """Remember a connection: when its process dies it must not be taken for forgotten."""
        self._connections.append(connection)

    def _fate(self) -> str:
        faults, draw = self._faults, self.chance.random()
        for share, fates in (
            (faults.killed, ("killed before", "killed after")),
            (faults.power_cut, ("cut", "cut before", "cut after")),
            (faults.disk_full, ("full",)),
            (faults.disk_broken, ("broken",)),
        ):
            if draw < share:
                return self.chance.choice(fates)
            draw -= share
        return ""

    def _end(self, fate: str) -> None:
        if fate.startswith("killed"):
            self._kill(f"killed {fate.split()[1]} an operation", None)
        else:
            self._kill("power cut", self.surviving())

    def surviving(self) -> Sizes:
        """How much of the logs a power cut leaves: what was synced, and some of the rest."""
        found = {}
        for file, size in self._log_sizes().items():
            synced = min(self.synced.get(file, 0), size)
            found[file] = self.chance.choice((synced, self.chance.randint(synced, size)))
        return found

    def _log_sizes(self) -> Sizes:
        found = dict.fromkeys(FILES, 0)
        for file in FILES:
            with suppress(FileNotFoundError):
                found[file] = os.stat(f"{self.folder}/{file}-wal").st_size
        return found

    def _note_sync(self, queue: DiskQueue, before: Sizes, after: Sizes) -> None:
        for file, size in after.items():
            if size < before[file] or (size > before[file] and queue.syncs_commits()):
                self.synced[file] = size

    def moved(self, folder: Path, kept: Sizes | None) -> None:
        """Copy what survives into the next process's folder, and let go of the files."""
        folder.mkdir()
        for file in FILES:
            path, log = self.folder / file, Path(f"{self.folder}/{file}-wal")
            if path.exists():
                shutil.copyfile(path, folder / file)
            if log.exists():
                there = log.read_bytes()
                survives = there if kept is None else there[: kept[file]]
                (folder / log.name).write_bytes(survives)
        if kept is not None:
            self.synced = kept
        self.dead = True
        for connection in self._connections:
            connection._connection = None
        for raw in self._raw:
            raw.close()


Act = Callable[[], Any]


class DiskQueue:
    """Stands where aiosqlite has the queue to its thread."""

    def __init__(self) -> None:
        owner = OWNER.get()
        assert owner is not None, "a database is opened outside a process"
        self.disk: Disk = owner.disk  # type: ignore[attr-defined]
        self.raw: sqlite3.Connection | None = None
        self._free_at = 0.0

    def syncs_commits(self) -> bool:
        """Whether its connection has just committed, and synced what it committed."""
        raw = self.raw
        if raw is None or raw.in_transaction:
            return False
        return bool(raw.execute("PRAGMA synchronous").fetchone() == (2,))

    def put_nowait(self, item: tuple[asyncio.Future[Any] | None, Act]) -> None:
        """One operation for the disk, after those before it."""
        loop, chance = asyncio.get_running_loop(), self.disk.chance
        if loop.time() >= self._free_at and _costs_nothing(item[1]):
            self.disk.perform_now(item[0], item[1])
            return
        takes = chance.uniform(0.00002, 0.0004) if chance.random() < 0.97 else chance.uniform(0, 2)
        self._free_at = max(loop.time() + takes, self._free_at + 0.000001)
        loop.call_at(self._free_at, self.disk.perform, self, *item)


_connect = aiosqlite.Connection._connect


async def connecting(connection: aiosqlite.Connection) -> aiosqlite.Connection:
    """Stands where aiosqlite connects."""
    owner = OWNER.get()
    owner.disk.used_by(connection)  # type: ignore[union-attr]
    return await _connect(connection)


class NoThread:
    """Stands where aiosqlite has its thread."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        """There is nothing to start."""


def _costs_nothing(act: Any) -> bool:
    """Whether the disk takes no part in it, so that it can neither wait nor be interrupted."""
    name, target = _name_of(act), getattr(getattr(act, "func", None), "__self__", None)
    if name in _IN_MEMORY:
        return True
    if name == "execute":
        sql = str(act.args[0])
        return sql.startswith(_WITHOUT_FILE) and not sql.endswith("IMMEDIATE")
    if not isinstance(target, sqlite3.Connection):
        return name == "close"
    return name == "rollback" and not target.in_transaction


def _only_reads(name: str, act: Any) -> bool:
    """Whether it leaves the log as it is, as most operations do: the log need not be looked at."""
    return name == "rollback" or (name == "execute" and str(act.args[0]).startswith("SELECT"))


def _name_of(act: Any) -> str:
    return getattr(getattr(act, "func", act), "__name__", "")


def _outcome(act: Act) -> tuple[Any, BaseException | None]:
    try:
        return act(), None
    except Exception as error:
        return None, error


def _tell(future: asyncio.Future[Any] | None, result: Any, error: BaseException | None) -> None:
    if future is None or future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _storage_error(fate: str) -> sqlite3.OperationalError:
    code = sqlite3.SQLITE_FULL if fate == "full" else sqlite3.SQLITE_IOERR
    error = sqlite3.OperationalError("planted: " + fate)
    error.sqlite_errorcode = code
    return error
