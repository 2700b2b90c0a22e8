"""Compares every object of a database's schema with what the migrations make of an empty one.

A backup, or a hand on the database, can bring a trigger that turns an unpaid order into a paid one;
what rows say is then no longer what was written. So nothing is served before tables, columns,
indexes, constraints, triggers, views and functions are the migrations' own. What the database says
of its own schema is no measure of that: the code is.

To run the migrations takes a second, so the digest of what they all make is kept here, and they are
run only where the database has another. A test holds the digests against the migrations.

Leaves out: rows, and on PostgreSQL what belongs to extensions or lies outside the schema of ours.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import StorePoisoned, StrangeSchema
from app.core.text import printable

Thing = tuple[str, str, str, str]
"""One object: its kind, its name, the table that it belongs to, and what it was made by."""

Migrate = Callable[[Connection, str], None]
"""Runs the migrations up to a version, inside the caller's transaction."""

MADE: Final[dict[str, str]] = {
    "sqlite": "e0d2cd9c523f392478c50f33a451d35a04b8d837c07c0fbb9822e80486bc77eb",
    "postgresql": "fcdfe996db633dad85b92ae8bab66817b160e1ad56ce674c7fe2ce6f2e1d901b",
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
    ("table", name, name, f"CREATE TABLE {name} ( {columns} )")
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
    return _normal(await connection.execute(text(_POSTGRESQL.format(place=place))))


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
    return " ".join(_PLAIN.sub(r"\1", word) for word in words)


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
        name = f"tallyhook_{await connection.scalar(text('SELECT pg_backend_pid()'))}"
        await connection.execute(text(f"CREATE SCHEMA {name}"))
        await connection.execute(text(f"SET LOCAL search_path TO {name}"))
        await connection.run_sync(migrate, version)
        return await things_of(connection, place=f"'{name}'::regnamespace")
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
