"""Files that are made whole or not at all; small ones for their owner alone, refused where others
may use them: the keys that are made here, and the journal of erasures.

Leaves out: what is in them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from app.core.errors import ConfigurationError

MODE: Final = 0o600
_OTHERS: Final = 0o007


Owner = tuple[int, int]
"""The numbers of a user and a group."""


def write_new(path: Path, content: bytes, *, owner: Owner | None = None) -> None:
    """Make a file where nothing is yet. It has its name only when it is whole and on the disk.

    owner  whose it is to be where root makes it; None: whoever makes it

    Raises FileExistsError where there is one by now: it is not replaced. OSError where it cannot be
    written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:  # not the file itself, but something in its folder's place
        raise NotADirectoryError(error.errno, os.strerror(errno.ENOTDIR)) from error
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = _made_anew(beside, MODE)
    try:
        write_all(descriptor, content)
        if owner is not None and os.geteuid() == 0:
            os.fchown(descriptor, *owner)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(beside, path)  # refuses to replace, which a rename does not
    finally:
        os.unlink(beside)
    sync_folder(path.parent)


_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def _made_anew(path: Path, mode: int) -> int:
    """A file of nobody else's: what has this name was left behind by one that was cut short, or
    laid there by somebody who would then own, and read, what is written into it."""
    path.unlink(missing_ok=True)
    return os.open(path, _NEW, mode)


@contextmanager
def replacing(
    path: Path, *, part: Path, mode: int = MODE, exclusive: bool = False
) -> Iterator[IO[bytes]]:
    """What to write into. It has this name, in place of what had it, when the block has ended and
    all is on the disk; where the block fails, nothing is changed.

    part       what it is called until then, in the same folder
    exclusive  whether a part that is there already is another's, and raises FileExistsError

    Raises OSError where it cannot be written.
    """
    descriptor = os.open(part, _NEW, mode) if exclusive else _made_anew(part, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(part, path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything: one call may write a part only."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(path: Path, *, variable: str, what: str, most: int) -> bytes | None:
    """What a file holds, up to one byte more than `most`; None where there is no file.

    variable  the setting that names it, with which an error begins
    what      what it is, such as `a key`

    Raises ConfigurationError where it cannot be read, or everyone may use it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        user = isinstance(error, PermissionError)
        do = "; run this as the user of the service, or let this user read it" if user else ""
        raise ConfigurationError([f"{variable}: cannot be read ({error.strerror}){do}"]) from error
    if mode & _OTHERS:
        raise ConfigurationError(
            [f"{variable}: names {what} that everyone may use (mode {mode:o}); chmod 600 it"]
        )
    return content
