"""The database's schema: its version, its migrations, its check, and its environment's stamp."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateSchema

from app.core.errors import ConfigurationError, StorePoisoned, StrangeSchema
from app.core.ids import new_id
from app.core.private_files import replacing
from app.core.text import printable
from app.database.statements import PlainConnection, statement
from reconcile.instants import EARLIEST

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).with_name("migrations")

VERSIONS: Final = ("0.1.0",)
"""Versions of the schema, oldest first, from which this program can upgrade."""

NEWEST: Final = VERSIONS[-1]

DIGESTS: Final = {
    "sqlite": "930bd9bb1e7e9239103ddf9a7225972438a1af221ace28952b7e52b87ba1c484",
    "postgresql": "d916f1c0b3781534877cad85b77bc8b4363e2da0ad0dfe5e15f563930fe5f2c4",
}
"""SHA-256 of all objects that the migrations create, for each SQL dialect. A test prints the
values."""


# --- versions and migrations ----------------------------------------------------------------------


async def current_version(connection: AsyncConnection) -> str | None:
    """Return the version of the database's schema; None for an empty database.

    Raises ConfigurationError for another program's database, or an unknown version.
    """
    if not await connection.run_sync(lambda plain: inspect(plain).has_table("alembic_version")):
        # On PostgreSQL extensions may have made tables.
        if connection.dialect.name == "sqlite" and await connection.run_sync(
            lambda plain: bool(inspect(plain).get_table_names())
        ):
            raise _refused(_ANOTHER_PROGRAM)
        return None
    version: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    if version is None or version in VERSIONS:
        return version
    if is_before_release(version):
        raise _refused(
            f"the database has version {version}, which is older than 0.1.0 and cannot be "
            "upgraded: move it away and start with a new database, or use the program that made "
            "it"
        )
    if re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise _refused(
            f"the database has version {version}, but this program knows only versions up to "
            f"{NEWEST}: start the newer program, or restore an older backup"
        )
    raise _refused(_ANOTHER_PROGRAM)


_ANOTHER_PROGRAM: Final = "names another program's database; name one that Tallyhook made"


def is_before_release(version: str) -> bool:
    """Return whether a schema version is older than 0.1.0. Such versions are numbers of four
    digits."""
    return len(version) == 4 and version.isdigit()


def versions_after(version: str | None) -> list[tuple[str, str]]:
    """Return the version and summary of each migration that a database of this version still
    needs."""
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(_alembic_config())
    due = VERSIONS if version is None else VERSIONS[VERSIONS.index(version) + 1 :]
    found = [(each, script.get_revision(each)) for each in due]
    return [(each, " ".join(script.doc.split())) for each, script in found if script is not None]


async def upgrade(connection: AsyncConnection) -> None:
    """Run all pending migrations inside the caller's transaction."""
    await connection.run_sync(_migrate)


def _migrate(connection: Connection) -> None:
    from alembic import command

    config = _alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _alembic_config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


# --- whether the schema is what the migrations make -----------------------------------------------


class SchemaObject(NamedTuple):
    """Object of a database schema, such as an index, with the table to which it belongs."""

    kind: str
    name: str
    table: str
    definition: str

    def __str__(self) -> str:
        kind, name, table = (
            plain if len(plain) <= 80 else f"{plain[:80]}…" for plain in map(printable, self[:3])
        )
        return f"the database's {kind} {name}" + (f" of table {table}" if self.table else "")


_SQLITE: Final = """
SELECT type, name, CASE tbl_name WHEN name THEN '' ELSE tbl_name END, coalesce(sql, '')
FROM sqlite_master
"""

_SQLITE_OWN: Final = frozenset(
    {
        "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
        "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
        "CREATE TABLE sqlite_sequence(name,seq)",
    }
)
"""Whole definitions of SQLite's own tables, so that no trigger can pass by its name."""

