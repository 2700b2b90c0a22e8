"""Migrations go forward; asked to go back, each after the first says what to do instead."""

from __future__ import annotations

import pytest
from alembic.script import Script, ScriptDirectory

from app.errors import ConfigurationError
from app.store.schema import _config

LATER = list(ScriptDirectory.from_config(_config()).walk_revisions())[:-1]


@pytest.mark.parametrize("version", LATER, ids=lambda each: each.revision)
def test_a_database_is_not_taken_back(version: Script) -> None:
    with pytest.raises(ConfigurationError, match="restore"):
        version.module.downgrade()
