"""The disk under SQLite: real files, operations at drawn instants, kills and power cuts.

aiosqlite hands its operations to a thread; here they go to the virtual loop instead. Each takes a
drawn time and then happens at once, so the seed determines how connections interleave. The process
can be killed before an operation, or after it and before anybody learns of it (after a commit and
before the acknowledgement, for example).

A power cut also drops unsynced data: the log as of the last commit is kept, as `synchronous=FULL`
promises, and a drawn part of what was written since.
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
"""Beginnings of statements that touch none: a transaction takes its snapshot at its first read."""

FILES = ("t.db", "t.db.inbox")
"""The database and its inbox; each has a log."""

Sizes = dict[str, int]
"""Bytes of each file's log."""


class Kill(Protocol):
    """A way to end the process; `kept`: bytes of the logs that survive; None: all."""

    def __call__(self, how: str, kept: Sizes | None) -> None: ...


class Disk:
    """One process's view of the machine's disk, from its start to its end."""

    def __init__(
        self, folder: Path, *, synced: Sizes, chance: random.Random, faults: Faults, kill: Kill
    ) -> None:
        """Begin with `synced` bytes of the existing logs that would survive a power cut."""
        self.folder = folder
        self.database = folder / "t.db"
        self.dead = False
        self.quiet = False
        self._cut_next = False
        """True if the power fails at the next write of the log."""
        self.chance = chance
        self._faults = faults
        self._kill = kill
        self.synced = synced
        self._sizes = self._log_sizes()
        self._raw: list[sqlite3.Connection] = []
        self._connections: list[aiosqlite.Connection] = []

    def perform(self, queue: DiskQueue, future: asyncio.Future[Any] | None, act: Act) -> None:
        """Do one operation at its instant, or let it fail."""
        name = _name_of(act)
        if self.dead:
            self._after_death(future, name, act)
            return
        fate = "" if self.quiet or name in _TIDY else self._faults.of_disk(self.chance)
        if fate == "cut":
            self._cut_next, fate = True, ""
        if fate in ("full", "broken"):
            if name == "commit" and queue.raw is not None:
                queue.raw.rollback()  # as SQLite itself does when a commit fails for such a reason
            error = sqlite3.OperationalError("planted: " + fate)
            full = fate == "full"
            error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
            _tell(future, None, error)
            return
        if fate in ("killed before", "cut before"):
            self._end(fate)
            return
        before = self._sizes
        result, failed = _outcome(act)
        if isinstance(result, sqlite3.Connection):
            queue.raw = result
            self._raw.append(result)
        reads = name == "execute" and str(getattr(act, "args", "")[0]).startswith("SELECT")
        after = self._sizes = before if reads or name == "rollback" else self._log_sizes()
        grown = [file for file in FILES if after[file] > before[file]]
        if self._cut_next and grown and not self.quiet:
            cut = {file: self.chance.randint(before[file], after[file]) for file in grown}
            self._kill("power cut in the middle of a commit", self.surviving() | cut)
            return
        for file, size in after.items():
            if size < before[file] or (size > before[file] and queue.syncs_commits()):
                self.synced[file] = size
        if fate:
            self._end(fate)
            return
        _tell(future, result, failed)

    def perform_now(self, future: asyncio.Future[Any] | None, act: Act) -> None:
        """Do one operation that needs no disk."""
        if self.dead:
            self._after_death(future, _name_of(act), act)
        else:
            _tell(future, *_outcome(act))

    def _after_death(self, future: asyncio.Future[Any] | None, name: str, act: Act) -> None:
        """Let a dead process's tasks meet a closed database."""
        if name == "close_and_stop":
            _tell(future, *_outcome(act))
        elif name in _TIDY:
            _tell(future, None, None)
        else:
            _tell(future, None, sqlite3.OperationalError("the process is dead"))

    def used_by(self, connection: aiosqlite.Connection) -> None:
        """Remember a connection, so that it does not warn when its process dies."""
        self._connections.append(connection)

    def _end(self, fate: str) -> None:
        if fate.startswith("killed"):
            self._kill(f"killed {fate.split()[1]} an operation", None)
        else:
            self._kill("power cut", self.surviving())

    def surviving(self) -> Sizes:
        """Return the bytes of the logs that a power cut leaves: the synced, and some others."""
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

    def moved(self, folder: Path, kept: Sizes | None) -> None:
        """Copy what survives into the next process's folder, and close the files."""
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
    """The queue of operations, in place of aiosqlite's queue to its thread."""

    def __init__(self) -> None:
        owner = OWNER.get()
        assert owner is not None, "a database is opened outside a process"
        self.disk: Disk = owner.disk  # type: ignore[attr-defined]
        self.raw: sqlite3.Connection | None = None
        self._free_at = 0.0

    def syncs_commits(self) -> bool:
        """Return whether its connection has just committed and synced."""
        raw = self.raw
        if raw is None or raw.in_transaction:
            return False
        return bool(raw.execute("PRAGMA synchronous").fetchone() == (2,))

    def put_nowait(self, item: tuple[asyncio.Future[Any] | None, Act]) -> None:
        """Queue one operation for the disk."""
        loop, chance = asyncio.get_running_loop(), self.disk.chance
        if loop.time() >= self._free_at and _costs_nothing(item[1]):
            self.disk.perform_now(item[0], item[1])
            return
        takes = chance.uniform(0.00002, 0.0004) if chance.random() < 0.97 else chance.uniform(0, 2)
        self._free_at = max(loop.time() + takes, self._free_at + 0.000001)
        loop.call_at(self._free_at, self.disk.perform, self, *item)


_connect = aiosqlite.Connection._connect


async def connecting(connection: aiosqlite.Connection) -> aiosqlite.Connection:
    """Connect as aiosqlite does, in the owner's name."""
    owner = OWNER.get()
    owner.disk.used_by(connection)  # type: ignore[union-attr]
    return await _connect(connection)


class NoThread:
    """A replacement of aiosqlite's thread that does nothing."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        pass


def _costs_nothing(act: Any) -> bool:
    """Return whether an operation needs no disk, so that nothing can interrupt it."""
    name, target = _name_of(act), getattr(getattr(act, "func", None), "__self__", None)
    if name in _IN_MEMORY:
        return True
    if name == "execute":
        sql = str(act.args[0])
        return sql.startswith(_WITHOUT_FILE) and not sql.endswith("IMMEDIATE")
    if not isinstance(target, sqlite3.Connection):
        return name == "close"
    return name == "rollback" and not target.in_transaction


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
