"""Whether an SQLite database still lies where it was opened: SQLite goes on writing into a file
that was deleted or replaced, and reports success for what nobody will ever read."""

from __future__ import annotations

from pathlib import Path

_Identity = tuple[int, int] | None


def _identity(path: Path) -> _Identity:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Place:
    """The database file, its write-ahead log and the log's index, by device and inode. Where the
    index is gone, another process would make one of its own, and the two would write over each
    other's pages."""

    def __init__(self, database: Path) -> None:
        self._paths = tuple(Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm"))
        self._opened: dict[Path, _Identity] = {}

    def note(self) -> None:
        """Remember the files as they are now, just after they were opened."""
        self._opened = {path: _identity(path) for path in self._paths}

    def loss(self) -> str | None:
        """What is no longer there, one sentence; None while both files are the opened ones."""
        for path in self._paths:
            found = _identity(path)
            # The log of a new file comes with its first write.
            opened = self._opened[path] = self._opened[path] or found
            if found is None or found != opened:
                what = "is gone" if found is None else "was replaced"
                return (
                    f"{path} {what} while the service was running; nothing more is acknowledged: "
                    "put the file back, or restore a backup with tallyhook restore, then start"
                )
        return None
