"""Numbers on the service, its database and its certificate."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio

from app.context.context import AppContext
from app.context.unread import Backlog
from app.core.errors import StorePoisoned, StoreUnavailable
from app.database.engine import Connection
from app.database.faults import SILENT
from app.database.nodes import Nodes, NodesWatch
from app.database.statements import run
from app.database.takeover import server_moved
from app.orders import counter_store, notification_store
from app.providers.provider_client import trusted_until
from app.receiving import append_store, due_store, inbox_store
from app.receiving.inbox import inbox_of
from app.receiving.inbox_queue import FAULTS
from app.sealing import departure_store, log_queue_store
from reconcile.instants import SECOND, Instant
from reconcile.ledger.ledger import OUTCOMES

AGAIN_S: Final = 86_400.0
"""Seconds between two answered probes of the certificate, which is renewed weeks ahead."""

UNANSWERED_S: Final = 3_600.0

Look = Callable[[str], Awaitable[Instant | None]]
Found = TypeVar("Found")


class PublicCertificate:
    """The TLS certificate of the public URL, as this process last saw it.

    The expiry is EARLIEST if untrusted.
    """

    def __init__(self, url: str, *, look: Look = trusted_until) -> None:
        self._url, self._look = url, look
        self.ends: Instant | None = None

    async def look(self) -> int:
        """Probe the URL once, and return 1 for an answer, else 0."""
        ends = await self._look(self._url)
        if ends is not None:
            self.ends = ends
        return int(ends is not None)


def rest(answered: int) -> float:
    return AGAIN_S if answered else UNANSWERED_S


COUNTED: Final = 100_000
"""Maximum count of rows, because counting is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """State of the service for people."""

    outcomes: Mapping[str, int]
    due: int
    """Number of orders that wait to be folded, counted up to 100,000."""
    unread: int
    """Number of accepted records that are not read yet."""
    unread_bytes: int
    aside: int
    """Number of records that were set aside as unreadable."""
    notifications: tuple[int, int]
    """Waiting and given-up notifications, each counted up to 100,000."""
    sealed: tuple[int, int]
    """Leaves in the log, and rows that are not sealed yet, counted up to 100,000."""
    free: int | None
    """Free bytes on the database's disk. None on a database server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState(Overview):
    """State of the process that receives deliveries, for metrics."""

    queue: int
    """Number of arrived deliveries that are not committed yet."""
    read: Mapping[tuple[str, str], int]
    """Number of read deliveries, by source and verdict."""
    kept: int
    """Bytes of read deliveries that are still in the inbox."""
    faults: int
    """Number of successive batches that could not be written."""
    left: tuple[int, Instant] | None
    """Number of leaves and time of the last published checkpoint, if any."""
    backup: Instant | None
    """Time of the last recorded backup, if any."""
    refuses: str | None
    """Reason why writes are refused now; None if they are accepted."""


ANSWER_S: Final = 10.0
"""Seconds within which a check must end."""


_left: Final = set[asyncio.Task[Any]]()


async def bounded(look: Coroutine[Any, Any, Found]) -> Found:
    """Return the result of a check. Raise StoreUnavailable after ten seconds."""

    async def limited() -> Found:
        with anyio.fail_after(ANSWER_S):  # unlike asyncio's, it spares shielded work
            return await look

    task = asyncio.create_task(limited())
    with suppress(TimeoutError):
        done, _ = await asyncio.wait([task], timeout=ANSWER_S)
        if done:
            return task.result()
        _left.add(task)
        task.add_done_callback(_end)
    raise StoreUnavailable(SILENT)


def _end(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    _ = task.cancelled() or task.exception()  # else logged as never retrieved


def nodes_of(context: AppContext) -> NodesWatch:
    """Return the watcher that caches the state of all servers of the database."""
    return NodesWatch(context.database)


async def unsafe(context: AppContext, nodes: Nodes) -> list[str]:
    """Return one sentence for each danger to the stored data."""
    async with context.database.reading() as connection:
        moved = await run(connection, server_moved)
    return nodes.unsafe(context.settings.standbys) + ([] if moved is None else [moved])


async def refusal(context: AppContext) -> str | None:
    """Return the reason why writes are refused now; None if writes are accepted.

    Raise StoreUnavailable or StorePoisoned if the database cannot be used.
    """
    database, inbox = context.database, inbox_of(context)
    if database.poison is not None:
        raise StorePoisoned(database.poison)
    await database.on_snapshot(due_store.next_due)
    if inbox.queue.stalled is not None:
        return inbox.queue.stalled  # the check would have to wait, too
    try:
        await inbox.writer.writer.check()
        await database.writer.check()
    except StoreUnavailable as error:
        return str(error)
    if inbox.append_faults >= FAULTS and (why := await inbox.cannot_append()):
        return why
    return await inbox.queue.still_faulty()


async def reader_behind(
    context: AppContext, *, limit_s: int, elsewhere: Instant | None = None
) -> str | None:
    """Return a sentence if deliveries stay unread for too long.

    limit_s  number of seconds that is too long
    elsewhere  time since which this service waits for somebody else's reader process; None if it
               starts its own
    """
    now = context.clock.now()
    oldest = (await context.inbox.backlog()).oldest
    waited = 0 if oldest is None else (now - oldest) // SECOND
    if waited >= limit_s:
        return (
            f"accepted deliveries have been unread for {waited} s: check the log, and whether the "
            "machine is overloaded"
        )
    if elsewhere is None:
        return None
    async with context.database.reading() as connection:
        seen = await run(connection, inbox_store.counter, inbox_store.BEAT)
    silent = (now - (seen or elsewhere)) // SECOND
    if silent >= limit_s:
        return f"no `tallyhook worker` has read deliveries for {silent} s: check that one runs"
    return None


async def overview(context: AppContext) -> Overview:
    """Return the state of the service for people.

    Raise StoreUnavailable or StorePoisoned if the database cannot be read.
    """
    unread = await context.inbox.backlog()  # waiting for one more connection would be a deadlock
    async with context.database.reading() as connection:
        counts = await _counts(context, connection, unread=unread)
    return Overview(**counts)


async def _counts(
    context: AppContext, connection: Connection, *, unread: Backlog
) -> dict[str, Any]:
    return {
        "outcomes": dict.fromkeys(OUTCOMES, 0) | await counter_store.outcome_counts(connection),
        "due": await due_store.count_due(connection, now=context.clock.now(), enough=COUNTED),
        "unread": unread.records,
        "unread_bytes": unread.size,
        "aside": await run(connection, inbox_store.count_set_aside),
        "notifications": await notification_store.notification_counts(connection, enough=COUNTED),
        "sealed": (
            await log_queue_store.log_size(connection),
            await log_queue_store.count_unsealed(connection, enough=COUNTED),
        ),
        "free": context.database.writer.space.free_bytes(),
    }


async def store_state(context: AppContext) -> StoreState:
    """Return the state of the process that receives deliveries.

    Raise StoreUnavailable or StorePoisoned if the database cannot be used.
    """
    inbox = inbox_of(context)
    queue = inbox.queue.depth  # before a check that a stalled write would stall, too
    refuses, unread = await refusal(context), await inbox.backlog()
    async with context.database.reading() as connection:
        return StoreState(
            **await _counts(context, connection, unread=unread),
            queue=queue,
            read=await run(connection, append_store.read_counts),
            kept=inbox.writer.kept_size,
            faults=inbox.queue.faults + inbox.append_faults,
            left=await departure_store.last_to_leave(connection),
            backup=await run(connection, inbox_store.last_backup),
            refuses=refuses,
        )
