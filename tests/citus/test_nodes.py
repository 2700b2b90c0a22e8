"""Deliveries whose rows lie on two nodes: read, folded and told once, whatever a node does."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from app.core.errors import StoreUnavailable
from app.database import layout
from app.database.locks import LINKING, take_lock
from app.database.statements import PlainConnection, run
from app.orders.refold import refold_until_quiet
from app.orders.set_aside import HOLDING
from app.receiving import append_store, due_store
from app.receiving.due_store import Due
from app.receiving.inbox import Inbox
from app.receiving.reader import ReaderContext, read_some
from tests.citus.cluster import Cluster, settings_of
from tests.database.builders import (
    SOURCES,
    arrival,
    checked,
    context,
    keep,
    of_the_builders,
    quiet,
    rows,
    said,
    submit,
)
from tests.faults.load import load
from tests.postgres.conftest import ask, ask_in_loop
from tests.postgres.test_killed import Promised, assert_once, services
from tests.waiting import soon, until

pytestmark = pytest.mark.postgres

UNREAD = "SELECT count(*) FROM inbox"
WAITING = "SELECT count(*) FROM order_due WHERE due_at IS NOT NULL"


def test_deliveries_on_two_nodes_are_read_folded_and_told_once(url: str, tmp_path: Path) -> None:
    promised = Promised()
    with services(tmp_path, url) as receivers:
        with load(receivers[0].port, name="nodes") as driver:
            driver.until(100)
        promised.add(driver, receivers[0].port)
        until(lambda: ask(url, UNREAD)[0][0] == 0)
        until(lambda: ask(url, WAITING)[0][0] == 0)
    asyncio.run(assert_once(url, promised))


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "stopped"])
def test_a_node_that_ends_under_load_and_comes_back(
    citus: Cluster, url: str, tmp_path: Path, number: signal.Signals
) -> None:
    """Deliveries are acknowledged and `/readyz` names the node meanwhile; none is lost or counted
    twice."""
    promised, node = Promised(), citus.workers[0]
    with services(tmp_path, url) as receivers:
        for turn in range(3):
            with load(receivers[0].port, name=f"{number.name}{turn}") as driver:
                driver.until(200)
                if number is signal.SIGKILL:
                    node.kill()
                else:
                    node.stop(number)
                until(lambda: "the database node" in str(receivers[0].get("/readyz")))
                driver.until(400)
                node.start(*settings_of(node))
                driver.until(500)
            promised.add(driver, receivers[0].port)
        until(lambda: ask(url, UNREAD)[0][0] == 0)
        until(lambda: ask(url, WAITING)[0][0] == 0)
    asyncio.run(assert_once(url, promised))
    print(
        f"3 ends of a node, {len(promised.deliveries):,} acknowledgements, {promised.refused:,} "
        f"refused and sent again; {len(promised.orders):,} orders paid, each told once, none lost"
    )


def reading(inbox: Inbox) -> ReaderContext:
    return ReaderContext(context(inbox), inbox, SOURCES, "sandbox", HOLDING)


async def stored_alone(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> ReaderContext:
    """Store a payment of order A in the first transaction, and end the reader before the second."""

    def ends(*_: object, **__: object) -> None:
        raise StoreUnavailable("the reader ends here", reason="busy")

    reader = reading(inbox)
    await submit(inbox, arrival(said("e1", "succeeded", order="A", payment="p")))
    with monkeypatch.context() as patch:
        patch.setattr(append_store, "append_ready", ends)
        with pytest.raises(StoreUnavailable):
            await read_some(reader)
    return reader


async def test_what_was_stored_and_not_marked_is_marked_by_the_next_reader(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first transaction alone leaves the row unread; a repeat appends nothing twice."""
    reader = await stored_alone(inbox, monkeypatch)
    assert await rows(inbox, "SELECT id, verdict FROM deliveries") != []
    assert await rows(inbox, "SELECT order_key FROM order_due") == []
    assert await rows(inbox, "SELECT count(*) FROM unsealed") == [(0,)]
    assert await rows(inbox, UNREAD) == [(1,)]

    assert await read_some(reader) == 1
    assert await rows(inbox, "SELECT count(*) FROM deliveries") == [(1,)]
    assert await rows(inbox, "SELECT count(*) FROM unsealed") == [(1,)]
    assert await rows(inbox, UNREAD) == [(0,)]
    assert await refold_until_quiet(context(inbox, at=1), limit=10, progress=quiet) == 1


async def test_a_commit_that_a_node_has_not_heard_of_is_waited_for(
    inbox: Inbox, citus: Cluster
) -> None:
    """No order is folded, nothing is checked, and no delivery becomes a suspect meanwhile."""
    reader = reading(inbox)
    came = arrival(said("e1", "succeeded", order="A", payment="p"))
    await submit(inbox, came)
    url = inbox.settings.database_url
    [(shard, host)] = await ask_in_loop(
        url,
        "SELECT 'deliveries_' || shardid, nodename FROM citus_shards WHERE shardid = "
        f"get_shard_id_for_distribution_column('deliveries', '{came.delivery_id}')",
    )
    [node] = [each for each in citus.workers if str(each.folder) == host]
    columns = "id, received_at, source, verdict, digest, size, headers"
    there = node.url(make_url(url).database or "")
    await ask_in_loop(
        there,
        "BEGIN",
        f"INSERT INTO {shard} ({columns}) "
        f"VALUES ('{came.delivery_id}', 1, 'shop', 'stored', '0', 1, '')",
        "PREPARE TRANSACTION 'of an append'",
    )
    try:
        with pytest.raises(StoreUnavailable):
            await inbox.database.on_snapshot(layout.settle)
        with pytest.raises(StoreUnavailable):
            await read_some(reader)
        assert await rows(inbox, "SELECT count(*) FROM suspects") == [(0,)]
        assert await rows(inbox, UNREAD) == [(1,)]
    finally:
        await ask_in_loop(there, "ROLLBACK PREPARED 'of an append'")
    assert await read_some(reader) == 1


