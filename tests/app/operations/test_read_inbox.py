"""What was accepted is kept, read once, and seen by who asks; nothing is published over it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.errors import StoreUnavailable
from app.operations.deliveries import caught_up, read_inbox
from app.operations.deliveries.caught_up import must_have_read
from app.operations.deliveries.poisoned import poisoned, read_again
from app.operations.deliveries.read_inbox import ReaderContext, read_some
from app.operations.folding.refold import refold_due
from app.store.arrivals.inbox import (
    DamagedRow,
    Received,
    items_in,
    keep_items,
    unread_rows,
)
from app.store.arrivals.intake import Ready
from reconcile.instants import DAY, HOUR, SECOND
from tests.app.web.driving import Driver, driving, event, of_order
from tests.reconcile.build import T
from tests.store.builders import arrival, received, rejection, said
from tests.waiting import soon


async def nothing(context: Any) -> int:
    """A reader that reads nothing."""
    return 0


@pytest.fixture
def standing_still(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The reader reads nothing until it is undone; who waits for it waits a moment only."""
    monkeypatch.setattr(read_inbox, "read_some", nothing)
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.05)
    return monkeypatch


def context(driver: Driver) -> ReaderContext:
    """What the service's own reader works with."""
    found: ReaderContext = driver.service.reader._context
    return found


