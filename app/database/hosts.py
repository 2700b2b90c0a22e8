"""Choose among the servers that TALLYHOOK_DATABASE_URL names, and leave a replaced server.

    1 connect   to the hosts in turn, until one can be used                  `Hosts.connect`
    2 watch     whether another server writes while a transaction lasts      `Connection.watched`
    3 leave     a former server: its host is tried last                      `Hosts.leave`

Only a newer timeline proves a takeover. All connections to the former server are then closed,
because they would read outdated data.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import asyncpg

from app.core.errors import StoreUnavailable
from app.core.logs import log
from app.database.servers import AWAITS_STANDBY, STATE, State, state_of

CONNECT_S: Final = 5.0

HOST_S: Final = 2.0
"""Seconds for connecting to one host, if several hosts are configured. A silent host delays the
connection by this time only."""

CLOSE_S: Final = 0.5
"""Maximum seconds for which closing a connection waits for the server. A frozen server never
answers."""

WATCH_S: Final = 1.0
"""Seconds between two checks, during a transaction, whether another server has taken over."""

LOOK_S: Final = 5.0
"""Minimum seconds between two checks for a takeover in a process that only reads."""

ROUND_DIVISOR: Final = 10
"""Divisor of the time since the first check for the pause until the next, at least a second."""

FORMER: Final = (
    "the server is on an older timeline than the one used before, so it is a former primary; stop "
    "it or, if a backup was restored, start this service again"
)

_UNUSABLE: Final = (
    *(OSError, asyncpg.PostgresError, asyncpg.InterfaceError),
    asyncpg.InternalClientError,  # a standby, although writes are needed
)

Address = tuple[str | None, int | None]
"""Address of a server: its host, or the folder of its socket, and its port. None leaves the choice
to the driver."""

_SERVER: Final = """
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
       CASE WHEN NOT pg_is_in_recovery()
             AND has_function_privilege('pg_walfile_name(pg_lsn)', 'execute')
            THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) ELSE '' END
"""


class Server(NamedTuple):
    """Identity of a running PostgreSQL server."""

    refuses_writes: bool
    """True if the server is a standby, or read-only."""
    timeline: str
    """Eight hexadecimal digits that grow with each takeover. Empty if unknown."""

    def succeeds(self, other: "Server") -> bool:
        """Return whether this server has taken over from `other` and accepts writes."""
        return not self.refuses_writes and "" < other.timeline < self.timeline


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """Connection to a PostgreSQL server that knows its server's identity. `Hosts` creates such
    connections."""

    hosts: "Hosts"
    address: Address
    server: Server
    commit_s: float | None
    """Seconds within which a commit must be confirmed. With None, the time limit of all statements
    applies."""

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Close the connection properly. Abort the connection if the server does not answer within
        half a second."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await super().close(timeout=timeout)
        except TimeoutError:
            self.terminate()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Abort the connection if another server takes over while the block is running."""
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
        begin = loop.call_later(WATCH_S, lambda: tasks.append(loop.create_task(self.hosts.watch())))
        try:
            yield
        finally:
            begin.cancel()
            for task in tasks:
                task.cancel()

    @contextmanager
    def confirming(self) -> Iterator[None]:
        """Abort the connection if the block's commit is not confirmed within `commit_s` seconds.
        Nobody then knows whether the commit succeeded."""
        limit = None
        if self.commit_s is not None:
            loop = asyncio.get_running_loop()
            leave = partial(self.hosts.leave, self, reason="commit_unconfirmed")
            limit = loop.call_later(self.commit_s, leave)
        try:
            yield
        finally:
            if limit is not None:
                limit.cancel()


