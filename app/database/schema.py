"""Brings a database up to date and keeps its stamp: which environment it serves, for ever."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Column, Connection, Table, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateSchema

from app.core.errors import ConfigurationError, StorePoisoned, StrangeSchema
from app.core.ids import new_id
from app.core.text import printable
from app.database.statements import PlainConnection, statement
from reconcile.instants import EARLIEST

if TYPE_CHECKING:
    from alembic.config import Config

Thing = tuple[str, str, str, str]
"""One object: its kind, its name, the table that it belongs to, and what it was made by."""

Migrate = Callable[[Connection, str], None]
"""Runs the migrations up to a version, inside the caller's transaction."""

MADE: Final[dict[str, str]] = {
    "sqlite": "0f69dc45b75cd205fad3b793698df526c9f6f832cb8b35081b40ae5ebb09a1b9",
    "postgresql": "470998dca7818d11158fda342918fb1c89fcda932aced32ff81ea35770b4f584",
}
"""Digest of what all migrations make of an empty database, by dialect."""

_WORDS: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/
        | [^\W]+ | \s+ | .""",
    re.VERBOSE | re.DOTALL,
)

_PLAIN: Final = re.compile(r'"([A-Za-z_][A-Za-z0-9_]*)"')

_SQLITE: Final = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"

_OF_SQLITE: Final = {
    (
        "table",
        name,
        name,
        statement("CREATE TABLE {name} ( {columns} )", name=name, columns=columns),
    )
    for name, columns in (
        ("sqlite_stat1", "tbl , idx , stat"),
        ("sqlite_stat4", "tbl , idx , neq , nlt , ndlt , sample"),
        ("sqlite_sequence", "name , seq"),
    )
}
"""SQLite's own: the planner's figures, which `ANALYZE` makes, and counts of rows, which stay when
the table has gone that they are of."""

_POSTGRESQL: Final = """
WITH place AS (SELECT oid AS ns, quote_ident(nspname) || '.' AS prefix
               FROM pg_namespace WHERE oid = {place}),