async def test_what_is_not_read_yet_is_said(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """The order's answer is not to be shipped on, whatever is known of it, and says for how long;
    listings and the feed do not wait."""
    async with driving(tmp_path) as driver:
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        await driver.send(event("e1"))
        driver.clock.put(T + 7 * SECOND)
        answer = await driver.api("GET", "/orders/ORD-1")
        assert answer.headers["tallyhook-behind"] == "7"
        told = answer.json()
        assert (told["fulfillable"], told["behind_s"]) == (False, 7)
        assert (await driver.api("GET", "/orders")).status_code == 200
        with pytest.raises(StoreUnavailable, match="accepted and not read yet"):
            await must_have_read(driver.desk)
        assert await read_some(context(driver)) == 1
        answer = await driver.api("GET", "/orders/ORD-1")
        assert "tallyhook-behind" not in answer.headers
        assert answer.json()["fulfillable"]


async def test_readiness_turns_red_when_the_reader_stands_still(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """After the time that is set, and not before; green again once it was read."""
    async with driving(tmp_path, INBOX_RED_S="30") as driver:
        await driver.send(event("e1"))
        driver.clock.put(T + 29 * SECOND)
        assert await driver.ready()
        driver.clock.put(T + 30 * SECOND)
        assert not await driver.ready()
        await read_some(context(driver))
        assert await driver.ready()


async def test_nothing_is_published_over_unread_evidence(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """A deadline passes while the success lies in the inbox: no timeout is told, then or later."""
    async with driving(tmp_path, with_worker=False) as driver:
        pending = event("e0", "pending")
        await driver.send(pending)
        await read_some(context(driver))
        assert await refold_due(driver.desk, limit=9) == 1
        driver.clock.put(T + HOUR // 60)
        await driver.send(event("e1"))
        driver.clock.put(T + 3 * DAY)
        assert await refold_due(driver.desk, limit=9) == 0
        await read_some(context(driver))
        await refold_due(driver.desk, limit=9)
        told = driver.rows("SELECT outcome FROM revisions ORDER BY seq")
        assert told == [("pending",), ("succeeded",)]


async def test_over_a_reader_that_nobody_waits_for_it_is(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """The control: where nobody looks into the inbox, the timeout is told."""

    async def now_at_once(desk: Any) -> int:
        return int(desk.clock.now())

    standing_still.setattr("app.operations.folding.refold._publishable", now_at_once)
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e0", "pending"))
        await read_some(context(driver))
        await refold_due(driver.desk, limit=9)
        await driver.send(event("e1"))
        driver.clock.put(T + 3 * DAY)
        assert await refold_due(driver.desk, limit=9) == 1
        told = driver.rows("SELECT outcome FROM revisions ORDER BY seq")
        assert told == [("pending",), ("timed_out",)]


async def test_a_row_is_read_once_however_many_read(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """Two readers with the same row in their hands: the second appends nothing."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1"))
        store = driver.service.store
        async with store.reading() as connection:
            rows = await unread_rows(connection, limit=9)
        ready = [read_inbox._ready(context(driver), row) for row in rows]
        both = await asyncio.gather(store.append(ready), store.append(ready))
        assert sorted(len(each) for each in both) == [0, 1]
        assert driver.rows("SELECT count(*) FROM deliveries") == [(1,)]
        assert driver.rows("SELECT count(*) FROM inbox") == [(0,)]


async def test_a_delivery_whose_source_is_gone_is_kept(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """It was accepted, so it is stored as unreadable, and says why."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1"))
        old = context(driver)
        await read_some(ReaderContext(old.desk, {}, old.environment, count=old.count))
        assert driver.rows("SELECT verdict, problem FROM deliveries") == [
            ("unreadable", "no source of this name is configured any more")
        ]


async def test_one_that_the_database_refuses_is_set_aside(tmp_path: Path) -> None:
    """Alone, after three tries; the others of its row go on. It is kept, told of, and read again
    when a person says so."""
    async with driving(tmp_path, with_worker=False) as driver:
        store = driver.service.store
        async with store.writing() as connection:
            await connection.exec_driver_sql(
                "CREATE TRIGGER no BEFORE INSERT ON events WHEN NEW.event_id = 'e2' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        sent = [driver.send(of_order(f"O-{n}", f"e{n}")) for n in range(5)]
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {200}
        await soon(lambda: driver.rows("SELECT count(*) FROM inbox WHERE tries >= 3") == [(1,)])
        assert driver.rows("SELECT event_id FROM events ORDER BY 1") == [
            ("e0",), ("e1",), ("e3",), ("e4",)
        ]  # fmt: skip
        (aside,) = await poisoned(driver.desk)
        assert b"e2" in aside.body
        assert "tallyhook_inbox_set_aside 1.0" in (await driver.client.get("/metrics")).text
        async with store.writing() as connection:
            await connection.exec_driver_sql("DROP TRIGGER no")
        await read_again(driver.desk)
        store.accepted.set()
        await soon(lambda: driver.rows("SELECT count(*) FROM events") == [(5,)])
        assert await poisoned(driver.desk) == []


def test_what_is_framed_is_read_again() -> None:
    """Any mix of deliveries and refused ones, in their order; a row that was cut is told of."""
    written: list[bytes] = []

    class Kept:
        dialect = "sqlite"

        def ask(self, _sql: str, values: Any = ()) -> list[Any]:
            written.append(values[-1])
            return []

    items: list[Any] = [
        received(arrival(said("e1", order="A"))),
        rejection(body=b"\x00\xff", headers="é: ü"),
        Received(delivery_id="d", received_at=T, source="s", headers="", body=b"", url="/w?x=%00é"),
    ]
    keep_items(Kept(), items)
    (row,) = written
    assert list(items_in(row)) == items
    for length in range(1, len(row)):
        try:
            found = list(items_in(row[:length]))
        except DamagedRow:
            continue
        assert found == items[: len(found)]
        assert len(found) < len(items)


async def test_what_came_another_way_needs_no_row(driver: Driver) -> None:
    """An answer that was asked for is appended by itself."""
    store = driver.service.store
    appended = await store.append([Ready(None, [arrival(said("e9", order="A"))])])
    assert [verdict for _, verdict in appended] == ["stored"]


@pytest.fixture
async def driver(tmp_path: Path) -> Any:
    """A service whose tests fold."""
    async with driving(tmp_path, with_worker=False) as driven:
        yield driven
