"""PostgreSQL: how connections are made and checked, and how transactions run on them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.core.errors import StoreUnavailable, UsageError
from app.database import statements
from app.database.faults import TAKES_NO_WRITES
from app.database.locks import SERVING
from app.database.statements import PlainConnection, Result, run, statement

if TYPE_CHECKING:
    import asyncpg

    from app.database.hosts import Connection, Hosts

Purpose = Literal["serving", "working", "alone", "upgrading", "writing", "folding", "reading"]
"""What a store is opened for: see `open_store`. Only the first three exclude other processes."""

ANSWER_S: Final = 20
"""Seconds within which any statement must be answered, also a commit that waits for a standby. Then
the connection is given up: whether the transaction committed is unknown."""

COMMIT_S: Final = 5.0
"""The same for a commit of a receiver or worker: none of their commits is large."""

STATEMENT_MS: Final = 15_000
"""How long the server works on one statement. It does not notice that its client has gone away."""

LOCK_MS: Final = 10_000
"""How long a statement waits for another transaction. Transactions take milliseconds."""

IDLE_MS: Final = 60_000
"""How long a transaction may be idle before the server ends it and releases its locks."""

READING_IDLE_MS: Final = 3_600_000
"""The same for one that only reads: it blocks nothing but an upgrade, and a full scan keeps its
snapshot while other processes work."""

SERVER_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""With these the server notices within some ten seconds that a client's machine is gone. Until then
that client holds its locks, and nobody else reads the inbox."""

SILENCE_MS: Final = 30_000
"""After this silence a client gives the server up. Else it would wait for hours."""

CLIENT_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS),
)

VACUUM_S: Final = 24 * 3_600
"""How long a VACUUM may take: hours, where tables are large and the disk is slow."""


