"""Versions of the schema; and a process that is killed while it brings an SQLite database up to
date."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import event

from app.core.errors import ConfigurationError
from app.database import schema
from app.receiving.inbox import Inbox, open_inbox
from tests.contexts import settings_of
from tests.database.contract_upgrading import before_each_statement
from tests.database.made import put_new


def test_the_versions_are_those_of_the_migrations() -> None:
    scripts = ScriptDirectory(schema.MIGRATIONS)
    found = [each.revision for each in scripts.walk_revisions()]
    assert (*reversed(found),) == schema.VERSIONS
    assert scripts.get_current_head() == schema.NEWEST


async def test_a_folding_process_upgrades_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer program put in place under a running service would start it."""
    path = tmp_path / "t.db"
    put_new(path)
    monkeypatch.setattr(schema, "NEWEST", "9.0.0")
    settings = settings_of(path)
    due = r"at version 0\.1\.0, .* needs 9\.0\.0; run `tallyhook db upgrade`"
    with pytest.raises(ConfigurationError, match=due):
        async with open_inbox(settings, purpose="folding"):
            pass


@pytest.mark.parametrize("spill", [False, True])
async def test_a_kill_before_any_statement_of_an_upgrade(tmp_path: Path, spill: bool) -> None:
    """Nothing is there afterwards, though half of the tables may be in the log, and the next start
    brings the database up to date.

    spill  write every changed page into the log at once, as an upgrade of many rows does
    """
    now, found = tmp_path / "now", list[Path]()
    now.mkdir()

    def keep(name: object, *_: object) -> None:
        # By another process: to close the file in this one would drop the locks held on it.
        subprocess.run(["cp", "-r", str(now), str(tmp_path / str(name))], check=True)
        found.append(tmp_path / str(name) / "t.db")

    inbox = open_at(now / "t.db")
    (now / "t.db").touch()
    try:
        async with inbox.database.writer.transaction() as connection:
            for pragma in ("cache_size=1", "cache_spill=1") if spill else ():
                await connection.exec_driver_sql(f"PRAGMA {pragma}")
        event.listen(inbox.database.writer._engine.sync_engine, "commit", lambda _: keep("commit"))
        with before_each_statement(inbox, keep):
            assert await inbox.database.upgrade() == (None, schema.NEWEST)
    finally:
        await inbox.close()
    logs = [path.with_name("t.db-wal").stat().st_size for path in found]
    assert (logs[-1] > logs[0]) == spill
    assert len(found) > 100
    for path in found:
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == []
    inbox = open_at(found[-1])
    try:
        assert await inbox.database.upgrade() == (None, schema.NEWEST)
    finally:
        await inbox.close()


def open_at(path: Path) -> Inbox:
    """Return an inbox whose database has not been brought up to date."""
    return Inbox(settings_of(path), purpose="upgrading")
