"""Whether a PostgreSQL server keeps what it has confirmed: through its own crash, and through the
loss of its machine where a standby takes over.

The first is a condition of serving, looked at on every new connection. The second is a choice that
readiness and a person are told about: an asynchronous standby lacks the last moments.
"""

from __future__ import annotations

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
"""The streaming standbys. Who may not read the server's statistics sees them without a state."""


def check_server(cursor: Any) -> None:
    """Raises ConfigurationError when a crash of the server would lose what it has confirmed."""
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


async def switched_off(connection: AsyncConnection) -> list[str]:
    """The settings of a PostgreSQL server for which `check_server` would refuse it."""
    return [str(row[0]) for row in await connection.execute(text(_OFF))]


async def unsafe_standbys(connection: AsyncConnection) -> list[str]:
    """What would be lost if a standby took over, one sentence each; empty without standbys."""
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
