"""Short ways to put evidence into a store and to look at what it holds."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import SetClock
from app.core.reading import Reading, Unreadable
from app.database.tables import metadata
from app.evidence.keys import EvidenceKey
from app.evidence.seal import CheckpointSigner, seal_all
from app.orders.history_store import gather, scan
from app.privacy.check import CheckReport, check_database
from app.receiving.append_store import Arrival, Ready
from app.receiving.framing import Received
from app.receiving.inbox import Inbox, open_inbox
from app.receiving.refusal_store import Rejection
from reconcile.ledger.events import ClaimKind, Event
from reconcile.ledger.history import History
from reconcile.ledger.records import Record
from tests.contexts import HasDatabase, with_sources
from tests.database.made import put_new
from tests.reconcile.build import T, seconds

Found = TypeVar("Found")
Given = ParamSpec("Given")

_numbers = count()
_arrived: dict[str, Event] = {}


def said(event_id: str, claim: ClaimKind = "pending", **fields: Any) -> Event:
    """Return an event whose digest follows from all its fields, as a body's digest does."""
    digest = hashlib.sha256(repr((event_id, claim, sorted(fields.items()))).encode()).hexdigest()
    content: dict[str, Any] = {
        "source": "shop",
        "kind": f"payment.{claim}",
        "occurred_at": T,
        **fields,
    }
    return Event(event_id=event_id, claim=claim, digest=digest, **content)


def arrival(event: Event | None, *, at: int = 0, **fields: Any) -> Arrival:
    """Return a delivery of the event, `at` seconds after T. Ids rise in the order of the calls."""
    number = next(_numbers)
    body = (event.digest if event is not None else f"unreadable {number}").encode()
    if event is not None:
        _arrived[hashlib.sha256(body).hexdigest()] = event
    content: dict[str, Any] = {
        "delivery_id": f"dlv_{number:08}",
        "received_at": seconds(at),
        "source": "shop" if event is None else event.source,
        "digest": hashlib.sha256(body).hexdigest() if event is None else event.digest,
        "headers": "webhook-id: x",
        "body": body,
        "event": event,
        "problem": None if event is not None else "the body is not JSON",
    }
    return Arrival(**{**content, **fields})


def session_opened(
    order: str, session: str, *, at: int = 0, record_id: str | None = None
) -> Record:
    return Record(
        record_id=record_id or f"rec_{order}_{session}",
        recorded_at=seconds(at),
        kind="session_opened",
        order=order,
        at=seconds(at),
        source="shop",
        key=session,
        session=session,
    )


def reference_named(
    order: str, *, payment: str | None = None, session: str | None = None, source: str = "shop"
) -> Record:
    return Record(
        record_id=f"rec_{order}_{payment}_{session}",
        recorded_at=seconds(0),
        kind="reference_named",
        order=order,
        at=seconds(0),
        source=source,
        payment=payment,
        session=session,
    )


class Remembering:
    """A source that reads an arrival as the event it was made of."""

    asks = True
    private_query = False
    vouches = True

    def payload(self, incoming: Any) -> bytes:
        """Return the body as it came."""
        return bytes(incoming.body)

    def orders_named(self, incoming: Any, *, digest: str | None = None) -> set[str]:
        """Name no order."""
        return set()

    def read(self, body: bytes, *, digest: str, **request: object) -> Reading:
        """Return the event with this body."""
        if digest not in _arrived:
            raise Unreadable("the body is not JSON")
        return Reading(events=(_arrived[digest],), environment=None)


SOURCES: Any = {"shop": Remembering(), "other": Remembering()}


def rejection(*, body: bytes = b"{}", headers: str = "a: b", count: int = 1) -> Rejection:
    """Return a refused arrival. Ids rise in the order of the calls."""
    return Rejection(
        delivery_id=f"dlv_{next(_numbers):08}",
        received_at=T,
        source="shop",
        verdict="signature_mismatch",
        digest="0" * 64,
        size=len(body),
        headers=headers,
        body=body,
        problem="not genuine",
        count=count,
    )


async def keep(inbox: Inbox, *items: Arrival | Rejection) -> list[str]:
    """Append the items together, as the reader does. Return the verdicts; `stored` for a
    rejection."""
    arrivals = [item for item in items if isinstance(item, Arrival)]
    rejections = [item for item in items if isinstance(item, Rejection)]
    found = iter(await inbox.append([Ready(None, arrivals, rejections)]))
    return [next(found)[1] if isinstance(item, Arrival) else "stored" for item in items]


def received(item: Arrival) -> Received:
    """Return the request from which an arrival would have been read."""
    return Received(
        delivery_id=item.delivery_id,
        received_at=item.received_at,
        source=item.source,
        headers=item.headers,
        body=item.body,
    )


async def submit(inbox: Inbox, item: Arrival | Rejection) -> str:
    """Hand an item to the running queue, as the receiver does. It is in the inbox afterwards."""
    await inbox.queue.submit(item if isinstance(item, Rejection) else received(item))
    return "accepted"


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[Inbox]:
    """Open a serving inbox with its queue at work. A new file is a copy of an empty database."""
    scheme, _, path = url.partition(":///")
    if scheme.startswith("sqlite"):
        put_new(Path(path))
    values = {"environment": "sandbox", **settings}
    async with open_inbox(Settings(database_url=url, **values)) as inbox:
        journal = asyncio.create_task(inbox.queue.run())
        try:
            yield inbox
        finally:
            inbox.queue.close()
            await journal


