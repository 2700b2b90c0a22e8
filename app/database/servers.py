"""Check that PostgreSQL servers keep confirmed commits, even if a standby takes over."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import ConfigurationError
from app.core.text import counted

STATE: Final = """
SELECT json_build_object(
    'off', coalesce((SELECT json_agg(name ORDER BY name) FROM pg_settings WHERE setting = 'off'
        AND name IN ('fsync', 'full_page_writes', 'synchronous_commit')), '[]'),
    'names', current_setting('synchronous_standby_names'),
    'commit', current_setting('synchronous_commit'),
    'recovers', pg_is_in_recovery(),
    'reads_only', current_setting('default_transaction_read_only') = 'on',
    'awaited', (SELECT count(*) FROM pg_stat_replication
        WHERE coalesce(sync_state, 'unknown') <> 'async'),
    'standbys', coalesce((SELECT json_agg(coalesce(sync_state, 'unknown'))
        FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'
        AND application_name NOT IN ('pg_basebackup', 'pg_receivewal')
        AND pid NOT IN (SELECT active_pid FROM pg_replication_slots
                        WHERE slot_type = 'logical' AND active_pid IS NOT NULL)), '[]')
) #>> '{}'
"""
"""SQL query for the state of a primary or standby server.

A standby is `unknown` if the user may not read the statistics.
"""

_HOW_MANY: Final = re.compile(r"\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.IGNORECASE)

START_STANDBYS: Final = "start the missing standbys"

AWAITS_STANDBY: Final = (
    "the server waits for a standby that is not connected (synchronous_standby_names), and "
    "confirms nothing until it is; start the standby, or change that setting on the server"
)


class State(NamedTuple):
    """Settings of a PostgreSQL server that protect its data, and its standbys."""

    off: list[str]
    """Protective settings that are switched off."""
    names: str
    """Standbys for which each commit waits (`synchronous_standby_names`)."""
    commit: str
    """The setting `synchronous_commit`."""
    recovers: bool
    """True if the server is a standby itself."""
    awaited: int
    """Number of connected standbys for which a commit can wait."""
    standbys: list[str]
    """Each connected standby: sync, quorum, potential, async or unknown."""
    reads_only: bool = False
    """True if its transactions are read-only by default."""

    @property
    def no_writes(self) -> str | None:
        """Return the reason why the server refuses writes, and what to do. Return None if the
        server accepts writes."""
        if self.recovers:
            return (
                "the server is a standby and takes no writes; name all hosts in "
                "TALLYHOOK_DATABASE_URL with target_session_attrs=read-write; if the primary is "
                "lost, promote this server"
            )
        if self.reads_only:
            return (
                "the server takes no writes (default_transaction_read_only is on); ask its "
                "administrator why (a full disk, for example), and turn it off for the server, "
                "database and user"
            )
        return None

    @property
    def waits_in_vain(self) -> bool:
        """Return whether each commit waits for a standby that is not connected."""
        if not self.names or self.recovers or self.commit in ("local", "off"):
            return False
        number = _HOW_MANY.match(self.names)
        return self.awaited < (1 if number is None else int(number[1]))

    @property
    def synchronous(self) -> int:
        """Return the number of connected standbys that protect commits, or could take that
        place."""
        if not self.names or self.commit in ("local", "off"):
            return 0
        return sum(each != "async" for each in self.standbys)

    def missing(self, expected: int) -> str | None:
        """Return a sentence if fewer synchronous standbys are connected than expected. Otherwise
        return None."""
        if self.synchronous >= expected:
            return None
        why = "" if self.names else ", and synchronous_standby_names is empty"
        copies = counted(self.synchronous + 1, "copy", "copies")
        return (
            f"{self.synchronous} of {expected} synchronous standbys (TALLYHOOK_STANDBYS) copy the "
            f"server{why}: acknowledged deliveries are on {copies}"
        )

    def unsafe(self) -> Iterator[str]:
        """Yield a sentence for each kind of data that a takeover by a standby would lose now."""
        if not self.standbys:
            return
        if not self.names or set(self.standbys) == {"async"}:
            yield (
                "the standby is asynchronous: if it took over, the last acknowledged deliveries "
                "would be lost; set synchronous_standby_names on the server"
            )
        elif self.commit in ("local", "off"):
            yield (
                f"synchronous_commit={self.commit} does not wait for the standby: if it took over, "
                "the last acknowledged deliveries would be lost; set it to on"
            )


def state_of(answer: str) -> State:
    return State(**json.loads(answer))


async def server_state(connection: AsyncConnection) -> State:
    return state_of((await connection.execute(text(STATE))).scalar_one())


def check_server(cursor: Any) -> None:
    """Raise ConfigurationError if the server's settings allow a crash to lose confirmed commits."""
    cursor.execute(STATE)
    off = state_of(cursor.fetchone()[0]).off
    if off:
        raise ConfigurationError(
            [
                f"TALLYHOOK_DATABASE_URL: the server has {name}=off and would lose acknowledged "
                "deliveries; turn it on"
                for name in off
            ]
        )
