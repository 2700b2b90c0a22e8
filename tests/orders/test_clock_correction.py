"""A clock that was a day ahead and is right again: what it dated counts from then."""

from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StoreUnavailable
from app.core.ids import new_id
from app.database.statements import PlainConnection
from app.monitoring.monitoring_store import last_delivery
from app.orders import clock_correction, clock_correction_store
from app.orders.clock_correction import ClockState, ClockWatch, clock_alarm, put_right
from app.orders.clock_correction_store import ClockCorrection
from app.orders.record_store import hold_record, keep_records
from app.orders.refold import publishable, refold_until_quiet
from app.receiving.reader import read_some
from app.receiving.source_state import source_states
from reconcile.instants import (
    DAY,
    EARLIEST,
    HOUR,
    MINUTE,
    SECOND,
    TICK,
    Duration,
    Instant,
    format_instant,
)
from tests.api.driving import Driver, driving, of_order, reader_of
from tests.reconcile.build import T
from tests.waiting import soon

RIGHT = Instant(T + 10 * MINUTE)
"""Instant at which the clock is put right: before the deadline of what began at T."""


async def fold(driver: Driver) -> None:
    await refold_until_quiet(driver.context, limit=10, progress=lambda _: None)


async def published(driver: Driver) -> list[tuple[str, str]]:
    """Return order and outcome of each revision, in the feed's order."""
    rows = (await driver.api("GET", "/outcomes")).json()["outcomes"]
    return [(each["order"], each["outcome"]) for each in rows]


async def day_ahead(driver: Driver) -> ClockWatch:
    """Begin an order at T and pay another a day ahead; then put the clock right."""
    watch = ClockWatch(driver.context)
    await watch.look()
    await driver.send(of_order("A", "begun", "pending"))
    await fold(driver)
    driver.clock.put(T + DAY)
    await watch.look()
    await driver.send(of_order("B", "paid"))
    await fold(driver)
    driver.clock.put(RIGHT)
    return watch


async def test_what_was_published_too_early_is_corrected(tmp_path: Path) -> None:
    """By number, though its date is earlier than that of the revision before. What was paid stays
    paid; only its delivery is no longer late."""
    async with driving(tmp_path, with_worker=False) as driver:
        watch = await day_ahead(driver)
        before = await published(driver)
        assert sorted(before) == [("A", "pending"), ("A", "timed_out"), ("B", "succeeded")]
        await watch.look()
        await fold(driver)
        assert sorted((await published(driver))[3:]) == [("A", "pending"), ("B", "succeeded")]
        shown = (await driver.api("GET", "/orders/A")).json()
        assert shown["outcome"] == "pending"
        driver.clock.put(T + HOUR)
        await fold(driver)
        assert (await published(driver))[5:] == [("A", "timed_out")]


async def test_a_delivery_of_that_time_counts_from_when_the_clock_was_right(
    tmp_path: Path,
) -> None:
    """The delivery stays as it was stored. A later one of the same minute counts as it came."""
    async with driving(tmp_path, with_worker=False) as driver:
        watch = await day_ahead(driver)
        await watch.look()
        await fold(driver)
        assert (await driver.api("GET", "/orders/B")).json()["timeline"][0][
            "received_at"
        ] == format_instant(RIGHT)
        stored = driver.rows("SELECT received_at FROM deliveries ORDER BY id")
        assert stored == [(T,), (T + DAY,)]
        for at, known in ((RIGHT - SECOND, 404), (RIGHT + SECOND, 200)):
            got = await driver.api("GET", f"/orders/B?as_of={format_instant(Instant(at))}")
            assert got.status_code == known
        driver.clock.put(T + DAY - MINUTE)
        await driver.send(of_order("C", "later"))
        await watch.look()
        assert driver.rows("SELECT count(*) FROM records WHERE order_key='C'") == [(0,)]


