"""Detect a change of the PostgreSQL server: a standby took over, or a backup was restored.

    1 connect   to a server whose timeline differs from the timeline used before
    2 compare   whether it has our newest commit, and whether commits waited for a standby
    3 decide    if both hold, the service continues; else there is a gap that a person must accept

A server that has a process's newest commit has all earlier commits, because replication keeps their
order.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple, NoReturn

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import StoreUnavailable
from app.core.logs import log
from app.database import postgresql
from app.database.gaps import ACCEPT, FoundGap
from app.database.holders import Holder
from app.database.statements import Ask, PlainConnection, run
from reconcile.instants import Instant

# --- which server it is --------------------------------------------------------------------------

_MAY_ASK: Final = (
    "SELECT NOT pg_is_in_recovery() AND to_regclass('holders') IS NOT NULL "
    "AND has_function_privilege('pg_control_system()', 'execute') "
    "AND has_function_privilege('pg_walfile_name(pg_lsn)', 'execute')"
)
_IDENTITY: Final = (
    "SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), "
    "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), "
    "(SELECT oid FROM pg_database WHERE datname = current_database()), "
    "to_regclass('meta')::oid)"
)


class ServerIdentity(NamedTuple):
    """Identity of a PostgreSQL server.

    A promoted standby or a restored backup has another `timeline`; a restored dump has other ids in
    `tables`.
    """

    cluster: str
    timeline: str
    tables: str

    def __str__(self) -> str:
        return "/".join(self)

    def follows(self, other: "ServerIdentity") -> bool:
        """Return whether this server is a promoted copy of the server `other`, directly or through
        other copies."""
        return self._replace(timeline="") == other._replace(timeline="") and (
            int(self.timeline, 16) > int(other.timeline, 16)
        )


def server_of(ask: Ask) -> ServerIdentity | None:
    """Return the identity of a PostgreSQL server. Return None for a standby, or if tables or
    permissions are missing."""
    return _identity(ask(_IDENTITY)[0][0]) if ask(_MAY_ASK)[0][0] else None


def _identity(text: str) -> ServerIdentity:
    return ServerIdentity(*text.split("/", 2))


def server_noted(connection: PlainConnection) -> ServerIdentity | None:
    """Return the server that was last recorded as having every commit. Return None if no server is
    recorded."""
    text = _noted(connection, "server")
    return None if text is None else _identity(text)


def note_server(connection: PlainConnection, *, once: bool = False) -> None:
    """Record that this connection's server has every commit.

    once  whether to keep an earlier record, if there is one
    """
    if connection.dialect == "sqlite" or (once and server_noted(connection) is not None):
        return
    if (found := server_of(connection.ask)) is not None:
        _note(connection, "server", str(found))
        if not once:
            accept_gap_of_server(connection)


def accept_gap_of_server(connection: PlainConnection) -> None:
    """Record that a person accepted the loss of the commits that this connection's server lacks."""
    if connection.dialect != "sqlite" and (found := server_of(connection.ask)) is not None:
        _note(connection, "gap", str(found))


def _noted(connection: PlainConnection, name: str) -> str | None:
    rows = connection.ask("SELECT value FROM meta WHERE name=?", (name,))
    return rows[0][0] if rows else None


def _note(connection: PlainConnection, name: str, value: str) -> None:
    connection.ask(
        "INSERT INTO meta (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value=excluded.value",
        (name, value),
    )


# --- a look at it ---------------------------------------------------------------------------------

_LACKS: Final = "a standby took over that lacks commits of a running process"
_OTHER: Final = "the database is not the one used before, and lacks commits of a running process"
_LOOSE: Final = "a standby took over, and not every commit had waited for it"
_NOBODY: Final = (
    "a standby took over or a base backup was put back, and no process that ran before has "
    "confirmed that nothing is missing"
)

_WAITS: Final = (
    "SELECT current_setting('synchronous_standby_names') <> '' "
    "AND current_setting('synchronous_commit') IN ('on', 'remote_apply')"
)

_NEWEST: Final = """
SELECT greatest((SELECT max(received_at) FROM inbox),
                (SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1))
"""
"""SQL query for the arrival time of the newest stored delivery. All deliveries that a takeover lost
arrived later than this."""