def writing_engine(
    url: str, *, purpose: Purpose, hosts: Hosts, check: Callable[[Any], None]
) -> AsyncEngine:
    """Make the engine of the connection that writes. `check` gets a cursor of each new one.

    Only the purposes of short transactions have time limits.
    """
    statements.tables()  # now, not while the first batch waits
    hurried = purpose in ("serving", "working", "writing")
    limits = _limits(STATEMENT_MS, idle_ms=IDLE_MS) if hurried else {}
    settings = {
        **limits,
        # What is decided under a lock rests on rows that are read after the lock was taken.
        "default_transaction_isolation": "read committed",
        # Statistics lag behind a table that grows a thousandfold within a minute, and every
        # statement of the intake has its index.
        "enable_seqscan": "off",
        # Before version 18 a disabled scan costs so much in plans that each plan with one, of a
        # small table, would be compiled for a second.
        "jit": "off",
        "application_name": f"tallyhook {purpose}",
    }
    commit_s = COMMIT_S if purpose in ("serving", "working") else None
    engine = create_async_engine(
        url,
        pool_size=1,
        max_overflow=0,
        connect_args={
            **_arguments(settings, answer_s=ANSWER_S if hurried else None),
            "async_creator_fn": partial(hosts.connect, writes=True, commit_s=commit_s),
        },
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        keep_alive(connection)
        cursor = connection.cursor()
        check(cursor)
        # Else nobody would know before the first delivery is refused.
        cursor.execute("SHOW transaction_read_only")
        if cursor.fetchone()[0] == "on":
            raise StoreUnavailable(TAKES_NO_WRITES)
        _take_place(cursor, purpose)
        cursor.close()
        connection.commit()

    return engine


def reading_engine(url: str, *, readers: int, hosts: Hosts) -> AsyncEngine:
    """Make the engine of connections that only read, each transaction on one snapshot."""
    limits = _limits(0, idle_ms=READING_IDLE_MS)
    settings = {**limits, "application_name": "tallyhook reading"}
    engine = create_async_engine(
        url,
        pool_size=readers,
        max_overflow=0,
        pool_pre_ping=True,  # a server that was restarted costs no reader an error
        isolation_level="REPEATABLE READ",
        execution_options={"postgresql_readonly": True},
        connect_args={
            **_arguments(settings, answer_s=None),
            "async_creator_fn": partial(hosts.connect, writes=False),
        },
    )
    event.listen(engine.sync_engine, "connect", lambda connection, _: keep_alive(connection))
    return engine


def keep_alive(connection: Any) -> None:
    """Have the kernel break off the connection once its server is silent for SILENCE_MS."""
    ours = connection.driver_connection._transport.get_extra_info("socket")
    if ours.family != socket.AF_UNIX:
        for level, option, value in CLIENT_KEEPALIVE:
            ours.setsockopt(level, option, value)


def _limits(statement_ms: int, *, idle_ms: int) -> dict[str, str]:
    return {
        "statement_timeout": str(statement_ms),
        "lock_timeout": str(LOCK_MS),
        "idle_in_transaction_session_timeout": str(idle_ms),
    }


def _arguments(settings: dict[str, str], *, answer_s: float | None) -> dict[str, Any]:
    return {
        "command_timeout": answer_s,
        "server_settings": settings | SERVER_KEEPALIVE,
    }


_ALONE: Final = "SELECT pg_try_advisory_lock($1)"
_SHARED: Final = "SELECT pg_try_advisory_lock_shared($1)"


def _take_place(cursor: Any, purpose: Purpose) -> None:
    """Take the lock to serve beside others, or to be alone, for as long as the connection lives."""
    if purpose not in ("serving", "working", "alone"):
        return
    cursor.execute(_ALONE if purpose == "alone" else _SHARED, (SERVING,))
    if cursor.fetchone()[0]:
        return
    if purpose != "alone":
        raise StoreUnavailable("another process rebuilds this database; try again when it is done")
    raise UsageError("another process serves this database; stop all of them first")


async def vacuum(connection: AsyncConnection, tables: Sequence[str]) -> None:
    """Vacuum some tables on a connection that is in no transaction, however long it takes."""
    driver = await _driver(connection)
    await driver.execute("SET statement_timeout = 0")
    try:
        sql = statement("VACUUM {tables}", tables=", ".join(tables))
        await driver.execute(sql, timeout=VACUUM_S)  # None would stand for ANSWER_S
    finally:
        await driver.execute("RESET statement_timeout")


# --- transactions --------------------------------------------------------------------------------


async def run_transaction(
    connection: AsyncConnection, function: Callable[[PlainConnection], Result]
) -> Result:
    """Run a plain function as one transaction, on a connection that is in none."""
    async with transaction(connection):
        return await run(connection, function)


async def run_statement(connection: AsyncConnection, sql: str, values: Sequence[Any]) -> None:
    """Run one statement as a transaction, on a connection that is in none. Without SQLAlchemy this
    is one round trip instead of three."""
    driver = await _driver(connection)
    # In a transaction it would wait for a COMMIT that nobody sends, and be acknowledged.
    assert not driver.is_in_transaction()
    with driver.watched(), _committing(driver):
        await driver.fetch(statements.numbered(sql), *values)


@asynccontextmanager
async def transaction(connection: AsyncConnection) -> AsyncIterator[None]:
    """Open a transaction on a connection that is in none. Raises as `_committing` does."""
    driver = await _driver(connection)
    with driver.watched():
        async with connection.begin() as begun:
            yield
            with _committing(driver):
                await begun.commit()


async def _driver(connection: AsyncConnection) -> Connection:
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    return cast("Connection", driver)


_OF_NUMBERS: Final = "varsup.c"
"""Source file of the server's warning that transaction numbers will run out. It comes with every
statement that takes one, from forty million numbers before the end on."""


@contextmanager
def _committing(driver: Connection) -> Iterator[None]:
    """Give up a commit in the block that is not confirmed in time, and raise StoreUnavailable for
    one that did not wait for the standby.

    A wait that is broken off ends as a commit with a warning: it could be lost with the server's
    machine, so it must not be acknowledged.
    """
    warnings: list[object] = []

    def hear(_connection: object, message: asyncpg.PostgresLogMessage) -> None:
        known = message.server_source_filename == _OF_NUMBERS
        if message.severity_en == "WARNING" and not known:
            warnings.append(message)

    driver.add_log_listener(hear)
    try:
        with driver.confirming():
            yield
    finally:
        driver.remove_log_listener(hear)
    if warnings:
        raise StoreUnavailable("the server did not wait for its standby; try again")
