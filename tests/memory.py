"""Where the files of tests lie: in memory, where nothing that is tested is the disk.

A commit waits for the disk, and thousands of tests commit. What a disk does is for `tests/faults`,
the kills of a PostgreSQL server and the benches, whose files are on one.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

MEMORY = Path("/dev/shm")
"""A file system that no commit waits for, on Linux."""

ROOM = 4 * 1024**3
"""Bytes that must be free there: the tests of a run of the suite hold far less at once."""


@cache
def memory() -> Path | None:
    """The folder for temporary files that need no disk; None where there is none that has room."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    return MEMORY if has_room else None