class Look(NamedTuple):
    """State of a PostgreSQL server at one check."""

    server: ServerIdentity
    noted: ServerIdentity | None
    """Server last recorded as having every commit."""
    waits: bool
    """True if each commit waits until a standby has written it to disk."""
    gap: FoundGap | None
    """Gap that a process found but nobody accepted."""
    accepted: bool
    """True if a person accepted the loss of commits that this server lacks."""
    newest: Mapping[str, str]
    """Newest commit of each registered writer, by the writer's id."""


def look(connection: PlainConnection, *ids: str) -> Look | None:
    """Return the state of this connection's server, with newest commits of these writers.

    Return None on SQLite, on a standby, or without tables or permissions.
    """
    if connection.dialect == "sqlite" or (server := server_of(connection.ask)) is None:
        return None
    newest = connection.ask("SELECT holder, newest FROM holders WHERE holder = ANY(?)", (ids,))
    return Look(
        server=server,
        noted=server_noted(connection),
        waits=connection.ask(_WAITS)[0][0],
        gap=_named_gap(connection),
        accepted=_noted(connection, "gap") == str(server),
        newest=dict(newest),
    )


def gap_of_server(connection: PlainConnection, *, now: Instant) -> FoundGap | None:
    """Return the time span in which commits may be missing on this server, if there is one.

    A gap that nobody has accepted comes first. After an unaccepted takeover, the span begins with
    the newest stored delivery and ends now.
    """
    if (seen := look(connection)) is None:
        return None
    moved = seen.noted is not None and seen.server.follows(seen.noted)
    nobody = moved and not seen.accepted
    return seen.gap or (_gap(_NOBODY, **_span(connection, now)) if nobody else None)


def _named_gap(connection: PlainConnection) -> FoundGap | None:
    text = _noted(connection, "gap")
    return _gap(**json.loads(text)) if text is not None and text.startswith("{") else None


def _gap(detail: str, since: int, until: int) -> FoundGap:
    return FoundGap(
        kind="database",
        since=Instant(since),
        until=Instant(until),
        deliveries=None,
        detail=detail,
    )


def _span(connection: PlainConnection, now: Instant) -> dict[str, int]:
    ((newest,),) = connection.ask(_NEWEST)
    return {"since": min(now, newest or now), "until": now}


# --- what a running process knows -----------------------------------------------------------------

LOOK_S: Final = 60.0

ANSWER_S: Final = 5.0

AGAIN_S: Final = 1.0

RESTORED: Final = "stop all processes, and run `tallyhook db restored"

_MOVED: Final = (
    "the database was restored from a backup since it was last recorded (its server, id or "
    f"tables changed); {RESTORED}`, which is harmless if nothing was lost"
)
_CHECKED: Final = (
    "a standby took over, and its data is being compared with the commits of running processes; "
    f"if that takes more than a minute, {RESTORED} {ACCEPT}`"
)


def server_moved(connection: PlainConnection) -> str | None:
    """Return a sentence with the next step if the server is not the recorded one or lacks commits.

    A server restored from a base backup looks like the original, unless it was recovered to a point
    in time.
    """
    if (seen := look(connection)) is None:
        return None
    if seen.gap is not None:
        return _refusal(seen.gap)
    if seen.noted in (None, seen.server):
        return None
    return _CHECKED if seen.server.follows(seen.noted) else _MOVED


def _refusal(gap: FoundGap) -> str:
    return f"{gap.sentence()}; {RESTORED} {ACCEPT}`"


class NotCompared(StoreUnavailable):
    """Error for a new server that was not yet compared with the former server, and may therefore
    lack commits."""


