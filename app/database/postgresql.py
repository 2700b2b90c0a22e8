"""PostgreSQL connections: how they are opened and checked, and how transactions run on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.core.errors import StorePoisoned, StoreUnavailable
from app.database import holders, statements
from app.database.faults import POOLED, TAKES_NO_WRITES
from app.database.holders import SESSION, TAKEN_OVER, Found, Holder, find, hold
from app.database.layout import follow_layout
from app.database.statements import Ask, PlainConnection, Result, run, statement

if TYPE_CHECKING:
    import asyncpg

    from app.database.hosts import Connection, Hosts

Purpose = Literal["serving", "working", "alone", "upgrading", "writing", "folding", "reading"]
"""Purpose for which a database is opened. `Database.open` explains the purposes."""

ANSWER_S: Final = 20
"""Seconds that a client waits for the answer to a statement or commit.

After a timeout, nobody knows whether the commit succeeded.
"""

COMMIT_S: Final = 5.0
"""Seconds within which the server must confirm a commit of a receiver or worker. Receivers and
workers have only small transactions."""

STATEMENT_MS: Final = 15_000
"""Milliseconds that the server may take for a statement. The server enforces this limit even if the
client is gone."""

LOCK_MS: Final = 10_000
"""Milliseconds for which a statement may wait for another transaction's lock. Transactions usually
take milliseconds."""

IDLE_MS: Final = 5_000
"""Milliseconds for which a writing transaction may be idle. After this time, the server ends the
transaction and frees its locks."""

READING_IDLE_MS: Final = 3_600_000
"""Milliseconds for which a reading transaction may be idle; long, for scans of the database."""

SERVER_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""Settings by which the server notices within ten seconds that a client is lost, and frees the
client's locks."""

SILENCE_MS: Final = 30_000
"""Milliseconds of silence after which a client ends the connection to a server. The kernel's
default is hours."""

CLIENT_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS),
)

VACUUM_S: Final = 24 * 3_600
"""Maximum seconds for a VACUUM. Large tables on a slow disk take hours."""