SIGNER = CheckpointSigner(
    origin="tallyhook.sandbox/test",
    key=EvidenceKey(Ed25519PrivateKey.from_private_bytes(b"only for these tests, 32 bytes!!")),
)
"""Signer of the checkpoints that `seal` makes."""


async def seal(inbox: Inbox) -> int:
    """Seal all waiting rows and return their number."""
    return await seal_all(context(inbox), SIGNER)


def context(inbox: Inbox, *, at: int = 0) -> AppContext:
    """Return a context whose clock stands `at` seconds after T."""
    return inbox.context(clock=SetClock(seconds(at)))


async def fetch(
    at: HasDatabase,
    function: Callable[Concatenate[AsyncConnection, Given], Awaitable[Found]],
    /,
    *args: Given.args,
    **words: Given.kwargs,
) -> Found:
    """Run a store's function on a snapshot."""
    async with at.database.reading() as connection:
        return await function(connection, *args, **words)


async def commit(
    at: HasDatabase,
    function: Callable[Concatenate[AsyncConnection, Given], Awaitable[Found]],
    /,
    *args: Given.args,
    **words: Given.kwargs,
) -> Found:
    """Run a store's function as a transaction of its own."""
    async with at.database.writing() as connection:
        return await function(connection, *args, **words)


async def change(at: HasDatabase, *statements: str) -> None:
    """Run statements as a transaction of their own."""
    async with at.database.writing() as connection:
        for sql in statements:
            await connection.exec_driver_sql(sql)


class _RolledBack(Exception):
    """Raised to end a transaction."""


@asynccontextmanager
async def rolled_back(at: HasDatabase) -> AsyncIterator[AsyncConnection]:
    """Lend a transaction that is rolled back in the end."""
    with suppress(_RolledBack):
        async with at.database.writing() as connection:
            yield connection
            raise _RolledBack


async def plan_of(at: HasDatabase, sql: str, values: dict[str, Any] | None = None) -> str:
    """Return the plan of a query, in which PostgreSQL may not scan a small table whole."""
    async with at.database.reading() as connection:
        explain = "EXPLAIN QUERY PLAN"
        if connection.dialect.name != "sqlite":
            if at.database.spread:  # its nodes, too
                await connection.execute(text("SET LOCAL citus.propagate_set_commands = local"))
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
            explain = "EXPLAIN"
        found = await connection.execute(text(f"{explain} {sql}"), values)
        return "\n".join(str(row) for row in found)


def quiet(count: int) -> None:
    """Show no progress."""


def of_the_builders(problem: str) -> bool:
    """Return whether a problem is about the builders' bodies, whose digest is not their own."""
    return problem.endswith("does not have its digest")


async def checked(at: AppContext) -> CheckReport:
    """Check the database, with every body parsed and every order folded again."""
    return await check_database(with_sources(at, SOURCES), deep=1, progress=quiet)


async def rows(at: HasDatabase, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    async with at.database.reading() as connection:
        return [tuple(row) for row in await connection.execute(text(sql), values)]


async def tamper(at: HasDatabase, table: str, sql: str) -> None:
    """Change rows of a table past its triggers, as the owner of the database can."""
    await commit(at, tamper_in, table, sql)


async def tamper_in(connection: AsyncConnection, table: str, sql: str) -> None:
    """Do what `tamper` does in a transaction."""
    if connection.dialect.name == "sqlite":
        kept = f"SELECT name, sql FROM sqlite_master WHERE type='trigger' AND tbl_name='{table}'"
        triggers = [tuple(row) for row in await connection.exec_driver_sql(kept)]
        before = [f"DROP TRIGGER {name}" for name, _ in triggers]
        after = [made for _, made in triggers]
    else:
        before, after = (
            [f"ALTER TABLE {table} {switched} TRIGGER USER"] for switched in ("DISABLE", "ENABLE")
        )
    for each in (*before, sql, *after):
        await connection.exec_driver_sql(each)


async def dump(inbox: Inbox, *tables: str, leave_out: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Return whole tables, in an order that does not depend on how they were written.

    leave_out  columns, as `column` of every table or `table.column`
    """
    found = {}
    for name in tables:
        columns = [
            c.name for c in metadata.tables[name].columns if not {c.name, str(c)} & set(leave_out)
        ]
        names = ", ".join(f'"{column}"' for column in columns)
        found[name] = sorted(await rows(inbox, f"SELECT {names} FROM {name}"), key=repr)
    return found


async def histories(inbox: Inbox, orders: Iterable[str]) -> dict[str, History]:
    return await fetch(inbox, gather, orders)


async def all_histories(connection: AsyncConnection) -> dict[str, History]:
    """Scan all orders; each must come once, in key order."""
    found = [history async for part in scan(connection) for history in part]
    names = [history.order for history in found]
    assert names == sorted(set(names))
    return {history.order: history for history in found}


def events_in(history: History) -> set[tuple[str, str, str]]:
    """Return the keys of a history's events."""
    return {delivery.event.key for delivery in history.deliveries}


def differences(plain: Connection) -> list[Any]:
    """List how the database differs from the tables declared for its dialect."""

    def is_meant(thing: Any, *_: Any) -> bool:
        only = getattr(thing, "_ddl_if", None)  # alembic does not ask for it
        return only is None or only.dialect == plain.dialect.name

    context = MigrationContext.configure(plain, opts={"include_object": is_meant})
    return list(compare_metadata(context, metadata))
