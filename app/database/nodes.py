"""Find the state of all servers that hold rows or copies of rows.

    the server itself   asked over a reading connection
    other named hosts   each asked over a separate connection
    nodes of Citus      each asked through the coordinator

Each question has a time limit, because a frozen server never answers.
"""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Final, NamedTuple

from app.core.errors import StoreUnavailable
from app.database.database import Database
from app.database.servers import START_STANDBYS, STATE, State, server_state, state_of
from app.database.statements import PlainConnection

ANSWER_MS: Final = 1_500
"""Milliseconds within which a node of a Citus cluster must answer its coordinator."""

AGAIN_S: Final = 5.0
"""Seconds for which the servers' answers are reused, so that frequent requests of `/readyz` do not
burden the servers."""

_NODES: Final = """
SELECT nodename, nodeport FROM pg_dist_node
WHERE isactive AND noderole = 'primary' AND groupid <> 0 ORDER BY nodename, nodeport
"""

_ASK_NODE: Final = """
SELECT success, result
FROM master_run_on_worker(ARRAY[?::text], ARRAY[?::int], ARRAY[?::text], false)
"""

_BOUNDED: Final = (
    "SELECT set_config('statement_timeout', ?, true), "
    "set_config('citus.node_connection_timeout', ?, true)"
)


class Nodes(NamedTuple):
    """States of all database servers, as of the last time they were asked."""

    own: State | None
    """The server that this process reads. None on SQLite."""
    hosts: Mapping[str, State | None]
    """Each named host if there are several. None for a host without an answer."""
    rows: Mapping[str, State | None]
    """Each Citus node that holds rows. None for a node without an answer."""

    def down(self) -> list[str]:
        """Return a sentence for each node that holds rows and does not answer."""
        return [
            f"the database node {name} does not answer, and its rows can neither be read nor "
            "written; start it"
            for name, state in self.rows.items()
            if state is None
        ]

    def unsafe(self, expected: int) -> list[str]:
        """Return a sentence for each kind of data that could be lost, and each unusable standby.

        expected  number of synchronous standbys that each server with rows must have
        """
        leaders = {"": self.own} | {f"node {name}: ": each for name, each in self.rows.items()}
        found = list[str]()
        for name, state in leaders.items():
            if state is not None:
                found += [f"{name}{each}" for each in state.unsafe()]
                if missing := state.missing(expected):
                    found.append(f"{name}{missing}; {START_STANDBYS}")
        copies = {f"server {name} of TALLYHOOK_DATABASE_URL": s for name, s in self.hosts.items()}
        found += [
            f"the database {name} does not answer, so it could not take over; start it"
            for name, state in copies.items()
            if state is None
        ]
        named = copies if len(copies) > 1 else {"server": self.own}
        named |= {f"node {name}": state for name, state in self.rows.items()}
        found += [
            f"the database {name} has {setting}=off and would lose acknowledged deliveries; turn "
            "it on"
            for name, state in named.items()
            if state is not None
            for setting in state.off
        ]
        return found


class NodesWatch:
    """Monitor of a database's servers. The servers' latest answers are kept for a short time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._seen, self._again_at = Nodes(None, {}, {}), 0.0

    async def look(self) -> Nodes:
        """Return the state of all database servers, at most a few seconds old. Raise
        StoreUnavailable if the main server cannot be read."""
        database = self._database
        if database.hosts is None:
            return self._seen
        async with self._asking:  # callers that wait here get these answers
            if monotonic() >= self._again_at:
                async with database.reading() as connection:
                    own = await server_state(connection)
                self._seen = Nodes(own, await database.hosts.states(), await self._rows())
                self._again_at = monotonic() + AGAIN_S
            return self._seen

    async def _rows(self) -> dict[str, State | None]:
        """Return the state of each Citus node; None without an answer.

        Each is asked in its own transaction, so that a timeout stays its own.
        """
        found = dict[str, State | None]()
        for host, port in await self._database.on_snapshot(_nodes):
            try:
                state = await self._database.on_snapshot(_state_of_node, host, port)
            except StoreUnavailable:  # the coordinator has answered just now
                state = None
            found[f"{host}:{port}"] = state
        return found


def _nodes(connection: PlainConnection) -> list[tuple[str, int]]:
    ((there,),) = connection.ask("SELECT to_regclass('pg_dist_node') IS NOT NULL")
    return [(host, port) for host, port in connection.ask(_NODES)] if there else []


def _state_of_node(connection: PlainConnection, host: str, port: int) -> State | None:
    connection.ask(_BOUNDED, (str(2 * ANSWER_MS), str(ANSWER_MS)))
    ((answers, result),) = connection.ask(_ASK_NODE, (host, port, STATE))
    return state_of(result) if answers else None