@asynccontextmanager
async def unheard(inbox: Inbox, citus: Cluster, event: str) -> AsyncIterator[None]:
    """Meanwhile the event's node has not heard that the event was committed."""
    url = inbox.settings.database_url
    [(shard, host)] = await ask_in_loop(
        url,
        "SELECT 'events_' || shardid, nodename FROM citus_shards WHERE shardid = "
        f"get_shard_id_for_distribution_column('events', '{event}')",
    )
    [node] = [each for each in citus.workers if str(each.folder) == host]
    there = node.url(make_url(url).database or "")
    await ask_in_loop(there, f"CREATE TABLE unheard AS SELECT * FROM {shard}")
    await ask_in_loop(there, f"DELETE FROM {shard}")
    await ask_in_loop(
        there,
        "BEGIN",
        f"INSERT INTO {shard} OVERRIDING SYSTEM VALUE SELECT * FROM unheard",
        "PREPARE TRANSACTION 'of an event'",
    )
    try:
        yield
    finally:
        await ask_in_loop(there, "COMMIT PREPARED 'of an event'")
        await ask_in_loop(there, "DROP TABLE unheard")


async def test_nothing_is_marked_while_its_event_cannot_be_seen(
    inbox: Inbox, citus: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its order would be folded without it, and never again."""
    reader = await stored_alone(inbox, monkeypatch)
    async with unheard(inbox, citus, "e1"):
        with pytest.raises(StoreUnavailable, match="does not know the result"):
            await read_some(reader)
        assert await rows(inbox, UNREAD) == [(1,)]
    assert await read_some(reader) == 1
    assert await refold_until_quiet(context(inbox, at=1), limit=10, progress=quiet) == 1


async def test_no_link_is_made_while_an_orphan_cannot_be_seen(inbox: Inbox, citus: Cluster) -> None:
    """Nobody would adopt it."""
    later = arrival(said("e2", order="A", payment="p"))
    await keep(inbox, arrival(said("e1", "succeeded", payment="p")))
    async with unheard(inbox, citus, "e1"):
        with pytest.raises(StoreUnavailable, match="does not know the result"):
            await keep(inbox, later)
    assert await keep(inbox, later) == ["stored"]
    found = await rows(inbox, "SELECT event_id, order_key FROM events ORDER BY 1")
    assert found == [("e1", "A"), ("e2", "A")]


async def test_appends_wait_while_the_whole_database_is_read(inbox: Inbox) -> None:
    reader = reading(inbox)
    await submit(inbox, arrival(said("e1", order="A")))
    async with inbox.database.reading(settled=True):
        with pytest.raises(StoreUnavailable, match="reads the whole database; try again later"):
            await read_some(reader)
        assert await rows(inbox, UNREAD) == [(1,)]
    assert await read_some(reader) == 1


async def test_who_reads_the_whole_database_sees_what_it_has_waited_for(inbox: Inbox) -> None:
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    url, noted = inbox.settings.database_url, "SELECT value FROM meta WHERE name = 'late'"

    async def read() -> str | None:
        async with inbox.database.reading(settled=True) as connection:
            found: str | None = await connection.scalar(text(noted))
            return found

    async def blocked() -> bool:
        return await ask_in_loop(url, waits) != [(0,)]

    async with inbox.database.writing() as connection:
        await run(connection, take_lock, LINKING)
        reads = asyncio.create_task(read())
        await soon(blocked)
        await connection.execute(text("INSERT INTO meta (name, value) VALUES ('late', 'seen')"))
    assert await reads == "seen"


async def test_orders_are_published_under_the_lock_of_their_events(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any mark is locked, else an append and a hold by new rules wait for each other."""
    held, unchanged = list[tuple[int]](), due_store.unchanged

    def looks(connection: PlainConnection, marks: Sequence[Due]) -> list[Due]:
        held.extend(connection.ask(HELD_HERE, (LINKING,)))
        return unchanged(connection, marks)

    monkeypatch.setattr(due_store, "unchanged", looks)
    await keep(inbox, arrival(said("e1", "succeeded", order="A")))
    assert await refold_until_quiet(context(inbox, at=1), limit=10, progress=quiet) == 1
    assert held == [(1,)]


HELD_HERE = (
    "SELECT count(*) FROM pg_locks "
    "WHERE locktype = 'advisory' AND granted AND objid = ? AND pid = pg_backend_pid()"
)


@pytest.mark.soak
async def test_a_deep_check_of_a_distributed_database_finds_nothing(inbox: Inbox) -> None:
    for number in (*range(6), 0):
        event = said(f"e{number}", "succeeded", order=f"O{number % 2}")
        await keep(inbox, arrival(event))
    await refold_until_quiet(context(inbox, at=1), limit=10, progress=quiet)
    report = await checked(context(inbox, at=1))
    found = [each for each in report.problems if not of_the_builders(each)]
    assert not found, found
