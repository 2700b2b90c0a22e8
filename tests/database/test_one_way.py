"""Migrations go forward; asked to go back, each after the first says what to do instead. Their file
names give the versions there are."""

from __future__ import annotations

import pytest
from alembic.script import Script, ScriptDirectory

from app.core.errors import ConfigurationError
from app.database.schema import MIGRATIONS, known_versions, newest_version

SCRIPTS = ScriptDirectory(MIGRATIONS)
ALL = list(SCRIPTS.walk_revisions())


def test_file_names_tell_the_versions() -> None:
    assert known_versions() == {version.revision for version in ALL}
    assert newest_version() == SCRIPTS.get_current_head()


@pytest.mark.parametrize("version", ALL[:-1], ids=lambda each: each.revision)
def test_a_database_is_not_taken_back(version: Script) -> None:
    with pytest.raises(ConfigurationError, match="restore"):
        version.module.downgrade()