_POSTGRESQL: Final = """
WITH place AS (SELECT oid, quote_ident(nspname) || '.' AS prefix
               FROM pg_namespace WHERE oid = {place}),
relations AS (
    SELECT * FROM pg_class WHERE relnamespace = (SELECT oid FROM place) AND NOT EXISTS (
        SELECT FROM pg_depend WHERE deptype = 'e' AND classid = 'pg_class'::regclass
            AND objid = pg_class.oid)
),
objects (kind, name, tbl, definition) AS (
    SELECT CASE WHEN relkind IN ('v', 'm') THEN 'view' WHEN relkind = 'S' THEN 'sequence'
               ELSE 'table' END,
        relname::text, '',
        concat_ws(' ', relkind, relpersistence, relrowsecurity, relforcerowsecurity,
            relispartition, pg_table_is_visible(oid),
            CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid) END)
    FROM relations WHERE relkind NOT IN ('i', 'I', 't', 'c')
    UNION ALL
    SELECT 'column', a.attname::text, r.relname::text,
        concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull,
            (SELECT collname FROM pg_collation WHERE oid = a.attcollation),
            pg_get_expr(d.adbin, d.adrelid), a.attgenerated, a.attidentity)
    FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0
        AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
    WHERE r.relkind IN ('r', 'p', 'f')
    UNION ALL
    SELECT 'index', i.indexrelid::regclass::text, r.relname::text,
        concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid)
    FROM relations r JOIN pg_index i ON i.indrelid = r.oid
    UNION ALL
    SELECT 'constraint', k.conname::text, r.relname::text,
        concat_ws(' ', pg_get_constraintdef(k.oid), k.convalidated)
    FROM relations r JOIN pg_constraint k ON k.conrelid = r.oid WHERE k.contype <> 'n'
    UNION ALL
    SELECT 'trigger', t.tgname::text, r.relname::text,
        concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled)
    FROM relations r JOIN pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'rule', w.rulename::text, r.relname::text,
        concat_ws(' ', pg_get_ruledef(w.oid), w.ev_enabled)
    FROM relations r JOIN pg_rewrite w ON w.ev_class = r.oid WHERE w.rulename <> '_RETURN'
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, '',
        CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) ELSE 'aggregate' END
    FROM pg_proc p WHERE p.pronamespace = (SELECT oid FROM place) AND NOT EXISTS (
        SELECT FROM pg_depend WHERE deptype = 'e' AND classid = 'pg_proc'::regclass
            AND objid = p.oid)
)
SELECT kind, replace(name, prefix, ''), tbl, replace(definition, prefix, '') FROM objects, place
"""

_OURS: Final = "(SELECT relnamespace FROM pg_class WHERE oid = to_regclass('alembic_version'))"


async def require_own(connection: AsyncConnection) -> None:
    """Raise StrangeSchema if the database's schema differs from the schema that the migrations
    create."""
    if found := await strange_objects(connection):
        raise StrangeSchema(found[0])


async def is_own(connection: AsyncConnection) -> bool:
    """Return whether the database's schema has the expected digest. Nothing is written."""
    return schema_digest(await objects_of(connection)) == DIGESTS[connection.dialect.name]


async def strange_objects(connection: AsyncConnection) -> list[str]:
    """Return a sentence for each difference between the database's schema and the schema that the
    migrations create."""
    found = await objects_of(connection)
    if schema_digest(found) == DIGESTS[connection.dialect.name]:
        return []
    if connection.dialect.name == "sqlite":
        wanted = await asyncio.to_thread(_made_on_sqlite)
    else:
        wanted = await _made_on_postgresql(connection)
    known, there = ({each[:3] for each in objects} for objects in (wanted, found))
    return [
        f"{each} differs from Tallyhook's definition"
        if each[:3] in known
        else f"{each} does not belong to Tallyhook"
        for each in sorted((Counter(found) - Counter(wanted)).elements())
    ] + [f"{each} is missing" for each in wanted if each[:3] not in there]


async def objects_of(connection: AsyncConnection, *, place: str = _OURS) -> list[SchemaObject]:
    """Return all objects of a database schema, sorted.

    place  SQL expression for the oid of a PostgreSQL schema
    """
    if connection.dialect.name == "sqlite":
        return _sorted(await connection.execute(text(_SQLITE)))
    return _sorted(await connection.execute(text(statement(_POSTGRESQL, place=place))))


