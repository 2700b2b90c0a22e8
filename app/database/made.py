"""That there is a database: a small file beside it, which says its id.

Who starts a service on a path where a database was, and is not, must not be given a new one in its
place: the shop's money would be unknown to it. So a database is only made where no such file is,
and one that is another than the file says is not opened. `tallyhook db create --new` starts over.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from app.core.errors import ConfigurationError
from app.core.ids import new_id
from app.database.statements import PlainConnection

SUFFIX: Final = ".made"
"""What its name has beyond the database's."""

_IDENTITY: Final = "id"
"""The fact that says the database's own id."""


def identity_of(connection: PlainConnection) -> str:
    """The database's id; one of an earlier version is given one."""
    rows = connection.ask("SELECT value FROM meta WHERE name=?", (_IDENTITY,))
    if rows:
        return str(rows[0][0])
    identity = new_id("db_", 0)
    connection.ask("INSERT INTO meta (name, value) VALUES (?, ?)", (_IDENTITY, identity))
    return identity


class Made:
    """The file beside one database."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.path = database.with_name(database.name + SUFFIX)

    def check_there(self) -> None:
        """Raises ConfigurationError where there is none though there was one."""
        if self._is_missing() and self.path.exists():
            raise _refused(
                f"the database {self._database} is gone, and {self.path.name} says that there was "
                "one; put it back, or `tallyhook restore` a backup; only to start over with an "
                "empty one: `tallyhook db create --new`"
            )

    def _is_missing(self) -> bool:
        # An empty file is what a start leaves that was cut short, or a program that only looked.
        return not self._database.exists() or not self._database.stat().st_size

    def note(self, identity: str) -> None:
        """From now on there is this database. Raises ConfigurationError where there was another."""
        if self.path.exists():
            found = self.path.read_text(encoding="ascii", errors="replace").strip()
            if found not in ("", identity):
                raise _refused(
                    f"{self._database} is another database than the one that was here, says "
                    f"{self.path.name}; put the right one back, or `tallyhook restore` this one; "
                    f"if it is meant, delete {self.path}"
                )
            if found:
                return
        part = self.path.with_name(self.path.name + ".part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{identity}\n".encode("ascii"))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def forget(self) -> None:
        """Whatever is put here next is meant."""
        self.path.unlink(missing_ok=True)


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError([f"TALLYHOOK_DATABASE_URL: {why}"])
