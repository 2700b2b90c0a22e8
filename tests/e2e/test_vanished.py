"""A database file that is gone, or another one: no start makes a new database in its place."""

import sqlite3
from contextlib import closing
from pathlib import Path

from app.core.clock import SystemClock
from tests.e2e.processes import command, running, serving
from tests.faults.load import deliver

CONFIGURATION = 3


def test_a_database_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """Until somebody says that it is meant; what lay in the inbox is then read."""
    now = SystemClock().now()
    with serving(tmp_path) as process:
        process.send({"id": "unreadable"}, at=now)
    (tmp_path / "t.db").unlink()
    refused = command(tmp_path, "serve", "--port", "0")
    assert refused.returncode == CONFIGURATION
    assert b"t.db.made shows that it existed" in refused.stderr
    assert b"tallyhook db create --new" in refused.stderr
    assert not (tmp_path / "t.db").exists()
    assert command(tmp_path, "db", "create").returncode == CONFIGURATION
    made = command(tmp_path, "db", "create", "--new")
    assert (made.returncode, b"new, empty database" in made.stderr) == (0, True)
    assert command(tmp_path, "db", "create", "--new").returncode == 2
    with running(tmp_path, "serve", "--port", "0") as process:
        assert deliver(process.port, "again")[0].status == 200


def test_another_database_in_its_place_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute("UPDATE meta SET value='db_other' WHERE name='id'")
    refused = command(tmp_path, "serve", "--port", "0")
    assert refused.returncode == CONFIGURATION
    assert b"is not the database that" in refused.stderr


def test_two_names_of_one_database_are_one_database(tmp_path: Path) -> None:
    """A link to it leads to the same locks."""
    with serving(tmp_path):
        link = tmp_path / "link.db"
        link.symlink_to(tmp_path / "t.db")
        url = {"DATABASE_URL": f"sqlite+aiosqlite:///{link}"}
        second = command(tmp_path, "serve", "--port", "0", **url)
        assert second.returncode == CONFIGURATION
        assert b"another process already serves" in second.stderr
    assert list(tmp_path.glob("link.db*")) == [tmp_path / "link.db"]