foreigners AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'),
relations AS (
    SELECT c.*, place.prefix FROM pg_class c JOIN place ON c.relnamespace = place.ns
    WHERE NOT EXISTS (SELECT FROM foreigners WHERE classid = 'pg_class'::regclass AND objid = c.oid)
),
things (kind, name, tbl, def, prefix) AS (
    SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'S' THEN 'sequence'
               ELSE 'table' END,
        relname::text, relname::text,
        concat_ws(' ', relkind, relpersistence, relrowsecurity, relforcerowsecurity,
            relispartition, pg_table_is_visible(oid),
            CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid) END), prefix
    FROM relations WHERE relkind NOT IN ('i', 'I', 't', 'c')
    UNION ALL
    SELECT 'column', a.attname::text, r.relname::text,
        concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull,
            (SELECT collname FROM pg_collation WHERE oid = a.attcollation),
            pg_get_expr(d.adbin, d.adrelid), a.attgenerated, a.attidentity), r.prefix
    FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0
        AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
    WHERE r.relkind IN ('r', 'p', 'f')
    UNION ALL
    SELECT 'index', i.indexrelid::regclass::text, r.relname::text,
        concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid), r.prefix
    FROM relations r JOIN pg_index i ON i.indrelid = r.oid
    UNION ALL
    SELECT 'constraint', k.conname::text, r.relname::text,
        concat_ws(' ', pg_get_constraintdef(k.oid), k.convalidated), r.prefix
    FROM relations r JOIN pg_constraint k ON k.conrelid = r.oid WHERE k.contype <> 'n'
    UNION ALL
    SELECT 'trigger', t.tgname::text, r.relname::text,
        concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled), r.prefix
    FROM relations r JOIN pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'rule', w.rulename::text, r.relname::text,
        concat_ws(' ', pg_get_ruledef(w.oid), w.ev_enabled), r.prefix
    FROM relations r JOIN pg_rewrite w ON w.ev_class = r.oid WHERE w.rulename <> '_RETURN'
    UNION ALL
    SELECT 'policy', p.polname::text, r.relname::text, p.polcmd::text, r.prefix
    FROM relations r JOIN pg_policy p ON p.polrelid = r.oid
    UNION ALL
    SELECT 'child table', h.inhrelid::regclass::text, r.relname::text, '', r.prefix
    FROM relations r JOIN pg_inherits h ON h.inhparent = r.oid WHERE r.relkind = 'r'
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, '',
        CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) ELSE 'aggregate' END
            || pg_function_is_visible(p.oid), place.prefix
    FROM pg_proc p JOIN place ON p.pronamespace = place.ns
    WHERE NOT EXISTS (SELECT FROM foreigners WHERE classid = 'pg_proc'::regclass AND objid = p.oid)
    UNION ALL
    SELECT 'operator', o.oid::regoperator::text, '', '', place.prefix
    FROM pg_operator o JOIN place ON o.oprnamespace = place.ns
    WHERE NOT EXISTS (SELECT FROM foreigners
                      WHERE classid = 'pg_operator'::regclass AND objid = o.oid)
)
SELECT kind, replace(name, prefix, ''), tbl, replace(def, prefix, '') FROM things
"""

_OURS: Final = "(SELECT relnamespace FROM pg_class WHERE oid = to_regclass('alembic_version'))"
"""The schema in which the tables lie that this connection sees."""


_NAMED: Final = "'{name}'::regnamespace"
"""One by its name."""


async def require_made(
    connection: AsyncConnection, *, version: str, newest: bool, migrate: Migrate
) -> None:
    """Raises StrangeSchema where the schema is another than the migrations up to this version
    make."""
    if found := await strangers(connection, version=version, newest=newest, migrate=migrate):
        raise StrangeSchema(found[0])


async def strangers(
    connection: AsyncConnection, *, version: str, newest: bool, migrate: Migrate
) -> list[str]:
    """What of the schema is not as the migrations make it, one sentence each.

    newest  whether this is the version of the kept digest
    """
    dialect = connection.dialect.name
    found = await things_of(connection)
    if newest and digest_of(found) == MADE[dialect]:
        return []
    if dialect == "sqlite":
        wanted = await asyncio.to_thread(_made_on_sqlite, migrate, version)
    else:
        wanted = await _made_on_postgresql(connection, migrate, version)
    return _differences(found, wanted)


async def things_of(connection: AsyncConnection, *, place: str = _OURS) -> list[Thing]:
    """Every object there is, in an order of its own."""
    if connection.dialect.name == "sqlite":
        return _normal(await connection.execute(text(_SQLITE)))
    return _normal(await connection.execute(text(statement(_POSTGRESQL, place=place))))


def digest_of(things: list[Thing]) -> str:
    """One digest of all of them."""
    return hashlib.sha256(repr(things).encode()).hexdigest()


def _normal(rows: Any) -> list[Thing]:
    """Sorted, the definitions as words: how they are spaced and quoted means nothing."""
    things = [
        (str(kind), str(name), str(table), _words(str(definition)))
        for kind, name, table, definition in rows
    ]
    return sorted(each for each in things if each not in _OF_SQLITE)


def _words(definition: str) -> str:
    words = (word for word in _WORDS.findall(definition) if not word.isspace())
    return " ".join(_PLAIN.sub(r"\1", word) if word[0] == '"' else word for word in words)


@cache
def _made_on_sqlite(migrate: Migrate, version: str) -> list[Thing]:
    engine = create_engine("sqlite://")
    try:
        with engine.connect() as connection, connection.begin():
            migrate(connection, version)
            return _normal(connection.execute(text(_SQLITE)))
    finally:
        engine.dispose()


async def _made_on_postgresql(
    connection: AsyncConnection, migrate: Migrate, version: str
) -> list[Thing]:
    """In a schema of its own, which is taken back before anybody else can see it."""
    savepoint = await connection.begin_nested()
    try:
        session = await connection.scalar(text("SELECT pg_backend_pid()"))
        name = f"tallyhook_{session}"
        await connection.execute(CreateSchema(name))
        await connection.execute(
            text("SELECT set_config('search_path', :name, true)"), {"name": name}
        )
        await connection.run_sync(migrate, version)
        return await things_of(connection, place=statement(_NAMED, name=name))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != "42501":  # insufficient_privilege
            raise
        raise StorePoisoned(
            "the database's schema is not the one that this program knows, and this user may not "
            "make one to compare it with; let its owner run `tallyhook db check`"
        ) from error
    finally:
        await savepoint.rollback()


def _differences(found: list[Thing], wanted: list[Thing]) -> list[str]:
    """Counted, so that two objects of one name are not taken for one."""
    extra = sorted((Counter(found) - Counter(wanted)).elements())
    missing = sorted((Counter(wanted) - Counter(found)).elements())
    known = {each[:3] for each in wanted}
    there = {each[:3] for each in found}
    sentences = [
        f"{_called(each)} is not as Tallyhook makes it"
        if each[:3] in known
        else f"{_called(each)} is none of Tallyhook's"
        for each in extra
    ]
    return sentences + [f"{_called(each)} is missing" for each in missing if each[:3] not in there]


def _called(thing: Thing) -> str:
    kind, name, table, _ = (_shown(part) for part in thing)
    of = f" of table {table}" if table not in ("", name) else ""
    return f"the database's {kind} {name}{of}"


def _shown(name: str) -> str:
    """A stranger's name in a line for people."""
    plain = printable(name)
    return plain if len(plain) <= 80 else f"{plain[:80]}…"


