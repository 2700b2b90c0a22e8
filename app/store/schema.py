"""Brings a database up to date and keeps its stamp: which environment it serves, for ever."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import ConfigurationError

_MIGRATIONS = Path(__file__).with_name("migrations")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def newest_version() -> str:
    """The version this code wants."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def known_versions() -> frozenset[str]:
    """Every version that this code can bring up to date."""
    script = ScriptDirectory.from_config(_config())
    return frozenset(each.revision for each in script.walk_revisions())


async def current_version(connection: AsyncConnection) -> str | None:
    """The version the database has; None for an empty one."""
    return await connection.run_sync(
        lambda plain: MigrationContext.configure(plain).get_current_revision()
    )


async def upgrade(connection: AsyncConnection) -> None:
    """Run every migration that is due, inside the caller's transaction."""
    await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def stamp_environment(connection: AsyncConnection, environment: str | None) -> str | None:
    """Stamp a new database, or check the stamp. `None` asks for whatever the stamp says.

    Raises ConfigurationError when the database belongs to the other environment.
    """
    stamped = await _stamp(connection)
    if environment is None:
        return stamped
    if stamped is None:
        await connection.execute(
            text(
                "INSERT INTO meta (name, value) VALUES ('environment', :value) "
                "ON CONFLICT DO NOTHING"
            ),
            {"value": environment},
        )
        stamped = await _stamp(connection)  # another process may have been first
    if stamped != environment:
        raise ConfigurationError(
            [
                f"TALLYHOOK_ENVIRONMENT: this database belongs to {stamped} and this instance is "
                f"{environment}; give each environment a database of its own"
            ]
        )
    return environment


async def _stamp(connection: AsyncConnection) -> str | None:
    row = await connection.execute(text("SELECT value FROM meta WHERE name='environment'"))
    stamped: str | None = row.scalar_one_or_none()
    return stamped
