"""The reader: accepted deliveries are kept, read once, and seen by who asks. Nothing is published
before they are read."""

import asyncio
import json
import sqlite3
import struct
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StoreUnavailable
from app.monitoring.health import reader_behind
from app.orders.refold import refold_due
from app.orders.set_aside import poisoned, retry
from app.privacy.check import check_database
from app.receiving import caught_up, reader
from app.receiving.append_store import Ready
from app.receiving.caught_up import must_have_read
from app.receiving.framing import DamagedRow, Received, framed, items_in
from app.receiving.inbox_store import BEAT, put_counter, suspect
from app.receiving.reader import Reader, ReaderContext, read_some
from reconcile.instants import DAY, HOUR, SECOND
from tests.api.driving import Driver, driving, event, of_order, reader_of
from tests.database.builders import arrival, received, rejection, said
from tests.reconcile.build import T
from tests.waiting import soon


async def nothing(reading: Any, **_: Any) -> int:
    """Read nothing."""
    return 0


@pytest.fixture
def standing_still(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the reader read nothing until it is undone; who waits for it waits a moment only."""
    monkeypatch.setattr(reader, "read_some", nothing)
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.05)
    return monkeypatch


def reading(driver: Driver) -> ReaderContext:
    """Return the context of the service's own reader."""
    found: ReaderContext = reader_of(driver.service)._reading
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
        body = answer.json()
        assert (body["fulfillable"], body["behind_s"]) == (False, 7)
        assert (await driver.api("GET", "/orders")).status_code == 200
        with pytest.raises(StoreUnavailable, match="accepted deliveries have been unread"):
            await must_have_read(driver.context)
        assert await read_some(reading(driver)) == 1
        answer = await driver.api("GET", "/orders/ORD-1")
        assert "tallyhook-behind" not in answer.headers
        assert answer.json()["fulfillable"]


async def test_who_tells_of_an_order_does_not_wait_for_a_burst(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """The record is kept, and the answer says that it may not be all; who asks waits for longer."""
    async with driving(tmp_path) as driver, asyncio.timeout(60):
        await driver.send(event("e1"))
        driver.clock.put(T + 7 * SECOND)
        standing_still.setattr(caught_up, "READ_WITHIN_S", 3_600.0)
        facts = {"amount": "1500.00", "currency": "KES"}
        answer = await driver.api("PUT", "/orders/ORD-1", json=facts)
        assert (answer.status_code, answer.headers["tallyhook-behind"]) == (200, "7")
        assert (answer.json()["fulfillable"], answer.json()["behind_s"]) == (False, 7)
        assert driver.rows("SELECT count(*) FROM records") == [(1,)]


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
        await read_some(reading(driver))
        assert await driver.ready()


async def test_an_alarm_comes_before_readiness_turns_red(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """It says since when, and is over once all was read."""
    async with driving(tmp_path, INBOX_ALARM_S="5", INBOX_RED_S="30") as driver:
        await driver.send(event("e1"))
        driver.clock.put(T + 5 * SECOND)
        await driver.service.watchdog.look()
        (alarm,) = driver.service.watchdog.alarms.values()
        assert (alarm.reason, alarm.since) == ("deliveries_not_read", T)
        assert await driver.ready()
        await read_some(reading(driver))
        await driver.service.watchdog.look()
        assert driver.service.watchdog.alarms == {}


async def test_a_receiver_without_a_reader_knows_when_none_reads(tmp_path: Path) -> None:
    """Where readers are processes that somebody else starts, each leaves a sign of life."""
    async with driving(tmp_path, with_worker=False) as driver:
        look = partial(reader_behind, driver.context, limit_s=60, elsewhere=T)
        assert await look() is None
        driver.clock.put(T + 60 * SECOND)
        assert "no `tallyhook worker` has read deliveries for 60 s" in str(await look())
        driver.clock.put(T)
        await driver.service.inbox.database.writer.commit(put_counter, BEAT, T)
        driver.clock.put(T + 59 * SECOND)
        assert await look() is None
        driver.clock.put(T + 60 * SECOND)
        assert "no `tallyhook worker` has read deliveries for 60 s" in str(await look())


async def test_nothing_is_published_over_unread_evidence(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """A deadline passes while the success lies in the inbox: no timeout is ever published."""
    async with driving(tmp_path, with_worker=False) as driver:
        pending = event("e0", "pending")
        await driver.send(pending)
        await read_some(reading(driver))
        assert await refold_due(driver.context, limit=9) == 1
        driver.clock.put(T + HOUR // 60)
        await driver.send(event("e1"))
        driver.clock.put(T + 3 * DAY)
        assert await refold_due(driver.context, limit=9) == 0
        await read_some(reading(driver))
        await refold_due(driver.context, limit=9)
        found = driver.rows("SELECT outcome FROM revisions ORDER BY seq")
        assert found == [("pending",), ("succeeded",)]


async def test_what_the_shop_says_is_not_published_before_what_came_until_then_is_read(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """The order waits to be folded since before either, and the shop's word is in its history. As
    of that word the refund had come."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1"))
        await read_some(reading(driver))
        driver.clock.put(T + 10 * SECOND)
        await driver.send(event("e2", "refunded"))
        driver.clock.put(T + 20 * SECOND)
        facts = {"amount": "1500.00", "currency": "KES"}
        assert (await driver.api("PUT", "/orders/ORD-1", json=facts)).status_code == 200
        driver.clock.put(T + 30 * SECOND)
        await refold_due(driver.context, limit=9)
        assert driver.rows("SELECT outcome FROM revisions") == []
        assert driver.rows("SELECT due_at FROM order_due") == [(T + 20 * SECOND,)]
        assert await refold_due(driver.context, limit=9) == 0
        await read_some(reading(driver))
        await refold_due(driver.context, limit=9)
        assert driver.rows("SELECT outcome, fulfillable FROM revisions") == [("refunded", 0)]


async def test_over_a_reader_that_nobody_waits_for_it_is(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """The control: where nobody looks into the inbox, the timeout is published."""

    async def now_at_once(context: Any) -> int:
        return int(context.clock.now())

    standing_still.setattr("app.orders.refold.publishable", now_at_once)
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e0", "pending"))
        await read_some(reading(driver))
        await refold_due(driver.context, limit=9)
        await driver.send(event("e1"))
        driver.clock.put(T + 3 * DAY)
        assert await refold_due(driver.context, limit=9) == 1
        found = driver.rows("SELECT outcome FROM revisions ORDER BY seq")
        assert found == [("pending",), ("timed_out",)]


async def test_a_row_is_read_once_however_many_read(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """Two readers with the same row in their hands: the second appends nothing."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1"))
        inbox = driver.service.inbox
        rows = await inbox.next_rows(limit=9, most_bytes=9_999)
        ready = [reader._ready(reading(driver), row, row.items or ()) for row in rows]
        both = await asyncio.gather(inbox.append(ready), inbox.append(ready))
        assert sorted(len(each) for each in both) == [0, 1]
        assert driver.rows("SELECT count(*) FROM deliveries") == [(1,)]
        assert (await inbox.backlog()).records == 0


async def test_a_delivery_whose_source_is_gone_is_kept(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """It was accepted, so it is stored as unreadable, and says why."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1"))
        old = reading(driver)
        await read_some(ReaderContext(old.context, old.inbox, {}, old.environment, old.holding))
        assert driver.rows("SELECT verdict, problem FROM deliveries") == [
            ("unreadable", "no source with this name is configured any more")
        ]


async def test_one_that_the_database_refuses_is_set_aside(tmp_path: Path) -> None:
    """Alone, after three tries; the others of its row go on. It is kept, reported, and read again
    when a person says so."""
    async with driving(tmp_path, with_worker=False) as driver:
        inbox = driver.service.inbox
        async with inbox.database.writing() as connection:
            await connection.exec_driver_sql(
                "CREATE TRIGGER no BEFORE INSERT ON events WHEN NEW.event_id = 'e2' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        sent = [driver.send(of_order(f"O-{n}", f"e{n}")) for n in range(5)]
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {200}
        await soon(lambda: driver.rows("SELECT count(*) FROM suspects WHERE aside=1") == [(1,)])
        assert driver.rows("SELECT event_id FROM events ORDER BY 1") == [
            ("e0",), ("e1",), ("e3",), ("e4",)
        ]  # fmt: skip
        (aside,) = await poisoned(driver.context)
        await driver.service.watchdog.look()
        assert "deliveries poisoned --retry" in driver.service.watchdog.sentences[0]
        assert aside.item is not None
        assert b"e2" in aside.item.body
        assert "tallyhook_inbox_set_aside 1.0" in (await driver.client.get("/metrics")).text
        async with inbox.database.writing() as connection:
            await connection.exec_driver_sql("DROP TRIGGER no")
        await retry(driver.context)
        inbox.signals.accepted.set()
        await soon(lambda: driver.rows("SELECT count(*) FROM events") == [(5,)])
        assert await poisoned(driver.context) == []


async def test_its_order_is_held_until_it_was_read(tmp_path: Path) -> None:
    """The order may have lost its money by what could not be read: nobody ships on it meanwhile."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        await driver.send(event("e1"))
        assert (await driver.api("GET", "/orders/ORD-1")).json()["fulfillable"]
        async with driver.service.inbox.database.writing() as connection:
            await connection.exec_driver_sql(
                "CREATE TRIGGER no BEFORE INSERT ON events WHEN NEW.event_id = 'e2' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        nameless = event("e2", "refunded", order=None)  # the order is known by its payment
        assert (await driver.send(nameless)).json()["verdict"] == "accepted"
        await soon(lambda: driver.rows("SELECT aside FROM suspects") == [(1,)])
        held = (await driver.api("GET", "/orders/ORD-1")).json()
        assert not held["fulfillable"]
        assert "held_back" in [finding["code"] for finding in held["findings"]]
        report = await check_database(driver.context, deep=1, progress=lambda count: None)
        assert any("set aside" in problem for problem in report.problems)
        async with driver.service.inbox.database.writing() as connection:
            await connection.exec_driver_sql("DROP TRIGGER no")
        assert await retry(driver.context) == 1
        await soon(lambda: driver.rows("SELECT count(*) FROM events") == [(2,)])
        await soon(lambda: driver.rows("SELECT kind FROM records WHERE kind='released'"))
        read = (await driver.api("GET", "/orders/ORD-1")).json()
        assert "held_back" not in [finding["code"] for finding in read["findings"]]
        assert read["outcome"] == "refunded"


def begin(path: Path, starts: int) -> None:
    """Let this number of readers begin and end before they append anything."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT OR REPLACE INTO counters VALUES ('reader starts', ?)", (starts,))


@pytest.mark.parametrize("starts", [0, 1], ids=["the one before read", "the one before died"])
async def test_rows_under_which_a_reader_died_are_read_one_by_one(
    tmp_path: Path, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each delivery by itself, claimed before."""
    tried: list[int] = []
    appending = reader._append

    async def counted(reading: ReaderContext, ready: Any) -> None:
        ((claimed,),) = driver_rows(tmp_path, "SELECT count(taken_by) FROM suspects")
        tried.append(claimed)
        await appending(reading, ready)

    async with driving(tmp_path, with_worker=False) as driver:
        monkeypatch.setattr(reader, "read_some", nothing)
        await asyncio.gather(*(driver.send(of_order(f"O-{n}", f"e{n}")) for n in range(3)))
    monkeypatch.undo()
    begin(tmp_path / "t.db", starts)
    monkeypatch.setattr(reader, "_append", counted)
    async with driving(tmp_path, with_worker=False) as driver:
        await soon(lambda: driver.rows("SELECT count(*) FROM events") == [(3,)])
        assert tried == ([1, 1, 1] if starts else [0])
        assert driver.rows("SELECT count(*) FROM suspects") == [(0,)]
        assert driver.rows("SELECT value FROM counters WHERE name='reader starts'") == [(0,)]


def driver_rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask the database on another connection."""
    with closing(sqlite3.connect(folder / "t.db")) as database:
        return database.execute(sql).fetchall()


async def test_one_under_which_three_readers_died_is_read_no_more(tmp_path: Path) -> None:
    """Whoever begins then sets it aside without reading it, and reads the others."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e0"))
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        record = framed([received(arrival(said("e1", order="A")))])
        row = (int(T), 3, 0, "", record)
        database.execute(
            "INSERT INTO suspects (received_at, tries, aside, orders, record) "
            "VALUES (?, ?, ?, ?, ?)",
            row,
        )
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e2"))
        assert driver.rows("SELECT count(*) FROM deliveries") == [(2,)]
        assert driver.rows("SELECT tries, aside FROM suspects") == [(3, 1)]
        assert await driver.ready()


async def test_orders_of_one_under_which_three_readers_died_are_held(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """Where each could still say whose it is. It may say that money went back."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        await driver.send(event("e1"))
        await read_some(reading(driver))
        assert (await driver.api("GET", "/orders/ORD-1")).json()["fulfillable"]
        await driver.send(event("e2", "refunded"))
        inbox = driver.service.inbox
        standing_still.setattr(Reader, "_round", nothing)
        standing_still.setattr(reader, "_append", dies)
        rows = await inbox.next_rows(limit=9, most_bytes=9_999)
        await inbox.database.writer.commit(suspect, rows)
        for _ in range(3):
            with pytest.raises(Died):
                await Reader(reading(driver))._read_suspect()
        assert await Reader(reading(driver))._read_suspect() == 1
        assert driver.rows("SELECT aside, orders FROM suspects") == [(1, "ORD-1")]
        held = (await driver.api("GET", "/orders/ORD-1")).json()
        assert not held["fulfillable"]
        assert "held_back" in [finding["code"] for finding in held["findings"]]


class Died(BaseException):
    """The process is gone."""


async def dies(*_: Any) -> None:
    """Die in place of the function that appends."""
    raise Died


async def test_a_damaged_row_is_kept_and_holds_up_nobody(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        inbox = driver.service.inbox
        async with inbox.writer.writer.transaction() as connection:
            await connection.exec_driver_sql(
                "INSERT INTO inbox (count, received_at, size, records) VALUES (1, 1, 3, x'00ff00')"
            )
        await driver.send(event("e1"))
        await soon(lambda: driver.rows("SELECT aside, record FROM suspects") == [(1, b"\0\xff\0")])
        assert driver.rows("SELECT verdict FROM deliveries") == [("stored",)]


def test_what_is_framed_is_read_again() -> None:
    """Any mix of deliveries and refused ones, in their order; a row that was cut is reported."""
    items: list[Any] = [
        received(arrival(said("e1", order="A"))),
        rejection(body=b"\x00\xff", headers="é: ü"),
        rejection(count=7),
        Received(delivery_id="d", received_at=T, source="s", headers="", body=b"", lane=4_095),
        Received(delivery_id="d", received_at=T, source="s", headers="", body=b"", url="/w?x=%00é"),
        Received(delivery_id="d", received_at=T, source="s", headers="", body=b"", peer="public"),
    ]
    row = framed(items)
    assert list(items_in(row)) == items
    for length in range(1, len(row)):
        try:
            found = list(items_in(row[:length]))
        except DamagedRow:
            continue
        assert found == items[: len(found)]
        assert len(found) < len(items)


def test_a_head_of_another_length_is_damage() -> None:
    """Whoever reads a row learns that it is not what was written, and keeps it."""
    for length in (0, 3, 4, 6, 8, 10):
        head = json.dumps(["d", 1, "s", "", *[""] * 6][:length]).encode()
        with pytest.raises(DamagedRow):
            list(items_in(struct.pack(">II", len(head), 0) + head))


async def test_what_came_another_way_needs_no_row(driver: Driver) -> None:
    """An answer that was asked for is appended by itself."""
    inbox = driver.service.inbox
    appended = await inbox.append([Ready(None, [arrival(said("e9", order="A"))])])
    assert [verdict for _, verdict in appended] == ["stored"]


@pytest.fixture
async def driver(tmp_path: Path) -> Any:
    """Run a service whose tests fold."""
    async with driving(tmp_path, with_worker=False) as driven:
        yield driven
