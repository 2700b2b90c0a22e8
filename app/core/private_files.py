"""Write files completely or not at all, handle private files such as keys, and lock folders."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from app.core.errors import ConfigurationError

MODE: Final = 0o600
_OTHERS: Final = 0o007


def lock_folder(folder: Path) -> int | None:
    """Lock a folder until the returned descriptor is closed. Return None if another process holds
    the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise  # some network file systems have no locks
    return descriptor


Owner = tuple[int, int]
"""User id and group id of a file's owner."""


def write_new(path: Path, content: bytes, *, owner: Owner | None = None) -> None:
    """Create a file, which gets its name only when its content is on the disk.

    owner  owner of the file if root creates it

    Raises FileExistsError if the file exists, and OSError if it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:  # its folder's path is not a folder
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
        os.link(beside, path)  # unlike a rename it never replaces
    finally:
        os.unlink(beside)
    sync_folder(path.parent)


_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def _made_anew(path: Path, mode: int) -> int:
    """Open a new file after deleting any file of this name, which could belong to another user."""
    path.unlink(missing_ok=True)
    return os.open(path, _NEW, mode)


@contextmanager
def replacing(
    path: Path, *, part: Path, mode: int = MODE, exclusive: bool = False
) -> Iterator[IO[bytes]]:
    """Yield a temporary file. When the block ends, the file is synced and replaces `path`.

    If the block fails, `path` is not changed.

    part       path of the temporary file, in the same folder
    exclusive  whether an existing temporary file raises FileExistsError

    Raises OSError if the file cannot be written.
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
    """Write all bytes to a descriptor, with several system calls if necessary."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that new file names in the folder survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(path: Path, *, variable: str, what: str, most: int) -> bytes | None:
    """Return the content of a private file. Return None if the file does not exist.

    variable  setting that names the file, for messages
    what      description of the file, such as `a key`
    most      maximum bytes; one more is read, so that the caller detects a longer file

    Raises ConfigurationError if the file cannot be read, or if other users can access it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        user = isinstance(error, PermissionError)
        do = "; run this as the service's user, or give this user read access" if user else ""
        raise ConfigurationError([f"{variable}: cannot be read ({error.strerror}){do}"]) from error
    if mode & _OTHERS:
        raise ConfigurationError(
            [f"{variable}: names {what} that any user can access (mode {mode:o}); chmod 600 it"]
        )
    return content