async def read_as_newest(connection: AsyncConnection) -> None:
    """Until the end of the transaction, read every table with the columns that it will have."""
    await connection.run_sync(_hide_what_is_older)


def _hide_what_is_older(connection: Connection) -> None:
    from app.database.tables import metadata

    there = {
        name: {column["name"] for column in columns}
        for (_, name), columns in inspect(connection).get_multi_columns().items()
    }
    for table in metadata.tables.values():
        found = there.get(table.name, set())
        if found.issuperset(column.name for column in table.columns):
            continue
        connection.execute(text(_view(connection, table, found)))


def _view(connection: Connection, table: Table, found: set[str]) -> str:
    quoted = connection.dialect.identifier_preparer.quote
    columns = ", ".join(
        quoted(each.name) if each.name in found else _default(connection, each)
        for each in table.columns
    )
    name = quoted(table.name)
    schema = quoted(connection.dialect.default_schema_name or "main")
    return statement(
        "CREATE TEMPORARY VIEW {name} AS SELECT {columns} {rows}",
        name=name,
        columns=columns,
        rows=statement("FROM {schema}.{name}", schema=schema, name=name)
        if found
        else "WHERE 1 = 0",
    )


def _default(connection: Connection, column: Column[object]) -> str:
    """What the column says of rows that are older than it."""
    given = getattr(column.server_default, "arg", None)
    return statement(
        "CAST({value} AS {kind}) AS {name}",
        value="NULL" if given is None else str(given),
        kind=column.type.compile(connection.dialect).partition(" COLLATE")[0],
        name=connection.dialect.identifier_preparer.quote(column.name),
    )


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
    await require_made(connection, version=version, newest=newest, migrate=_migrate)


async def is_known(connection: AsyncConnection) -> bool:
    """Whether the schema is, by its digest, what all migrations make."""
    found = digest_of(await things_of(connection))
    return found == MADE[connection.dialect.name]


async def strange_objects(connection: AsyncConnection) -> list[str]:
    """What is not as all migrations make it, one sentence each."""
    return await strangers(connection, version=newest_version(), newest=True, migrate=_migrate)


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


# --- that there is a database ---------------------------------------------------------------------


SUFFIX: Final = ".made"
"""What its name has beyond the database's."""

_IDENTITY: Final = "id"
"""The fact that says the database's own id."""


def identity_of(connection: PlainConnection) -> str:
    """The database's id; one of an earlier version is given one."""
    rows = connection.ask("SELECT value FROM meta WHERE name=?", (_IDENTITY,))
    if rows:
        return str(rows[0][0])
    identity = new_id("db_", EARLIEST)
    connection.ask("INSERT INTO meta (name, value) VALUES (?, ?)", (_IDENTITY, identity))
    return identity


class Made:
    """The file beside one database."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.path = database.with_name(database.name + SUFFIX)

    def check_there(self) -> None:
        """Raises ConfigurationError where there is none though there was one."""
        if self._is_missing() and self.path.exists():
            raise _refused(
                f"the database {self._database} is gone, and {self.path.name} says that there was "
                "one; put it back, or `tallyhook restore` a backup; only to start over with an "
                "empty one: `tallyhook db create --new`"
            )

    def _is_missing(self) -> bool:
        # An empty file is what a start leaves that was cut short, or a program that only looked.
        return not self._database.exists() or not self._database.stat().st_size

    def note(self, identity: str) -> None:
        """From now on there is this database. Raises ConfigurationError where there was another."""
        if self.path.exists():
            found = self.path.read_text(encoding="ascii", errors="replace").strip()
            if found not in ("", identity):
                raise _refused(
                    f"{self._database} is another database than the one that was here, says "
                    f"{self.path.name}; put the right one back, or `tallyhook restore` this one; "
                    f"if it is meant, delete {self.path}"
                )
            if found:
                return
        part = self.path.with_name(self.path.name + ".part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{identity}\n".encode("ascii"))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def forget(self) -> None:
        """Whatever is put here next is meant."""
        self.path.unlink(missing_ok=True)


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError([f"TALLYHOOK_DATABASE_URL: {why}"])