def schema_digest(objects: list[SchemaObject]) -> str:
    """Return the SHA-256 of a schema's objects, in hexadecimal digits."""
    return hashlib.sha256(repr([tuple(each) for each in objects]).encode()).hexdigest()


def _sorted(rows: Any) -> list[SchemaObject]:
    objects = [
        SchemaObject(str(kind), str(name), str(table), " ".join(str(definition).split()))
        for kind, name, table, definition in rows
    ]
    return sorted(each for each in objects if each.definition not in _SQLITE_OWN)


@cache
def _made_on_sqlite() -> list[SchemaObject]:
    engine = create_engine("sqlite://")
    try:
        with engine.connect() as connection, connection.begin():
            _migrate(connection)
            return _sorted(connection.execute(text(_SQLITE)))
    finally:
        engine.dispose()


async def _made_on_postgresql(connection: AsyncConnection) -> list[SchemaObject]:
    savepoint = await connection.begin_nested()
    try:
        name = f"tallyhook_{await connection.scalar(text('SELECT pg_backend_pid()'))}"
        await connection.execute(CreateSchema(name))
        await connection.execute(
            text("SELECT set_config('search_path', :name, true)"), {"name": name}
        )
        await connection.run_sync(_migrate)
        return await objects_of(connection, place=statement("'{name}'::regnamespace", name=name))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != "42501":  # insufficient_privilege
            raise
        raise StorePoisoned(
            "the database's schema differs from this program's schema; let the database's owner "
            "run `tallyhook db check` to find the difference"
        ) from error
    finally:
        await savepoint.rollback()


# --- the environment that the database serves -----------------------------------------------------


async def stamp_environment(connection: AsyncConnection, environment: str | None) -> str | None:
    """Return the environment of the database, after stamping a new database with the given one.

    environment  the expected environment; None to read the stamp only

    Raises ConfigurationError if the database belongs to the other environment.
    """
    stamp = text("SELECT value FROM meta WHERE name='environment'")
    stamped: str | None = await connection.scalar(stamp)
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
        stamped = await connection.scalar(stamp)  # another process may have been first
    if stamped != environment:
        raise ConfigurationError(
            [
                f"TALLYHOOK_ENVIRONMENT: this database belongs to {stamped} and this instance is "
                f"{environment}; give each environment a database of its own"
            ]
        )
    return environment


# --- the file that says that there is a database --------------------------------------------------


SUFFIX: Final = ".made"


def identity_of(connection: PlainConnection) -> str:
    """Return the database's id. A database without an id gets a new one."""
    rows = connection.ask("SELECT value FROM meta WHERE name='id'")
    if rows:
        return str(rows[0][0])
    identity = new_id("db_", EARLIEST)
    connection.ask("INSERT INTO meta (name, value) VALUES ('id', ?)", (identity,))
    return identity


class Made:
    """File beside the SQLite database with its id, which shows if the database was lost."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.path = database.with_name(database.name + SUFFIX)

    def check_there(self) -> None:
        """Raise ConfigurationError if the file records a database that is missing or was never
        completed."""
        missing = not self._database.exists() or not self._database.stat().st_size
        if missing and self.path.exists():
            raise _refused(
                f"the database {self._database} is missing, but {self.path.name} shows that it "
                "existed; put the file back, or restore a backup with `tallyhook restore`. To "
                "start over with an empty database, run `tallyhook db create --new`"
            )

    def note(self, identity: str) -> None:
        """Record that this database exists. Raise ConfigurationError if the file records another
        database."""
        if self.path.exists():
            found = self.path.read_text(encoding="ascii", errors="replace").strip()
            if found not in ("", identity):
                raise _refused(
                    f"{self._database} is not the database that {self.path.name} names; put the "
                    "named database back. If this file is a backup, restore the backup with "
                    f"`tallyhook restore`. If this database is right, delete {self.path}"
                )
            if found:
                return
        with replacing(self.path, part=self.path.with_name(self.path.name + ".part")) as file:
            file.write(f"{identity}\n".encode("ascii"))

    def forget(self) -> None:
        """Delete the record, so that the next database at this path is accepted."""
        self.path.unlink(missing_ok=True)


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError([f"TALLYHOOK_DATABASE_URL: {why}"])
