"""PostgreSQL: how connections are made, what they are asked first, how transactions run on them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.core.errors import StoreUnavailable, UsageError
from app.database import statements
from app.database.faults import TAKES_NO_WRITES
from app.database.locks import SERVING
from app.database.statements import PlainConnection, Result, run, statement

if TYPE_CHECKING:
    import asyncpg

Purpose = Literal["serving", "working", "alone", "upgrading", "writing", "folding", "reading"]
"""What a store is opened for: see `open_store`. Only the first three keep others away."""

CONNECT_S: Final = 5
"""How long a connection may take to be made."""

ANSWER_S: Final = 20
"""How long any statement may take to be answered, a commit that waits for a standby included. When
it is over, the connection is given up: nobody knows what became of the transaction."""

STATEMENT_MS: Final = 15_000
"""How long the server works on one statement of ours: it goes on when we have gone away."""

LOCK_MS: Final = 10_000
"""How long a statement waits for another transaction. Transactions take milliseconds."""

IDLE_MS: Final = 60_000
"""How long a transaction may lie idle before the server ends it, and with it its locks."""

READING_IDLE_MS: Final = 3_600_000
"""The same of one that only reads. It holds up nobody but an upgrade, and what reads all there is
keeps its snapshot while other processes work."""

SERVER_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""By which the server knows within some ten seconds that a machine of ours is gone without a word.
Until then that one has its locks: nobody else reads the inbox."""

SILENCE_MS: Final = 30_000
"""After which we know the same of the server: else who asked it would wait for hours."""

CLIENT_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS),
)

VACUUM_S: Final = 24 * 3_600
"""How long tables may take to be vacuumed: hours, where they are large and the disk is slow."""


def writing_engine(url: str, *, purpose: Purpose, check: Callable[[Any], None]) -> AsyncEngine:
    """The engine of the connection that writes. `check` is given a cursor of each new one.

    What goes through the whole database may take as long as it takes.
    """
    statements.tables()  # now, not while the first batch waits
    hurried = purpose in ("serving", "working", "writing")
    limits = _limits(STATEMENT_MS, idle_ms=IDLE_MS) if hurried else {}
    # A table that grows a thousandfold within a minute is not what the planner's statistics say;
    # every statement of the intake has its index.
    settings = {
        **limits,
        # What is decided under a lock rests on what is seen after it was taken.
        "default_transaction_isolation": "read committed",
        "enable_seqscan": "off",
        # Before version 18 that is a cost beyond all others: each plan that reads a small table
        # whole would be compiled for a second.
        "jit": "off",
        "application_name": f"tallyhook {purpose}",
    }
    engine = create_async_engine(
        url,
        pool_size=1,
        max_overflow=0,
        connect_args=_arguments(settings, answer_s=ANSWER_S if hurried else None),
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        keep_alive(connection)
        cursor = connection.cursor()
        check(cursor)
        _require_writes(cursor)
        _take_place(cursor, purpose)
        cursor.close()
        connection.commit()

    return engine


def reading_engine(url: str, *, readers: int) -> AsyncEngine:
    """The engine of connections that only read, each transaction on one snapshot."""
    limits = _limits(0, idle_ms=READING_IDLE_MS)
    settings = {**limits, "application_name": "tallyhook reading"}
    engine = create_async_engine(
        url,
        pool_size=readers,
        max_overflow=0,
        pool_pre_ping=True,  # a server that was restarted costs no reader an error
        isolation_level="REPEATABLE READ",
        execution_options={"postgresql_readonly": True},
        connect_args=_arguments(settings, answer_s=None),
    )
    event.listen(engine.sync_engine, "connect", lambda connection, _: keep_alive(connection))
    return engine


def keep_alive(connection: Any) -> None:
    """Have a connection broken off whose server is gone without a word."""
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
        "timeout": CONNECT_S,
        "command_timeout": answer_s,
        "server_settings": settings | SERVER_KEEPALIVE,
    }


def _require_writes(cursor: Any) -> None:
    """Asked of each new connection: else nobody would know before the first delivery is refused."""
    cursor.execute("SHOW transaction_read_only")
    if cursor.fetchone()[0] == "on":
        raise StoreUnavailable(TAKES_NO_WRITES)


_ALONE: Final = "SELECT pg_try_advisory_lock($1)"
_SHARED: Final = "SELECT pg_try_advisory_lock_shared($1)"


def _take_place(cursor: Any, purpose: Purpose) -> None:
    """Serve beside others that serve, or rebuild alone. The lock is the connection's."""
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
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
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
    """Run one statement as a transaction of its own, on a connection that is in none: one round
    trip in place of three, and past SQLAlchemy."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    # In a transaction it would wait for a COMMIT that nobody sends, and be acknowledged.
    assert not driver.is_in_transaction()
    async with _committing(driver):
        await driver.fetch(statements.numbered(sql), *values)


@asynccontextmanager
async def transaction(connection: AsyncConnection) -> AsyncIterator[None]:
    """One transaction, on a connection that is in none. Raises as `_committing` does."""
    driver = (await connection.get_raw_connection()).driver_connection
    async with connection.begin() as begun:
        yield
        async with _committing(driver):
            await begun.commit()


_OF_NUMBERS: Final = "varsup.c"
"""The part of the server that warns, at each statement which takes one, that the numbers of its
transactions will run out: some forty million of them before that is so."""


@asynccontextmanager
async def _committing(driver: Any) -> AsyncIterator[None]:
    """Around what commits. Raises StoreUnavailable where the server has not waited for its standby:
    its wait was broken off, it commits with a warning, and what was committed could be lost with
    its machine, so it is not acknowledged. What else it may say of a statement is no such thing."""
    warnings: list[object] = []

    def hear(_connection: object, message: asyncpg.PostgresLogMessage) -> None:
        known = message.server_source_filename == _OF_NUMBERS
        if message.severity_en == "WARNING" and not known:
            warnings.append(message)

    driver.add_log_listener(hear)
    try:
        yield
    finally:
        driver.remove_log_listener(hear)
    if warnings:
        raise StoreUnavailable("the server did not wait for its standby; try again")
