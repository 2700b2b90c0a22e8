"""Store large tables on the nodes of a Citus cluster, and all others on its coordinator.

The two largest tables are distributed by their own ids, so no row moves when an event is linked to
an order. Citus cannot join such a table with a local one. So `in_rounds` first fetches the rows
that a comment in the statement selects, such as `/* events WHERE order_key = ANY($1) */`.
"""

import re
from functools import lru_cache
from typing import Final

from sqlalchemy import event, text
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import ConfigurationError, StoreUnavailable, UsageError
from app.database.locks import LINKING, SCANNING, take_lock_shared
from app.database.mapping import DELIVERY_COLUMNS, EVENT_COLUMNS
from app.database.statements import SPREAD, PlainConnection, statement

LAYOUT: Final = "layout"

DISTRIBUTED: Final = "citus"

BY: Final = {"deliveries": "id", "events": "event_id"}
"""Distributed tables, each with the column that assigns a row to a node."""


def is_spread(connection: AsyncConnection) -> bool:
    """Return whether `deliveries` and `events` are distributed over the nodes of a cluster."""
    return bool(connection.sync_connection and connection.sync_connection.info.get(SPREAD))


async def require_noted(connection: AsyncConnection) -> None:
    """Raise ConfigurationError if the actual distribution of tables over nodes differs from the
    recorded distribution."""
    if connection.dialect.name == "sqlite":
        return
    noted = await connection.scalar(text(_NOTED), {"name": LAYOUT}) == DISTRIBUTED
    if noted != is_spread(connection):
        raise ConfigurationError(
            [
                "TALLYHOOK_DATABASE_URL: deliveries and events are not stored as recorded ("
                + ("on no other node)" if noted else "on other nodes)")
                + "; run `tallyhook db distribute`"
            ]
        )


async def distribute(connection: AsyncConnection) -> list[str]:
    """Distribute the large tables with their rows, and return their names.

    No other process may use the database. Raises UsageError without a cluster.
    """
    await _require_cluster(connection)
    local = []
    for name in BY:
        if not await connection.scalar(text(_IS_DISTRIBUTED), {"of": name}):
            local.append(name)
    for name in local:
        await connection.execute(text(_DISTRIBUTE), {"of": name, "by": BY[name]})
    await connection.execute(text(_NOTE), {"name": LAYOUT, "value": DISTRIBUTED})
    return local


async def _require_cluster(connection: AsyncConnection) -> None:
    if not await connection.scalar(text(_HAS_CITUS)):
        raise UsageError(
            "the database has no extension citus; create it on the coordinator and on each worker, "
            "and register the workers with citus_add_node"
        )
    if not await connection.scalar(text(_NODES)):
        raise UsageError(
            "the coordinator knows no node that may hold rows; register the workers with "
            "citus_add_node"
        )


_HAS_CITUS: Final = "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus')"

_NODES: Final = "SELECT count(*) FROM pg_dist_node WHERE isactive AND shouldhaveshards"

_IS_DISTRIBUTED: Final = (
    "SELECT EXISTS (SELECT 1 FROM pg_dist_partition WHERE logicalrelid = CAST(:of AS regclass))"
)

_DISTRIBUTE: Final = (
    "SELECT create_distributed_table(CAST(:of AS regclass), :by, colocate_with => 'none')"
)

_NOTED: Final = "SELECT value FROM meta WHERE name=:name"
_NOTE: Final = (
    "INSERT INTO meta (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
)


# --- what cannot be seen yet ---------------------------------------------------------------------


def settle(connection: PlainConnection, *, long: bool = False) -> None:
    """Block the storing of new deliveries until the transaction ends, and check that every node has
    all earlier commits.

    long  whether the block can last long; new deliveries then fail instead of waiting

    Raises StoreUnavailable if a node lacks a commit or does not answer.
    """
    if not connection.spread:
        return
    if long:
        take_lock_shared(connection, SCANNING)
    take_lock_shared(connection, LINKING)
    for answered, found in connection.ask(_PENDING):
        if not answered:
            raise StoreUnavailable("a node of the database does not answer", reason="busy")
        if found != "0":
            raise StoreUnavailable(
                "a database node does not know the result of a commit yet; try again", reason="busy"
            )