class ServerWatch:
    """Knowledge of this process about its PostgreSQL server.

    server     server that was checked last
    servers    server of the last connection of each registered writer
    waits      whether every check showed that commits wait for a standby; None before the first
    looked_at  monotonic time of the last check
    moved      whether connections to another server must still be checked
    refuses    sentence that says why writes are refused, if so
    follow     resumes the service after a takeover, in the caller's transaction; None if another
               process does this
    on_moved   called when another server must be checked
    """

    def __init__(self) -> None:
        self.server: ServerIdentity | None = None
        self.servers: dict[Holder, ServerIdentity] = {}
        self.waits: bool | None = None
        self.looked_at = 0.0
        self.moved = False
        self.refuses: str | None = None
        self.follow: Callable[[AsyncConnection], Awaitable[None]] | None = None
        self.on_moved: Callable[[], None] = lambda: None

    def check_reading(self, ask: Ask) -> None:
        """Raise NotCompared if a reading connection has reached a server that took over from the
        known server, and was not checked yet."""
        here = None if self.server is None else server_of(ask)
        if self.server is not None and here is not None and here.follows(self.server):
            self.moved = True
            self.on_moved()
            raise NotCompared(self.refuses or _CHECKED)

    async def check(self, connection: AsyncConnection, holder: Holder) -> None:
        """Check the server of a registered writer's new connection. Raise StoreUnavailable if
        commits are missing or may be missing there."""
        async with connection.begin():
            seen = await run(connection, look, *(each.id for each in self.servers))
        if seen is None:
            return
        if seen.gap is not None:
            self._refuse(seen.gap)
        here, before = seen.server, self.servers.get(holder, self.server)
        is_later = before is not None and here.follows(before)
        is_open = seen.noted is not None and here.follows(seen.noted)
        if not seen.accepted:
            if self._is_missing(seen, holder):
                detail = _LACKS if is_later else _OTHER
                await self._find_gap(connection, detail, now=holder.clock.now())
            if is_later and here != self.server and self.waits is False:
                await self._find_gap(connection, _LOOSE, now=holder.clock.now())
        if is_open:
            knows = self.waits and monotonic() < self.looked_at + 2 * LOOK_S
            if not (is_later and holder.newest and knows and self.follow):
                raise NotCompared(_CHECKED)
            await self._go_on(connection, holder, here)
        if here != self.server:
            self.server, self.waits, self.refuses = here, None, None
            self.on_moved()
        self.waits = self.waits if seen.waits else False
        self.servers[holder] = here

    def _is_missing(self, seen: Look, holder: Holder) -> bool:
        """Return whether the server lacks the newest commit of a writer in this process.

        Only `holder` and writers that last used another server are compared: two promoted standbys
        can have one identity.
        """
        for each, server in self.servers.items():
            mark, moved = seen.newest.get(each.id), server != seen.server
            lacks = each.newest and mark not in each.newest
            if lacks and (moved or (each is holder and mark is not None)):
                return True
        return False

    async def _find_gap(self, connection: AsyncConnection, detail: str, *, now: Instant) -> None:
        async with postgresql.transaction(connection, None):
            found = await run(connection, _name_gap, detail, now)
        log.error("data may be missing after a takeover", problem=found.sentence())
        self._refuse(found)

    def _refuse(self, gap: FoundGap) -> NoReturn:
        self.refuses = _refusal(gap)
        raise StoreUnavailable(self.refuses)

    async def _go_on(
        self, connection: AsyncConnection, holder: Holder, here: ServerIdentity
    ) -> None:
        assert self.follow is not None
        async with postgresql.transaction(connection, holder):
            noted, gap = await run(connection, _locked)
            if gap is not None:
                self._refuse(gap)
            if noted == here:  # by another process
                return
            await self.follow(connection)
            await run(connection, _note, "server", str(here))
        log.warning("a standby took over, and nothing is missing: the service continues")


def _locked(connection: PlainConnection) -> tuple[ServerIdentity | None, FoundGap | None]:
    """Lock the row of the recorded server. Return that server and the recorded gap, each or
    None."""
    connection.ask("SELECT value FROM meta WHERE name='server' FOR UPDATE")
    return server_noted(connection), _named_gap(connection)


def _name_gap(connection: PlainConnection, detail: str, now: Instant) -> FoundGap:
    _, known = _locked(connection)
    if known is not None:
        return known
    span = _span(connection, now)
    _note(connection, "gap", json.dumps({"detail": detail, **span}))
    return _gap(detail, **span)
