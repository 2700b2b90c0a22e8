"""Databases and backups of versions that this program does not know: one sentence says what to
do."""

from pathlib import Path

import pytest

from tests.cli.test_backup import fill, names
from tests.cli.test_commands import Run, run
from tests.cli.test_restore import change, only_sentence

__all__ = ["run"]


@pytest.mark.parametrize(
    ("version", "database", "backup"),
    [
        (
            "0031",
            "move it away and start with a new database",
            "with the older program that made it",
        ),
        ("9.0.0", "start the newer program", "with the newer program that made it"),
    ],
)
def test_what_is_of_another_version_is_refused(
    run: Run, tmp_path: Path, version: str, database: str, backup: str
) -> None:
    """By whatever reads or writes, and by a restore; nothing is changed."""
    fill(tmp_path, "A")
    change(tmp_path / "t.db", f"UPDATE alembic_version SET version_num = '{version}'")
    for words in ("serve", "orders list", "refold", "db upgrade", "db upgrade --dry-run"):
        sentence = only_sentence(run(*words.split()), 3)
        assert f"the database has version {version}" in sentence
        assert database in sentence
    assert run("backup", str(tmp_path / "b.db")).code == 0
    before = names(tmp_path)
    sentence = only_sentence(run("restore", str(tmp_path / "b.db"), "--force"), 3)
    assert f"the backup is at version {version}, which this program does not know" in sentence
    assert backup in sentence
    assert names(tmp_path) == before
