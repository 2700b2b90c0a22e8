"""Brings a database up to date and keeps its stamp: which environment it serves, for ever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import ConfigurationError
from app.database import schema_objects

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).with_name("migrations")


def newest_version() -> str:
    """The version this code wants."""
    return max(known_versions())


def known_versions() -> frozenset[str]:
    """Every version that this code can bring up to date; each begins its migration's file name."""
    return frozenset(path.name[:4] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def versions_after(version: str | None) -> list[tuple[str, str]]:
    """The migrations from a version on to the newest: the number of each, and what it brings."""
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(alembic_config())
    due = [each for each in script.walk_revisions() if version is None or each.revision > version]
    return [(each.revision, " ".join(each.doc.split())) for each in reversed(due)]


async def current_version(connection: AsyncConnection) -> str | None:
    """The version the database has; None for an empty one.

    Raises ConfigurationError for a database of another program, or of a newer one than this.
    """
    if not await connection.run_sync(lambda plain: inspect(plain).has_table("alembic_version")):
        if await connection.run_sync(_foreign):
            raise ConfigurationError([_ANOTHER_PROGRAM])
        return None
    version: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    if version is not None and version not in known_versions():
        newer = version.isdigit() and version > newest_version()
        raise ConfigurationError([_of_newer(version) if newer else _ANOTHER_PROGRAM])
    return version


_ANOTHER_PROGRAM = (
    "TALLYHOOK_DATABASE_URL: names a database of another program; name one that is Tallyhook's own"
)


def _of_newer(version: str) -> str:
    return (
        f"TALLYHOOK_DATABASE_URL: the database is at version {version}, and this program knows "
        f"none after {newest_version()}: start the newer program that brought it there, or put "
        "back a backup from before that"
    )


def _foreign(connection: Connection) -> bool:
    """Whether tables are there before any of ours. On PostgreSQL extensions may have put them."""
    return connection.dialect.name == "sqlite" and bool(inspect(connection).get_table_names())


async def upgrade(connection: AsyncConnection) -> None:
    """Run every migration that is due, inside the caller's transaction."""
    await connection.run_sync(_migrate, "head")


def _migrate(connection: Connection, version: str) -> None:
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, version)


async def require_own(connection: AsyncConnection, version: str) -> None:
    """Raises StrangeSchema where an object is another than the migrations up to this version make,
    or is none of theirs: see `objects`."""
    newest = version == newest_version()
    await schema_objects.require_made(connection, version=version, newest=newest, migrate=_migrate)


async def is_known(connection: AsyncConnection) -> bool:
    """Whether the schema is, by its digest, what all migrations make."""
    found = schema_objects.digest_of(await schema_objects.things_of(connection))
    return found == schema_objects.MADE[connection.dialect.name]


async def strange_objects(connection: AsyncConnection) -> list[str]:
    """What is not as all migrations make it, one sentence each."""
    return await schema_objects.strangers(
        connection, version=newest_version(), newest=True, migrate=_migrate
    )


def alembic_config() -> Config:
    """Where the migrations are. Alembic is loaded only when they are run: that takes a tenth of a
    start, and most starts find nothing due."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


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
