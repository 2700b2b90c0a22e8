"""Commands of a newer version beside a service of the older one: none but two changes a schema."""

import asyncio
import os
import sqlite3
from contextlib import closing, nullcontext
from functools import cache
from pathlib import Path
from shutil import copytree

import pytest

from app.core.clock import SystemClock
from app.database import schema
from app.orders.published_store import AHEAD
from app.privacy.gap import accept_found
from app.receiving.inbox_file_store import path_of
from tests.cli.test_commands import Run, run
from tests.console.test_reader_stopped import COMMANDS, WORDS, needed_by
from tests.contexts import ACCEPTED, settings_of
from tests.database.made import put_new
from tests.e2e.processes import serving

__all__ = ["run"]

NEWER = "0.2.0"

MIGRATION = '''"""Add a table that only this test has."""

import sqlalchemy
from alembic import op

revision = "{newer}"
down_revision = "{older}"


def upgrade() -> None:
    op.create_table("of_a_test", sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
'''

UPGRADING = {"db upgrade", "serve"}
"""Commands that may change a schema."""

LASTING = {"console", "demo", "listen", "sandbox", "trigger", "worker"}
"""Commands that serve until they are ended, or need a service."""


def version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def number_before(path: Path) -> int:
    """Return the number before the next one that is published."""
    with closing(sqlite3.connect(path)) as connection:
        (value,) = connection.execute("SELECT value FROM counters WHERE name = 'revisions'")
        return int(value[0])


@pytest.fixture
def older(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an older database, and a program with one more migration."""
    path, migrations = tmp_path / "t.db", tmp_path / "migrations"
    (tmp_path / "book.csv").write_text("reference,amount,currency\nORD-1,1500.00,KES\n")
    assert run("records", "import", str(tmp_path / "book.csv")).code == 0
    copytree(schema.MIGRATIONS, migrations)
    text = MIGRATION.format(newer=NEWER, older=schema.NEWEST)
    (migrations / "versions" / "newer.py").write_text(text)
    monkeypatch.setattr(schema, "MIGRATIONS", migrations)
    monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, NEWER))
    monkeypatch.setattr(schema, "NEWEST", NEWER)
    made = cache(schema._made_on_sqlite.__wrapped__)  # of these migrations
    monkeypatch.setattr(schema, "_made_on_sqlite", made)
    return path


@pytest.mark.parametrize("served", [True, pytest.param(False, marks=pytest.mark.costly)])
def test_no_other_command_changes_the_schema(
    run: Run, tmp_path: Path, older: Path, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    """It holds while an older build serves the database, and while none does."""
    before, codes = version(older), dict[str, int]()
    monkeypatch.chdir(tmp_path)
    for each in ("given.csv", "given.txt", "given.toml"):
        (tmp_path / each).write_text("")
    url = os.environ["TALLYHOOK_DATABASE_URL"]
    with serving(tmp_path, DATABASE_URL=url) if served else nullcontext() as service:
        for name in sorted(COMMANDS.keys() - UPGRADING - LASTING):
            words = WORDS.get(name, needed_by(COMMANDS[name]))
            codes[name] = run(*name.split(), *words).code
            assert version(older) == before, name
        if service is not None:
            assert run("db", "upgrade").code == 3
            assert run("serve", "--port", "0").code == 3
            assert version(older) == before
            assert service.get("/readyz")["status"] == "ready"
            assert service.end() == 0
    assert sum(code == 3 for code in codes.values()) > len(codes) / 2, codes
    assert run("db", "upgrade").code == 0
    assert version(older) == NEWER


def test_an_upgrade_hides_no_lost_commit(run: Run, tmp_path: Path, older: Path) -> None:
    """It is refused before anything is migrated; who accepts the gap upgrades as well. Numbers have
    then risen, even where `db restored` comes no further."""
    before, inbox = version(older), path_of(older)
    put_new(inbox)
    with closing(sqlite3.connect(older)) as database, closing(sqlite3.connect(inbox)) as file:
        database.execute("INSERT INTO meta (name, value) VALUES ('inbox', 'inbox_1')")
        file.execute("INSERT INTO meta (name, value) VALUES ('inbox', 'inbox_1')")
        file.execute("UPDATE counters SET value = ? WHERE name = 'last commit'", (2**60,))
        database.commit()
        file.commit()
    copy = str(tmp_path / "copy.db")
    assert run("backup", copy).code == 0
    for words in (["db", "upgrade"], ["serve", "--port", "0"], ["restore", copy, "--force"]):
        refused = run(*words)
        assert (refused.code, version(older)) == (3, before), words
        assert "--accept-gap --reason" in refused.err, refused.err
    settings, clock = settings_of(older), SystemClock()
    accepting = accept_found(settings, reason="a test", clock=clock, follow=False)
    assert (asyncio.run(accepting).kind, version(older)) == ("database", NEWER)
    first = number_before(older)
    assert first >= AHEAD
    assert run("db", "restored").code == 0
    assert number_before(older) > first


def test_a_backup_of_the_older_version_is_made_and_restored_by_the_newer(
    run: Run, tmp_path: Path, older: Path
) -> None:
    """As an upgrade has it: a backup, then the upgrade, and back where that went wrong."""
    before, copy = version(older), tmp_path / "copy.db"
    made = run("backup", str(copy))
    assert made.code == 0, made.err
    assert (version(copy), version(older)) == (before, before)
    assert "run `tallyhook db upgrade`" in made.err
    assert run("restore", *ACCEPTED, str(copy), "--force").code == 0
    assert (version(copy), version(older)) == (before, NEWER)
