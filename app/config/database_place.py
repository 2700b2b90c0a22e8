"""Where the database lies: on which file system, in which folder, and who may use it."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.config.database_url import sqlite_file
from app.config.reading import PREFIX, SettingsReading
from app.config.settings import Settings

VARIABLE: Final = PREFIX + "DATABASE_URL"

MOUNTS = Path("/proc/self/mounts")
"""The kernel's table of mounts (proc(5), fstab(5)); not there on other systems than Linux."""

NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ceph", "coda", "lustre",
     "beegfs", "gpfs", "gfs2", "glusterfs", "ncpfs", "ocfs2", "orangefs", "pvfs2", "davfs"}
)  # fmt: skip
"""Shared by several machines: the locks that SQLite's log needs do not hold there, and a second
service would not see the first (https://www.sqlite.org/wal.html)."""

MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""Gone with the next restart of the machine."""

FOREIGN: Final = frozenset({"fuse", "fuseblk", "9p"})
"""Served by a program, which decides by itself what a sync means."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def filesystem_kind(path: Path, table: str) -> str:
    """The kind of file system a path lies on, whether or not it exists yet; "" if unknown.

    table  lines as in /proc/self/mounts: device, mount point, kind, …; the last of several counts
    """
    place, found, longest = path.absolute(), "", -1
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if place.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = fields[2], len(point.parts)
    return found


def _is_a_file(path: Path, reading: SettingsReading) -> None:
    try:
        other = path.exists() and not path.is_file()
    except OSError as error:
        reading.problem(
            VARIABLE,
            f"names a file that this user may not look at ({error.strerror}); run this as the user "
            "of the service, or let this user write there",
        )
        return
    if other:
        reading.problem(VARIABLE, "names something that is no file; write the path of one")


def _is_on_a_disk(path: Path, reading: SettingsReading) -> None:
    try:
        kind = filesystem_kind(path.resolve(), MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return  # another system, or a closed /proc: nothing can be said
    family = kind.partition(".")[0]
    if family in NETWORK or kind.partition(".")[2] in NETWORK | {"sshfs", "s3fs"}:
        reading.problem(VARIABLE, f"lies on {kind}, where locks do not hold; use a local disk")
    elif reading.live and family in FOREIGN:
        reading.problem(VARIABLE, f"lies on {kind}, where a sync may be none; use a local disk")
    elif reading.live and kind in MEMORY:
        reading.problem(VARIABLE, f"lies on {kind}, which a restart empties; use a local disk")


def _is_private(path: Path, reading: SettingsReading) -> None:
    for name in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        mode = _mode(name)
        if mode & 0o007:
            reading.only_in_sandbox(
                VARIABLE, f"names a database that everyone may use (mode {mode:o}); chmod 600 it"
            )
            return


def _is_in_a_safe_folder(path: Path, reading: SettingsReading) -> None:
    mode = _mode(path.parent)
    if mode & 0o022:
        reading.only_in_sandbox(
            VARIABLE,
            f"names a database in a folder that others may write to (mode {mode:o});"
            " chmod go-w it, or use a folder of its own",
        )


def _mode(path: Path) -> int:
    """The permission bits; none of something that is not there."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError):
        return 0


_OF_A_FILE: Final[tuple[Callable[[Path, SettingsReading], None], ...]] = (
    _is_a_file,
    _is_on_a_disk,
    _is_private,
    _is_in_a_safe_folder,
)


def database_lies_well(settings: Settings, reading: SettingsReading) -> None:
    """Every check of the place, for a process that serves from a file of SQLite."""
    path = sqlite_file(settings.database_url)
    if not reading.serving or path is None:
        return
    for check in _OF_A_FILE:
        if VARIABLE not in reading.problems:
            check(path, reading)
