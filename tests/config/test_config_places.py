"""Places for a database: allowed file systems, and the check that it took its settings."""

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.config.database_place import filesystem_kind
from app.config.load import load_settings
from app.core.errors import ConfigurationError
from app.database.engine import _check_durable
from tests.config.test_config import SECRET
from tests.contexts import RETAINED

TABLE = r"""
/dev/vda / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
server:/export /srv/shared nfs4 rw 0 0
//server/share /srv/with\040blank cifs rw 0 0
sshfs /srv/ssh fuse.sshfs rw 0 0
overlay /srv/mine fuse.fuse-overlayfs rw 0 0
/dev/vdb /srv/shared/local xfs rw 0 0
tmpfs /twice tmpfs rw 0 0
/dev/vdc /twice ext4 rw 0 0
nonsense
"""

PLACES = [
    ("/var/lib/t.db", "ext4", True, ""),
    ("/run/t.db", "tmpfs", True, "which loses its files at a restart"),
    ("/run/t.db", "tmpfs", False, ""),
    ("/srv/shared/t.db", "nfs4", True, "where file locks do not work"),
    ("/srv/shared/t.db", "nfs4", False, "where file locks do not work"),
    ("/srv/shared/local/t.db", "xfs", True, ""),
    ("/srv/sharedness/t.db", "ext4", True, ""),
    ("/srv/with blank/t.db", "cifs", True, "where file locks do not work"),
    ("/srv/ssh/t.db", "fuse.sshfs", False, "where file locks do not work"),
    ("/srv/mine/t.db", "fuse.fuse-overlayfs", True, "which may lose written data in a crash"),
    ("/srv/mine/t.db", "fuse.fuse-overlayfs", False, ""),
    ("/twice/t.db", "ext4", True, ""),
]


@pytest.mark.parametrize(("path", "kind", "live", "sentence"), PLACES)
def test_the_file_system_of_a_database(
    path: str,
    kind: str,
    live: bool,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shared ones are refused everywhere; those that may lose data in live."""
    assert filesystem_kind(Path(path), TABLE) == kind
    (tmp_path / "mounts").write_text(TABLE)
    monkeypatch.setattr("app.config.database_place.MOUNTS", tmp_path / "mounts")
    variables = {
        **RETAINED,
        "TALLYHOOK_ENVIRONMENT": "live" if live else "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{path}",
        "TALLYHOOK_SOURCES__SHOP__SECRETS": SECRET,
    }
    try:
        load_settings(variables, serving=True)
        problems: tuple[str, ...] = ()
    except ConfigurationError as error:
        problems = error.problems
    wanted = [f"TALLYHOOK_DATABASE_URL: is on {kind}, {sentence}; use a local disk"]
    assert list(problems) == (wanted if sentence else [])


@pytest.mark.parametrize(
    "pragma",
    ["journal_mode=DELETE", "journal_mode=MEMORY", "synchronous=NORMAL", "synchronous=OFF"],
)
def test_a_database_that_does_not_take_its_settings(pragma: str, tmp_path: Path) -> None:
    """The value that is read back decides."""
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as connection:
        plain: Any = SimpleNamespace(ask=lambda sql: connection.execute(sql).fetchall())
        for asked in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {asked}")
        _check_durable(plain)
        connection.execute(f"PRAGMA {pragma}")
        with pytest.raises(ConfigurationError, match=r"TALLYHOOK_DATABASE_URL: .*use a local disk"):
            _check_durable(plain)


def test_two_databases_that_are_named_are_warned_of(tmp_path: Path) -> None:
    """For example, the systemd unit names one and the file another."""
    config = tmp_path / "t.env"
    config.write_text("TALLYHOOK_DATABASE_URL=postgresql+asyncpg://u@db/t\n")
    given = {"TALLYHOOK_ENVIRONMENT": "sandbox", "TALLYHOOK_CONFIG": str(config)}
    assert load_settings(given).warnings == ()
    given["TALLYHOOK_DATABASE_URL"] = "postgresql+asyncpg://u@db/t"
    assert load_settings(given).warnings == ()
    given["TALLYHOOK_DATABASE_URL"] = "sqlite+aiosqlite:////var/lib/t/t.db"
    (warning,) = load_settings(given).warnings
    assert warning.startswith("TALLYHOOK_DATABASE_URL: has a different value in the environment")
    config.write_text("TALLYHOOK_DATABASE_URL=\n")
    assert load_settings(given).warnings == ()
