"""Schedules of transactions: which of several actors sends its next statement, drawn by a seed.

Actors are coroutines of this process, each with database connections of its own. Each stops before
every statement that it sends to PostgreSQL, commits included. One that has stopped goes on until it
stops again, waits for a lock of another, or ends. Nothing depends on how long anything takes, so a
seed gives one schedule, and a failing one can be played again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from random import Random
from typing import Any, Final, Literal
from unittest.mock import patch

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement
from sqlalchemy.engine import make_url

from tests.waiting import PATIENCE_S

Act = Callable[[], Awaitable[Any]]

LOOK_S: Final = 0.002
"""Seconds that an actor may work before the server is asked whether it waits for a lock."""

STAYING: Final = (0.0, 0.5, 0.9)
"""Probabilities, one a schedule, that the same actor goes on: others then wait for long."""

WEIGHTS: Final = (1.0, 1.0, 0.1, 0.01)
"""Speeds of actors, relative to each other: a slow one meets all that the others do."""

_SQL: Final = "SELECT pid FROM pg_locks WHERE NOT granted"


class _Actor:
    def __init__(self, name: str, schedule: "Schedule") -> None:
        self.name = name
        self.schedule = schedule
        self.state: Literal["working", "waiting", "stopped", "ended"] = "working"
        self.server_pid = 0
        self.sql = ""
        self._go_on = asyncio.Event()

    async def run(self, act: Act) -> Any:
        """Act, one statement after another as the schedule lets it."""
        _ACTOR.set(self)
        try:
            return await act()
        finally:
            self.state = "ended"
            self.schedule.changed.set()

    async def stop(self, connection: Any, sql: str) -> None:
        """Stop before a statement until the schedule lets it go on."""
        self.state, self.sql, self.server_pid = "stopped", sql, connection.get_server_pid()
        self._go_on.clear()
        self.schedule.changed.set()
        await self._go_on.wait()

    def go_on(self) -> None:
        """Let it send its statement."""
        self.state = "working"
        self._go_on.set()


_ACTOR: ContextVar[_Actor | None] = ContextVar("actor", default=None)


class Schedule:
    """One schedule. `trace` has a line for each statement, with the actor that sent it."""

    def __init__(self, seed: int) -> None:
        self.trace: list[str] = []
        self.changed = asyncio.Event()
        self._random = Random(seed)
        self._stays = self._random.choice(STAYING)
        self._weights: dict[_Actor, float] = {}

    async def play(self, url: str, acts: Mapping[str, Act]) -> None:
        """Run all actors to their ends. Raise the first error of one, with the others canceled."""
        self._weights = {_Actor(name, self): self._random.choice(WEIGHTS) for name in acts}
        async with _looking(url) as look:
            with _stopping():
                try:
                    async with asyncio.TaskGroup() as group:
                        for actor, act in zip(self._weights, acts.values(), strict=True):
                            group.create_task(actor.run(act))
                        await self._direct(look)
                except ExceptionGroup as errors:
                    raise errors.exceptions[0] from None

    async def _direct(self, look: Callable[[], Awaitable[set[int]]]) -> None:
        last: _Actor | None = None
        while True:
            async with asyncio.timeout(PATIENCE_S):
                await self._settled(look)
            stopped = [each for each in self._weights if each.state == "stopped"]
            if not stopped:
                if all(each.state == "ended" for each in self._weights):
                    return
                continue  # all wait for one another, until the server ends that
            if last not in stopped or self._random.random() >= self._stays:
                weights = [self._weights[each] for each in stopped]
                (last,) = self._random.choices(stopped, weights)
            assert last is not None
            self.trace.append(f"{last.name}: {' '.join(last.sql.split()):.200}")
            last.go_on()

    async def _settled(self, look: Callable[[], Awaitable[set[int]]]) -> None:
        """Wait until no actor works: each has stopped, waits for a lock, or has ended."""
        while True:
            self.changed.clear()
            if any(each.state == "working" for each in self._weights):
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self.changed.wait()
            under_way = [each for each in self._weights if each.state in ("working", "waiting")]
            if not under_way:
                return
            waiting = await look()
            for each in under_way:
                if each.state in ("working", "waiting"):  # it has not stopped meanwhile
                    each.state = "waiting" if each.server_pid in waiting else "working"
            if all(each.state != "working" for each in self._weights):
                return


@asynccontextmanager
async def _looking(url: str) -> AsyncIterator[Callable[[], Awaitable[set[int]]]]:
    """Yield what asks the server which of its processes wait for a lock."""
    address = make_url(url).set(drivername="postgresql")
    connection = await asyncpg.connect(address.render_as_string(hide_password=False))

    async def look() -> set[int]:
        return {row[0] for row in await connection.fetch(_SQL)}

    try:
        yield look
    finally:
        await connection.close()


@contextmanager
def _stopping() -> Iterator[None]:
    """Stop actors in the driver, through which all statements pass."""
    prepared, execute, fetch, copy = (
        PreparedStatement.fetch,
        asyncpg.Connection.execute,
        asyncpg.Connection.fetch,
        asyncpg.Connection.copy_records_to_table,
    )

    async def stop(connection: Any, sql: str) -> None:
        actor = _ACTOR.get()
        if actor is not None:
            await actor.stop(connection, sql)

    async def run_prepared(statement: Any, *args: Any, **words: Any) -> Any:
        await stop(statement._connection, statement.get_query())
        return await prepared(statement, *args, **words)

    async def run_text(connection: Any, sql: str, *args: Any, **words: Any) -> Any:
        await stop(connection, sql)
        return await execute(connection, sql, *args, **words)

    async def run_query(connection: Any, sql: str, *args: Any, **words: Any) -> Any:
        await stop(connection, sql)
        return await fetch(connection, sql, *args, **words)

    async def run_copy(connection: Any, table: str, **words: Any) -> Any:
        await stop(connection, f"COPY {table}")
        return await copy(connection, table, **words)

    with (
        patch.object(asyncpg.Connection, "copy_records_to_table", run_copy),
        patch.object(PreparedStatement, "fetch", run_prepared),
        patch.object(asyncpg.Connection, "execute", run_text),
        patch.object(asyncpg.Connection, "fetch", run_query),
    ):
        yield