def writing_engine(
    url: str, *, purpose: Purpose, hosts: Hosts, check: Callable[[Any], None], session: str
) -> AsyncEngine:
    """Return the engine of the connection that writes.

    Statements and locks have time limits if the purpose has short transactions.

    check    called with a cursor of each new connection
    session  text by which a connection changed by a pooler is noticed
    """
    statements.tables()  # load now, not while the first batch waits
    hurried = purpose in ("serving", "working", "writing")
    settings = {
        **_limits(
            STATEMENT_MS if hurried else 0, lock_ms=LOCK_MS if hurried else 0, idle_ms=IDLE_MS
        ),
        SESSION: session,
        # Decisions under a lock must use rows that were read after the lock was taken.
        "default_transaction_isolation": "read committed",
        # Statistics lag behind a table that grows a thousandfold within a minute, and every
        # statement of the intake has its index.
        "enable_seqscan": "off",
        # Before version 18 a disabled scan costs so much in plans that each plan with one, of a
        # small table, would be compiled for a second.
        "jit": "off",
    }
    commit_s = COMMIT_S if purpose in ("serving", "working") else None
    engine = create_async_engine(
        url,
        pool_size=1,
        max_overflow=0,
        connect_args={
            **_arguments(purpose, answer_s=ANSWER_S if hurried else None),
            "async_creator_fn": partial(hosts.connect, writes=True, commit_s=commit_s),
        },
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        set_up(connection, settings)
        cursor = connection.cursor()
        check(cursor)
        # Otherwise the problem would only show when the first delivery is refused.
        cursor.execute("SHOW transaction_read_only")
        if cursor.fetchone()[0] == "on":
            raise StoreUnavailable(TAKES_NO_WRITES)
        cursor.close()
        connection.commit()

    follow_layout(engine.sync_engine)
    return engine


def reading_engine(
    url: str, *, readers: int, hosts: Hosts, check: Callable[[Ask], None] | None
) -> AsyncEngine:
    """Return the engine of the connections that only read. Each transaction has one snapshot.

    check  called for each new connection
    """
    settings = {**_limits(0, lock_ms=LOCK_MS, idle_ms=READING_IDLE_MS), SESSION: "reading"}
    engine = create_async_engine(
        url,
        pool_size=readers,
        max_overflow=0,
        pool_pre_ping=True,  # so that a server restart causes no error in a reader
        isolation_level="REPEATABLE READ",
        execution_options={"postgresql_readonly": True},
        connect_args={
            **_arguments("reading", answer_s=None),
            "async_creator_fn": partial(hosts.connect, writes=False),
        },
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        set_up(connection, settings)
        if check is not None:
            cursor = connection.cursor()

            def ask(sql: str) -> Any:
                cursor.execute(sql)
                return cursor.fetchall()

            check(ask)
            cursor.close()
            connection.rollback()

    follow_layout(engine.sync_engine)
    event.listen(engine.sync_engine, "checkout", lambda *_: hosts.look_sometimes())
    return engine


def keep_alive(connection: Any) -> None:
    """Make the kernel abort a connection whose server is silent for 30 seconds."""
    ours = connection.driver_connection._transport.get_extra_info("socket")
    if ours.family != socket.AF_UNIX:
        for level, option, value in CLIENT_KEEPALIVE:
            ours.setsockopt(level, option, value)


def _limits(statement_ms: int, *, lock_ms: int, idle_ms: int) -> dict[str, str]:
    return {
        "statement_timeout": str(statement_ms),
        "lock_timeout": str(lock_ms),
        "idle_in_transaction_session_timeout": str(idle_ms),
        **SERVER_KEEPALIVE,
    }


def _arguments(purpose: str, *, answer_s: float | None) -> dict[str, Any]:
    return {
        "command_timeout": answer_s,
        # Poolers refuse or drop other settings here: see `set_up`.
        "server_settings": {"application_name": f"tallyhook {purpose}"},
    }


def set_up(connection: Any, settings: dict[str, str]) -> None:
    """Set a new connection's limits, and read them back in another transaction.

    Raises StoreUnavailable if a pooler has lost them.
    """
    keep_alive(connection)
    cursor = connection.cursor()
    cursor.execute(_SET, (list(settings), list(settings.values())))
    set_to = cursor.fetchall()
    connection.commit()
    cursor.execute(_READ_BACK, (list(settings),))
    found = cursor.fetchall()
    cursor.close()
    connection.commit()
    if found != set_to:
        raise StoreUnavailable(POOLED)


_SET: Final = (
    "SELECT name, set_config(name, value, false) FROM unnest($1::text[], $2::text[]) "
    "AS wanted (name, value)"
)
_READ_BACK: Final = (
    "SELECT name, current_setting(name, true) FROM unnest($1::text[]) AS wanted (name)"
)


async def vacuum(connection: AsyncConnection, tables: Sequence[str]) -> None:
    """Run VACUUM on the given tables without the usual time limit. No transaction may be open."""
    driver = await _driver(connection)
    limit = await driver.fetchval("SHOW statement_timeout")
    await driver.execute("SET statement_timeout = 0")
    try:
        sql = statement("VACUUM {tables}", tables=", ".join(tables))
        await driver.execute(sql, timeout=VACUUM_S)  # None would mean ANSWER_S
    finally:
        await driver.fetchval("SELECT set_config('statement_timeout', $1, false)", limit)


# --- transactions --------------------------------------------------------------------------------


async def enter(connection: AsyncConnection, holder: Holder) -> None:
    """Register this writer in the database's table of holders, again after a lost connection.

    Waits for conflicting writers that no longer respond. Raises StorePoisoned, StoreUnavailable or
    UsageError if the registration is refused.
    """
    if await connection.scalar(text("SELECT to_regclass('holders')")) is None:
        return await connection.rollback()
    await connection.rollback()
    silent: list[Found] = []
    while True:
        async with transaction(connection, None):
            silent = await run(connection, holders.enter, holder, silent=silent)
        if not silent:
            return
        await asyncio.sleep(2 * holders.BEAT_S)


async def leave(connection: AsyncConnection, holder: Holder) -> None:
    """Delete a writer's registration when its process ends."""
    if holder.epoch:
        await run_transaction(connection, partial(holders.leave, holder=holder), holder=None)


async def run_transaction(
    connection: AsyncConnection,
    function: Callable[[PlainConnection], Result],
    *,
    holder: Holder | None,
) -> Result:
    """Run a plain function as one transaction, and return its result.

    No transaction may be open.

    holder  registered writer whose row is locked first, if any
    """
    async with transaction(connection, holder):
        return await run(connection, function)


async def run_statement(
    connection: AsyncConnection, sql: str, values: Sequence[Any], *, holder: Holder
) -> None:
    """Run one statement as a transaction of a registered writer, in one round trip.

    No transaction may be open.

    sql  statement that begins with the text of `HELD`, and returns the row's location last
    """
    driver = await _driver(connection)
    # In a transaction it would wait for a COMMIT that nobody sends, and be acknowledged.
    assert not driver.is_in_transaction()
    for _ in range(2):
        before, own = holder.newest, holder.begin()
        with driver.watched(), _committing(driver, holder):
            held = await driver.fetch(statements.numbered(sql), *own, *values)
        if held:
            holder.row = held[0][-1]
            return
        holder.newest = before
        await run_transaction(connection, partial(find, holder=holder), holder=None)
    raise StorePoisoned(TAKEN_OVER)


@asynccontextmanager
async def transaction(connection: AsyncConnection, holder: Holder | None) -> AsyncIterator[None]:
    """Run the block as a transaction of this registered writer. No transaction may be open.

    Raises StoreUnavailable for an unusable connection or a commit that did not wait for its
    standby, and StorePoisoned if another process took over.
    """
    driver = await _driver(connection)
    with driver.watched():
        async with connection.begin() as begun:
            if holder is not None and holder.epoch:
                await run(connection, hold, holder)
            yield
            with _committing(driver, holder):
                await begun.commit()


async def _driver(connection: AsyncConnection) -> Connection:
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    return cast("Connection", driver)


async def is_lost(connection: AsyncConnection) -> bool:
    """Return whether a connection has ended. On such a connection, the driver may raise
    AttributeError."""
    if connection.dialect.name == "sqlite":
        return False
    return connection.invalidated or (await _driver(connection)).is_closed()


_OF_NUMBERS: Final = "varsup.c"
"""Source file of PostgreSQL's warning that few transaction numbers are left, which is ignored."""


@contextmanager
def _committing(driver: Connection, holder: Holder | None) -> Iterator[None]:
    """Abort the connection if the server does not confirm the block's commit in time.

    Raises StoreUnavailable if the server did not wait for its standby; do not acknowledge the
    deliveries then.
    """
    warnings: list[object] = []

    def hear(_connection: object, message: asyncpg.PostgresLogMessage) -> None:
        known = message.server_source_filename == _OF_NUMBERS
        if message.severity_en == "WARNING" and not known:
            warnings.append(message)

    driver.add_log_listener(hear)
    if holder is not None:
        holder.committing()
    try:
        with driver.confirming():
            yield
    finally:
        driver.remove_log_listener(hear)
    if warnings:
        raise StoreUnavailable("the database server did not wait for its standby; try again")
    if holder is not None:
        holder.committed()