class Hosts:
    """Hosts of one PostgreSQL URL. All connections of a process share this object."""

    def __init__(self) -> None:
        self._left: dict[Address, float] = {}
        """Time at which each host was last left or could not be used."""
        self._made = WeakSet[Connection]()
        self._looked_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._timeline = ""
        """Newest timeline to which this process has written."""
        self._addresses: Sequence[Address] = ()
        self._words: dict[str, Any] = {}

    async def connect(
        self,
        *,
        writes: bool,
        commit_s: float | None = None,
        host: str | Sequence[str] | None = None,
        port: int | Sequence[int] | None = None,
        **words: Any,
    ) -> Connection:
        """Connect to the first usable host. Hosts that failed earlier are tried last.

        Of several hosts, one that accepts writes is used, unless the URL says otherwise.

        words  further arguments for the driver

        Raises the driver's errors, and StoreUnavailable if a server would not confirm commits.
        """
        addresses = _addresses(host, port)
        words |= {"timeout": CONNECT_S if len(addresses) == 1 else HOST_S}
        if len(addresses) > 1:
            words.setdefault("target_session_attrs", "read-write")
        self._addresses, self._words = addresses, words
        failures = list[Exception]()
        for address in sorted(addresses, key=lambda each: self._left.get(each, 0.0)):
            try:
                connection = await self._reach(address, writes=writes, **words)
            except _UNUSABLE as error:
                failures.append(error)
            except StoreUnavailable as error:
                failures.insert(0, error)  # says more than other hosts' failures
            else:
                connection.commit_s = commit_s
                return connection
            self._left[address] = monotonic()
        raise failures[0]

    async def _reach(self, address: Address, *, writes: bool, **words: Any) -> Connection:
        """Connect to one host. Raise StoreUnavailable if its server was replaced or lacks its
        standby."""
        connection = await _connected(address, words)
        try:
            async with asyncio.timeout(words["timeout"]):
                server = connection.server = Server(*await connection.fetchrow(_SERVER))
                if server.timeline and server.timeline < self._timeline:
                    raise StoreUnavailable(FORMER)
                if writes and state_of(await connection.fetchval(STATE)).waits_in_vain:
                    raise StoreUnavailable(AWAITS_STANDBY)
        except BaseException:
            connection.terminate()
            raise
        connection.hosts, connection.address = self, address
        if writes:
            self._timeline = max(self._timeline, server.timeline)
            self._follow(server)
        self._made.add(connection)
        return connection

    async def watch(self) -> None:
        """Ask all hosts again and again whether another server has taken over."""
        began = monotonic()
        while True:
            await self._look()
            await asyncio.sleep(max(WATCH_S, (monotonic() - began) / ROUND_DIVISOR))

    def look_sometimes(self) -> None:
        """Ask all hosts in the background whether another server has taken over, unless they were
        asked a few seconds ago."""
        if len(self._addresses) > 1 and monotonic() >= self._looked_at + LOOK_S:
            self._looked_at = monotonic()
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        async with _asked(self._addresses, self._words) as answers:
            for answer in asyncio.as_completed(answers):
                row = await answer
                if row is not None:
                    self._follow(Server(*row))

    def _follow(self, server: Server) -> None:
        former = [each for each in self._made if server.succeeds(each.server)]
        self.leave(*former, reason="another_writes")

    async def states(self) -> dict[str, State | None]:
        """Return the state of each host's server, None without an answer; empty for one host."""
        if len(self._addresses) < 2:
            return {}
        asked = [_answer(each, self._words, STATE) for each in self._addresses]
        found = zip(self._addresses, await asyncio.gather(*asked), strict=True)
        return {
            f"{host}:{port}": None if row is None else state_of(row[0])
            for (host, port), row in found
        }

    def leave(self, *connections: Connection, reason: str) -> None:
        """Abort these connections. From now on, their hosts are tried last."""
        live = [each for each in connections if not each.is_closed()]
        for host in {each.address for each in live}:
            self._left[host] = monotonic()
            log.warning(
                "a database server was abandoned; it is tried last from now on",
                reason=reason,
                database=host[0],
            )
        for each in live:
            each.terminate()


def _addresses(
    host: str | Sequence[str] | None, port: int | Sequence[int] | None
) -> Sequence[Address]:
    if host is None or isinstance(host, str):
        return [(host, port if isinstance(port, int) or port is None else port[0])]
    ports = [port] * len(host) if isinstance(port, int) or port is None else port
    return list(zip(host, ports, strict=True))


async def _connected(address: Address, words: Mapping[str, Any]) -> Connection:
    named = zip(("host", "port"), address, strict=True)
    given = {name: value for name, value in named if value is not None}
    made = await asyncpg.connect(**given, **words, connection_class=Connection)
    assert isinstance(made, Connection)
    return made


@asynccontextmanager
async def _asked(
    addresses: Sequence[Address], words: Mapping[str, Any]
) -> AsyncIterator[list[asyncio.Task[asyncpg.Record | None]]]:
    tasks = [asyncio.create_task(_answer(each, words, _SERVER)) for each in addresses]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


async def _answer(
    address: Address, words: Mapping[str, Any], question: str
) -> asyncpg.Record | None:
    try:
        async with asyncio.timeout(WATCH_S):
            connection = await _connected(address, {**words, "target_session_attrs": "any"})
            try:
                return await connection.fetchrow(question)
            finally:
                connection.terminate()
    except _UNUSABLE:
        return None