async def test_it_is_stored_from_when_to_when_the_clock_was_ahead(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        watch = await day_ahead(driver)
        await watch.look()
        ((facts,),) = driver.rows("SELECT facts FROM audit WHERE action='clock_put_right'")
        assert f'"since":"{format_instant(T)}"' in facts
        assert f'"until":"{format_instant(RIGHT)}"' in facts
        assert '"ahead_by":"23 h 50 min"' in facts
        await watch.look()
        await ClockWatch(driver.context).look()
        assert driver.rows("SELECT count(*) FROM audit WHERE action='clock_put_right'") == [(1,)]


async def test_a_clock_that_was_ahead_within_one_round_is_noticed(tmp_path: Path) -> None:
    """The worker notes it after it has folded."""
    async with driving(tmp_path, with_worker=False) as driver:
        watch = ClockWatch(driver.context)
        await watch.look()
        driver.clock.put(T + DAY)
        await driver.send(of_order("B", "paid"))
        await fold(driver)
        watch.note()
        driver.clock.put(RIGHT)
        await watch.look()
        assert driver.rows("SELECT count(*) FROM audit WHERE action='clock_put_right'") == [(1,)]


async def test_a_store_that_is_busy_then_is_corrected_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        watch = await day_ahead(driver)

        async def busy(*_: object, **__: object) -> ClockState:
            raise StoreUnavailable("busy")

        with monkeypatch.context() as patched:
            patched.setattr(clock_correction, "put_right", busy)
            with pytest.raises(StoreUnavailable):
                await watch.look()
        await watch.look()
        assert driver.rows("SELECT count(*) FROM audit WHERE action='clock_put_right'") == [(1,)]


async def test_who_looks_after_the_service_hears_of_it_for_a_day(tmp_path: Path) -> None:
    """First that something is dated later than now, then that it was put right."""
    async with driving(tmp_path, with_worker=False) as driver:
        watch = await day_ahead(driver)
        alarm = await clock_alarm(driver.context)
        assert alarm is not None
        assert alarm.pressing
        assert f"{format_instant(Instant(T + DAY))}, 23 h 50 min later than" in alarm.sentence
        await watch.look()
        alarm = await clock_alarm(driver.context)
        assert alarm is not None
        assert not alarm.pressing
        assert f"between {format_instant(T)} and {format_instant(RIGHT)}" in alarm.sentence
        for at, lasts in ((RIGHT + DAY - SECOND, True), (RIGHT + DAY, False)):
            driver.clock.put(Instant(at))
            assert (await clock_alarm(driver.context) is not None) == lasts


async def test_the_source_was_last_heard_when_the_clock_was_put_right(tmp_path: Path) -> None:
    """Else its silence would be noticed a day later."""
    async with driving(tmp_path, with_worker=False) as driver:
        await (await day_ahead(driver)).look()
        (state,) = await source_states(driver.context)
        assert state.last == RIGHT
        async with driver.context.database.reading() as connection:
            last = await last_delivery(connection, driver.clock.now())
        assert last is not None
        assert RIGHT <= last < RIGHT + SECOND


async def test_a_service_that_was_stopped_meanwhile_sees_it_at_its_start(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await day_ahead(driver)
        await ClockWatch(driver.context).look()
        await fold(driver)
        assert sorted((await published(driver))[3:]) == [("A", "pending"), ("B", "succeeded")]


async def test_nothing_is_published_before_what_that_clock_dated_is_read(tmp_path: Path) -> None:
    """The unread delivery may be about any order, and nobody knows when it came. It is redated once
    it is read, though the service was restarted before."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(of_order("A", "begun", "pending"))
        reader = reader_of(driver.service)
        reader.stop(drain=False)
        await soon(lambda: not reader.alive)
        driver.clock.put(T + DAY)
        await driver.send(of_order("A", "paid"))
        driver.clock.put(RIGHT)
        watch = ClockWatch(driver.context)
        await watch.look()
        await fold(driver)
        assert await published(driver) == []
        assert await publishable(driver.context) == EARLIEST
        assert await put_right(driver.context) is ClockState.UNREAD
        behind = await driver.api("GET", "/orders/A")
        assert int(behind.headers["Tallyhook-Behind"]) >= 1
        while await read_some(reader._reading):
            pass
        await watch.look()
        await fold(driver)
        assert await published(driver) == [("A", "succeeded")]
        assert driver.rows("SELECT at FROM revisions") == [(RIGHT,)]


async def test_a_clock_that_is_behind_changes_nothing(tmp_path: Path) -> None:
    """Its providers date what is later than now so, too."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.clock.put(T + DAY)
        await driver.send(of_order("B", "paid") | {"occurred_at": format_instant(Instant(T + DAY))})
        await fold(driver)
        driver.clock.put(RIGHT)
        assert await put_right(driver.context) is ClockState.BEHIND
        assert driver.rows("SELECT count(*) FROM records WHERE kind='redated'") == [(0,)]


async def test_what_no_provider_dates_is_redated_only_where_the_clock_was_seen_to_be_set_back(
    tmp_path: Path,
) -> None:
    """Else this clock may as well be behind."""
    async with driving(tmp_path, with_worker=False, at=Instant(T + DAY)) as driver:
        await placed(driver, 1)
        driver.clock.put(RIGHT)
        assert await put_right(driver.context) is ClockState.BEHIND
        assert driver.rows("SELECT count(*) FROM records WHERE kind='redated'") == [(0,)]
        seen = ClockCorrection(None, RIGHT, Instant(T + DAY))
        assert await put_right(driver.context, seen=seen) is ClockState.RIGHT
        assert driver.rows("SELECT count(*) FROM records WHERE kind='redated'") == [(1,)]


async def test_a_clock_that_is_put_right_in_two_steps_is_right_in_the_end(tmp_path: Path) -> None:
    """What was redated at the first step counts from the second, and is known from then on."""
    async with driving(tmp_path, with_worker=False, at=Instant(T + 2 * DAY)) as driver:
        watch = ClockWatch(driver.context)
        await watch.look()
        await driver.send(of_order("B", "paid"))
        await placed(driver, 1)
        driver.clock.put(Instant(T + DAY))
        await watch.look()
        await placed(driver, 2)
        driver.clock.put(RIGHT)
        await watch.look()
        await fold(driver)
        assert await clock_alarm(driver.context) is not None
        shown = (await driver.api("GET", "/orders/B")).json()
        assert shown["timeline"][0]["received_at"] == format_instant(RIGHT)
        price = (await driver.api("GET", "/orders/P")).json()["totals"]["expected"]["amount"]
        assert price == "2.00"  # the one that was stated last, though it is dated earlier
        assert driver.rows("SELECT max(as_of) < ? FROM ledgers", RIGHT + MINUTE) == [(1,)]


@pytest.mark.parametrize("ahead", [0, 5 * MINUTE])
async def test_the_correction_ends_though_more_arrives_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: Duration
) -> None:
    """What arrives meanwhile by a right clock is not redated; by one that differs a little, some
    is."""
    async with driving(tmp_path, with_worker=False) as driver:
        watch = await day_ahead(driver)
        find, calls = clock_correction_store.dated_ahead, list[Instant]()

        def found(connection: PlainConnection, *, now: Instant, limit: int) -> Any:
            calls.append(Instant(driver.clock.now() + ahead))
            assert len(calls) < 9
            name = new_id("rec_", calls[-1])
            arrived = hold_record("H", "held", at=calls[-1], record_id=name, reason="rules_changed")
            keep_records(connection, [arrived])
            driver.clock.put(Instant(driver.clock.now() + SECOND))
            return find(connection, now=now, limit=limit)

        monkeypatch.setattr(clock_correction, "AT_ONCE", 2)
        monkeypatch.setattr(clock_correction_store, "dated_ahead", found)
        await watch.look()
        redated = driver.rows("SELECT count(*) FROM records WHERE kind='redated' AND order_key='H'")
        assert len(calls) > 1
        assert (redated != [(0,)]) is (ahead > 0)


async def test_prices_of_that_time_keep_their_order(tmp_path: Path) -> None:
    """Also those of one millisecond, whose ids do not sort. One that is stated after the correction
    outweighs all."""
    async with driving(tmp_path, with_worker=False) as driver:
        for number in range(1, 21):
            driver.clock.put(Instant(T + DAY + number * TICK))
            await placed(driver, number)
        watch = ClockWatch(driver.context)
        await watch.look()
        driver.clock.put(RIGHT)
        await watch.look()
        assert (await driver.api("GET", "/orders/P")).json()["totals"]["expected"]["amount"] == (
            "20.00"
        )
        await placed(driver, 30)
        assert (await driver.api("GET", "/orders/P")).json()["totals"]["expected"]["amount"] == (
            "30.00"
        )
        assert driver.rows(
            "SELECT max(recorded_at) < ? FROM records WHERE kind<>'redated' AND amount=3000",
            T + HOUR,
        ) == [(1,)]


async def test_a_price_of_that_time_that_is_stated_again_counts(tmp_path: Path) -> None:
    """Though another one was stated since, and it is stored with the latest date."""
    async with driving(tmp_path, with_worker=False) as driver:
        watch = await day_ahead(driver)
        driver.clock.put(Instant(T + DAY))
        await placed(driver, 1)
        driver.clock.put(RIGHT)
        await watch.look()
        for amount in (2, 1):
            driver.clock.put(Instant(RIGHT + SECOND))
            await placed(driver, amount)
            shown = (await driver.api("GET", "/orders/P")).json()["totals"]["expected"]["amount"]
            assert shown == f"{amount}.00"


async def placed(driver: Driver, amount: int) -> Any:
    body = {"amount": f"{amount}.00", "currency": "KES"}
    return await driver.api("PUT", "/orders/P", json=body)