_PENDING: Final = (
    "SELECT success, result FROM run_command_on_workers("
    "'SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()')"
)


# --- statements that name more than one table ----------------------------------------------------

_COLUMNS: Final = {"deliveries": DELIVERY_COLUMNS, "events": ("row", *EVENT_COLUMNS)}

_NAMED: Final = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+(?:ONLY\s+)?([a-z_]+)")
_ROWS: Final = re.compile(r"/\* (deliveries|events) WHERE (.*?) \*/")
_JOINED: Final = "events.event_id = deliveries.event_id"
_ROUND: Final = "{name} AS MATERIALIZED (SELECT {columns} FROM {name} WHERE {rows})"
_PARTNER: Final = {"deliveries": "events", "events": "deliveries"}


@lru_cache(maxsize=2_048)
def in_rounds(sql: str) -> str:
    """Return a statement for a Citus cluster, which first fetches rows of distributed tables."""
    if sql.startswith("EXPLAIN "):
        return statement("EXPLAIN {of}", of=in_rounds(sql.removeprefix("EXPLAIN ")))
    named = _NAMED.findall(sql)
    ours = [name for name in BY if name in named]
    if not ours or len(named) < 2:
        return sql
    rounds = dict(_ROWS.findall(sql))
    for name in ours:
        partner = _PARTNER[name]
        if name not in rounds and partner in rounds and named.count(name) == 1 and _JOINED in sql:
            rounds[name] = statement("event_id IN (SELECT event_id FROM {first})", first=partner)
    rounds |= {name: "true" for name in ours if name not in rounds}
    plain = _ROWS.sub("", sql)
    parts = ", ".join(
        statement(_ROUND, name=name, columns=_needed(name, plain), rows=rows)
        for name, rows in rounds.items()
    )
    rest = re.sub(r"^\s*WITH\b", ",", plain) if re.match(r"\s*WITH\b", plain) else f" {plain}"
    if found := re.match(r"\s*(INSERT INTO [^()]*\([^()]*\)) (SELECT .*)", plain, re.DOTALL):
        return f"{found[1]} WITH {parts} {found[2]}"  # Citus inserts nothing where WITH is first
    return f"WITH {parts}{rest}"


def _needed(name: str, sql: str) -> str:
    if "*" in sql.replace("count(*)", ""):
        return "*"
    words = set(re.findall(r"[a-z_]+", sql)) | {"event_id"}
    return ", ".join(f'"{column}"' for column in _COLUMNS[name] if column in words)


def follow_layout(engine: Engine) -> None:
    """Prepare an engine for a database that may be distributed. Each new connection detects the
    distribution, and then rewrites its statements."""

    @event.listens_for(engine, "connect")
    def learn(connection: object, record: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]
        cursor.execute(_HAS_CITUS)
        spread = cursor.fetchone()[0]
        if spread:
            cursor.execute(_SHOW_SHARDS)
            cursor.execute(_ANY_DISTRIBUTED)
            spread = cursor.fetchone()[0]
        cursor.close()
        connection.commit()  # type: ignore[attr-defined]
        record.info[SPREAD] = in_rounds if spread else None  # type: ignore[attr-defined]

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def rewrite(
        connection: object, _cursor: object, sql: str, values: object, _context: object, _many: bool
    ) -> tuple[str, object]:
        rewritten = connection.info.get(SPREAD)  # type: ignore[attr-defined]
        return (rewritten(sql) if rewritten else sql), values


_SHOW_SHARDS: Final = "SET citus.override_table_visibility TO off"
"""SQL statement that shows the shards of a cluster, whose hiding slows some queries."""

_ANY_DISTRIBUTED: Final = (
    "SELECT EXISTS (SELECT 1 FROM pg_dist_partition WHERE logicalrelid = to_regclass('deliveries'))"
)
