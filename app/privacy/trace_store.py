"""Looks for bytes in the files of an SQLite database, as a thief of the disk would.

Only for a process that does not have the database open: closing a file drops the locks that SQLite
holds on it (see this folder's README).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.receiving.inbox_file_store import path_of

AT_ONCE: Final = 1024 * 1024
"""Bytes in memory at a time."""


def files_with(path: Path, sought: Sequence[bytes], *, log_only: bool = False) -> list[Path]:
    """Those of the files of the database and of its inbox, with their logs and the logs' indexes,
    that hold one of these bytes. `log_only`: without the database's own file, which may be long."""
    names = ("", "-wal", "-shm", "-journal")
    files = [Path(f"{each}{name}") for each in (path, path_of(path)) for name in names]
    if log_only:
        files.remove(path)
    return [each for each in files if each.exists() and _holds(each, sought)]


def _holds(path: Path, sought: Sequence[bytes]) -> bool:
    longest = max(map(len, sought))
    rest = b""
    with path.open("rb") as file:
        while part := file.read(AT_ONCE):
            window = rest + part
            if any(each in window for each in sought):
                return True
            rest = window[-longest:]
    return False
