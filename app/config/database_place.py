"""Check where the database file lies: its file system, its folder, and who can access the file."""

import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.config.config_file import PREFIX, SettingsReading
from app.config.database_url import sqlite_file
from app.config.settings import Settings

VARIABLE: Final = PREFIX + "DATABASE_URL"

MOUNTS = Path("/proc/self/mounts")
"""Path of the kernel's table of mounts (proc(5), fstab(5)). The table exists only on Linux."""

NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ceph", "coda", "lustre",
     "beegfs", "gpfs", "gfs2", "glusterfs", "ncpfs", "ocfs2", "orangefs", "pvfs2", "davfs"}
)  # fmt: skip
"""Network file systems, on which SQLite's locks fail (https://www.sqlite.org/wal.html)."""

MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""File systems in memory, which lose their content when the machine restarts."""

FOREIGN: Final = frozenset({"fuse", "fuseblk", "9p"})
"""File systems that a program serves. Such a program may ignore requests to write data to disk."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def filesystem_kind(path: Path, table: str) -> str:
    """Return the kind of file system on which a path lies, or "" if unknown.

    table  lines of /proc/self/mounts; the last line of a mount point counts
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
            f"names a file that this user may not access ({error.strerror}); run this as the "
            "service's user, or give this user access",
        )
        return
    if other:
        reading.problem(VARIABLE, "names a folder or a device; write the path of a file")


def _is_on_a_disk(path: Path, reading: SettingsReading) -> None:
    try:
        kind = filesystem_kind(path.resolve(), MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return  # another system, or /proc is closed
    family = kind.partition(".")[0]
    if family in NETWORK or kind.partition(".")[2] in NETWORK | {"sshfs", "s3fs"}:
        reading.problem(VARIABLE, f"is on {kind}, where file locks do not work; use a local disk")
    elif reading.live and family in FOREIGN:
        reading.problem(
            VARIABLE, f"is on {kind}, which may lose written data in a crash; use a local disk"
        )
    elif reading.live and kind in MEMORY:
        reading.problem(
            VARIABLE, f"is on {kind}, which loses its files at a restart; use a local disk"
        )


def _is_private(path: Path, reading: SettingsReading) -> None:
    modes = [0, 0, 0, 0]  # for missing files
    for place, name in enumerate((str(path), f"{path}-wal", f"{path}-shm", str(path.parent))):
        with suppress(OSError, ValueError):
            modes[place] = stat.S_IMODE(Path(name).stat().st_mode)
    *files, folder = modes
    if mode := next((mode for mode in files if mode & 0o007), 0):
        reading.only_in_sandbox(
            VARIABLE, f"names a database that any user can access (mode {mode:o}); chmod 600 it"
        )
    if folder & 0o022 and VARIABLE not in reading.problems:
        reading.only_in_sandbox(
            VARIABLE,
            f"names a database in a folder that other users can write to (mode {folder:o}); chmod "
            "go-w it, or use a folder of its own",
        )


_OF_A_FILE: Final[tuple[Callable[[Path, SettingsReading], None], ...]] = (
    _is_a_file,
    _is_on_a_disk,
    _is_private,
)


def database_lies_well(settings: Settings, reading: SettingsReading) -> None:
    """Report problems with the location of the SQLite file. A process that serves no webhooks
    reports none."""
    path = sqlite_file(settings.database_url)
    if not reading.serving or path is None:
        return
    for check in _OF_A_FILE:
        if VARIABLE not in reading.problems:
            check(path, reading)
