"""PostgreSQL servers: whether they keep what they confirmed, also when a standby takes over."""

import re
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import ConfigurationError

_OFF: Final = """
SELECT name FROM pg_settings WHERE setting = 'off'
AND name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name
"""

_STANDBYS: Final = """
SELECT coalesce(sync_state, 'unknown'), current_setting('synchronous_standby_names'),
       current_setting('synchronous_commit')
FROM pg_stat_replication
WHERE state IS DISTINCT FROM 'backup' AND application_name NOT IN ('pg_basebackup', 'pg_receivewal')
  AND pid NOT IN (SELECT active_pid FROM pg_replication_slots
                  WHERE slot_type = 'logical' AND active_pid IS NOT NULL)
"""
"""Streaming standbys. The state is NULL for a user who may not read the server's statistics."""

AWAITED: Final = """
SELECT current_setting('synchronous_standby_names'),
       (SELECT count(*) FROM pg_stat_replication
        WHERE coalesce(sync_state, 'unknown') <> 'async')
WHERE current_setting('synchronous_standby_names') <> '' AND NOT pg_is_in_recovery()
AND current_setting('synchronous_commit') NOT IN ('local', 'off')
"""
"""Names of the standbys that each commit waits for, and how many connected standbys may be one of
them; no row where commits wait for none."""

_HOW_MANY: Final = re.compile(r"\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.IGNORECASE)

AWAITS_STANDBY: Final = (
    "the server waits for a standby that is not connected (synchronous_standby_names), and "
    "confirms nothing before it is; start the standby, or change that setting on the server"
)


def check_server(cursor: Any) -> None:
    """Raise ConfigurationError when a crash of the server would lose confirmed commits."""
    cursor.execute(_OFF)
    off = [row[0] for row in cursor.fetchall()]
    if off:
        raise ConfigurationError(
            [
                f"TALLYHOOK_DATABASE_URL: the server has {name}=off and would lose what was "
                "acknowledged; turn it on"
                for name in off
            ]
        )


def too_few(rows: Sequence[Any]) -> bool:
    """Return whether fewer standbys are connected than commits wait for, from AWAITED's rows."""
    if not rows:
        return False
    names, there = rows[0]
    number = _HOW_MANY.match(names)
    return bool(there < (1 if number is None else int(number[1])))


async def awaits_standby(connection: AsyncConnection) -> bool:
    """Return whether commits would wait for a standby without end."""
    return too_few((await connection.execute(text(AWAITED))).all())


async def switched_off(connection: AsyncConnection) -> list[str]:
    """List the settings for which `check_server` would refuse the server."""
    return [str(row[0]) for row in await connection.execute(text(_OFF))]


async def unsafe_standbys(connection: AsyncConnection) -> list[str]:
    """Say what would be lost if a standby took over, one sentence each; empty without standbys."""
    if connection.dialect.name == "sqlite":
        return []
    standbys = (await connection.execute(text(_STANDBYS))).all()
    if not standbys:
        return []
    states = {row[0] for row in standbys}
    names, commit = standbys[0][1], standbys[0][2]
    if not names or (states == {"async"}):
        return [
            "the standby is asynchronous: if it took over, the last acknowledged deliveries would "
            "be lost; set synchronous_standby_names on the server"
        ]
    if commit in ("local", "off"):
        return [
            f"synchronous_commit={commit} does not wait for the standby: if it took over, the last "
            "acknowledged deliveries would be lost; set it to on"
        ]
    return []
