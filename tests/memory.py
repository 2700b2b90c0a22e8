"""Choose where tests keep files: in memory, unless the disk itself is tested.

A commit waits for the disk, and thousands of tests commit. The tests of disks are `tests/faults`,
the kills of a PostgreSQL server and the benches; their files are on a disk.
"""

import shutil
from functools import cache
from pathlib import Path

MEMORY = Path("/dev/shm")
"""A file system in memory, on Linux."""

ROOM = 4 * 1024**3
"""Bytes that must be free there: far more than the tests of one run hold at a time."""


@cache
def memory() -> Path | None:
    """Return a folder in memory for temporary files; None if there is none with enough room."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    return MEMORY if has_room else None
