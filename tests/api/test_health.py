"""Liveness, readiness and metrics: an impaired service never claims to be whole."""

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest

from app.checkout import ask_session
from app.core.errors import StoreUnavailable
from app.database.writer import Space
from app.orders import worker
from app.orders.pending_session_store import PendingSession, note_pending
from app.orders.refold import refold_due
from app.privacy.copies import note_backup
from app.receiving import caught_up
from app.receiving.inbox import Inbox
from app.sealing.departure_store import Departure, add_departure
from reconcile.instants import MINUTE, SECOND, Instant
from tests.api.driving import Driver, driving, event
from tests.database.test_journal import a_busy_inbox, a_failing_disk, a_full_disk, a_read_only_file
from tests.reconcile.build import T
from tests.waiting import soon

TOO_LITTLE_ROOM = (
    "less than 64 MiB of the database's disk is free; free some space, or lower "
    "TALLYHOOK_DISK_LOW_WATER_MB"
)


async def broken(driver: Driver) -> tuple[int, list[str]]:
    """Return the status and the reasons of readiness."""
    answer = await driver.client.get("/readyz")
    return answer.status_code, answer.json()["reasons"]


async def test_a_whole_service_is_ready(driver: Driver) -> None:
    assert await broken(driver) == (200, [])
    assert (await driver.client.get("/livez")).json() == {"status": "alive"}
    assert driver.service.broken == []


async def test_a_worker_that_fails_turns_readiness_red_and_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: Any, **words: Any) -> int:
        raise RuntimeError("planned")

    monkeypatch.setattr(worker, "refold_due", fail)
    async with driving(tmp_path, looking=True) as driver:
        await driver.service.stopped()
        status, reasons = await broken(driver)
        assert status == 503
        assert "the fold worker failed" in reasons
        assert driver.service.broken == ["the fold worker failed"]


async def test_a_part_that_fails_at_a_lost_file_ends_the_service_with_what_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part can find the loss before the next look at the files does."""

    async def fail(*arguments: Any, **words: Any) -> int:
        os.truncate(tmp_path / "t.db.inbox", 0)
        raise RuntimeError("planned")

    monkeypatch.setattr(worker, "refold_due", fail)
    async with driving(tmp_path, looking=True) as driver:
        await driver.service.stopped()
        assert "t.db.inbox was cut off while the service was running" in driver.service.broken[0]


async def test_a_worker_tries_again_while_the_store_cannot_take_a_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter(range(2))

    async def fail_twice(*arguments: Any, **words: Any) -> int:
        if next(failures, None) is not None:
            raise StoreUnavailable("the disk is full; free some space")
        return await refold_due(*arguments, **words)

    monkeypatch.setattr(worker, "refold_due", fail_twice)
    monkeypatch.setattr(worker, "IDLE_S", 0.02)
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        page = (await driver.api("GET", "/outcomes?wait=60")).json()
        assert [each["outcome"] for each in page["outcomes"]] == ["succeeded"]
        assert driver.service.broken == []


@pytest.mark.parametrize(
    ("fault", "reason"), [(a_failing_disk, "I/O error"), (a_read_only_file, "is read-only")]
)
async def test_a_poisoned_store_acknowledges_nothing_and_ends_the_service(
    tmp_path: Path, fault: Any, reason: str
) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        assert (await driver.send(event("e1"))).status_code == 200
        inbox = driver.service.inbox.file
        assert inbox is not None
        async with fault(inbox.writer, inbox.path):
            answer = await driver.send(event("e2", note={"filler": "x" * 100_000}))
        assert answer.status_code == 503
        for body in (event("e1"), event("e3"), b"{}"):
            assert (await driver.send(body)).status_code == 503
        status, reasons = await broken(driver)
        assert status == 503
        assert [reason in each for each in reasons] == [True]
        assert driver.service.broken == reasons
        figures = await driver.client.get("/metrics")
        assert figures.status_code == 200  # an alert asks for them now
        assert "tallyhook_store_writable 0.0" in figures.text
        assert 'deliveries_not_stored_total{reason="failed"}' in figures.text
        await driver.service.stopped()
        assert driver.rows("SELECT event_id FROM deliveries") == [("e1",)]


async def fill_the_last_page(inbox: Inbox) -> None:
    """Fill the pages of the table that a trial write uses."""
    for size in (200, 50, 10, 1):
        for number in range(1_000):
            name = f"{number:x}".rjust(size, "-")
            try:
                async with inbox.writer.writer.transaction() as connection:
                    await connection.exec_driver_sql(
                        "INSERT OR IGNORE INTO counters (name, value) VALUES (?, 2)", (name,)
                    )
            except StoreUnavailable:
                break


@pytest.mark.parametrize(
    ("trouble", "reason"), [(a_full_disk, "disk is full"), (a_busy_inbox, "busy")]
)
async def test_readiness_tries_after_a_failed_commit(
    tmp_path: Path, trouble: Any, reason: str
) -> None:
    """Readiness stays red as long as the trouble lasts and no longer, though a balancer sends no
    delivery to a service that is not ready."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        inbox = driver.service.inbox
        async with trouble(inbox):
            if trouble is a_full_disk:
                await fill_the_last_page(inbox)
            answer = await driver.send(event("e1", note={"filler": "x" * 500_000}))
            assert (answer.status_code, answer.json()["code"]) == (503, "not_stored")
            for _ in range(3):
                status, reasons = await broken(driver)
                assert status == 503
                assert [reason in each for each in reasons] == [True]
            assert (await driver.client.get("/livez")).status_code == 200
        assert await broken(driver) == (200, [])
        assert driver.service.broken == []
        assert driver.rows("SELECT count(*) FROM deliveries") == [(0,)]


async def test_deliveries_are_counted_by_source_and_verdict_with_no_label_of_the_senders(
    driver: Driver,
) -> None:
    for _ in range(3):
        await driver.send(event("e1"))
    await driver.send(event("e2"), [])
    await driver.send(event("e2"), source="made-up-by-the-sender")
    await driver.api("GET", "/outcomes?wait=60")
    text = (await driver.client.get("/metrics")).text
    counted = dict(re.findall(r"^tallyhook_deliveries_total(\{.*\}) (\S+)$", text, re.MULTILINE))
    counted = {labels: float(number) for labels, number in counted.items() if float(number)}
    assert counted == {
        '{source="shop",verdict="accepted"}': 3,
        '{source="shop",verdict="signature_missing"}': 1,
        '{source="unknown",verdict="source_unknown"}': 1,
    }
    assert 'tallyhook_deliveries_read_total{source="shop",verdict="stored"} 1.0' in text
    assert 'tallyhook_deliveries_read_total{source="shop",verdict="duplicate"} 2.0' in text
    assert "tallyhook_inbox_unread 0.0" in text
    assert 'tallyhook_orders{outcome="succeeded"} 1.0' in text
    assert "tallyhook_delivery_seconds_count 5.0" in text
    assert "made-up" not in text


async def test_figures_of_what_is_done_now_and_then(driver: Driver) -> None:
    """A figure is absent until its task first ran; its alert is for a task that stopped."""

    async def figures() -> dict[str, float]:
        text = (await driver.client.get("/metrics")).text
        found = re.findall(r"^tallyhook_(last_\w+) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    assert await figures() == {}
    async with driver.context.database.writing() as connection:
        for size, at in ((7, T + 90 * MINUTE), (9, T)):
            departure = Departure(size=size, way="mail", head=bytes(32), at=Instant(at))
            await add_departure(connection, departure)
    await note_backup(driver.context, at=Instant(T + MINUTE), file=Path("1.db"))
    await note_backup(driver.context, at=Instant(T + 2 * MINUTE), file=Path("2.db"))
    assert await figures() == {
        "last_checkpoint_left_seconds": T // SECOND,
        "last_checkpoint_left_leaves": 9,
        "last_backup_seconds": (T + 2 * MINUTE) // SECOND,
    }


async def test_below_the_low_water_deliveries_are_refused_until_space_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [1024 * 1024 * 1024]
    monkeypatch.setattr(Space, "free_bytes", lambda space: free[0])
    async with driving(tmp_path, looking=True) as driver:
        assert (await driver.send(event("e1"))).status_code == 200
        assert (await driver.api("GET", "/orders/ORD-1")).status_code == 200
        inbox = driver.service.inbox.writer
        await soon(lambda: inbox.records == 0)  # none is unread that needs room
        free[0] = 64 * 1024 * 1024 - 1
        for _ in range(2):
            answer = await driver.send(event("e2"))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        status, reasons = await broken(driver)
        assert status == 503
        assert reasons == [TOO_LITTLE_ROOM]
        figures = (await driver.client.get("/metrics")).text
        assert "tallyhook_store_writable 0.0" in figures
        assert "tallyhook_disk_free_bytes 6.7108863e+07" in figures
        assert (await driver.api("GET", "/orders/ORD-1")).status_code == 200
        free[0] += 1
        assert (await driver.send(event("e2"))).status_code == 200
        await soon(lambda: inbox.records == 0)
        assert await broken(driver) == (200, [])
        assert "tallyhook_store_writable 1.0" in (await driver.client.get("/metrics")).text


async def test_a_start_with_too_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    """A service that starts below the low water, with sessions to ask for again, stays up and
    serves reads. It writes what it had to at its start once there is room."""
    free = [1024 * 1024 * 1024]
    monkeypatch.setattr(Space, "free_bytes", lambda space: free[0])
    monkeypatch.setattr(ask_session, "IDLE_S", 0.02)
    sessions: dict[str, Any] = {
        "CHECKOUT__BASE_URL": "http://127.0.0.1:9",
        "CHECKOUT__TOKEN": "test_token_4f1d9c",
    }
    async with driving(tmp_path, looking=True, **sessions) as driver:
        assert (await driver.send(event("e1"))).status_code == 200
        await driver.api("GET", "/orders")  # makes the token
        await held_for_a_while(driver)
    free[0] = 64 * 1024 * 1024 - 1
    async with driving(tmp_path, looking=True, **sessions) as again:
        again.token = driver.token
        await soon(lambda: "are requested again" in log.getvalue() or again.service.broken)
        assert again.service.broken == []
        assert await broken(again) == (503, [TOO_LITTLE_ROOM])
        assert (await again.api("GET", "/orders/ORD-1")).status_code == 200
        assert again.rows("SELECT held_until > 0 FROM unanswered") == [(1,)]
        free[0] += 1
        await soon(lambda: again.rows("SELECT held_until FROM unanswered") == [(0,)])
        assert await broken(again) == (200, [])
        assert (await again.send(event("e2"))).status_code == 200


async def held_for_a_while(driver: Driver) -> None:
    """Insert a request that a process held when it died, and that is not due for some time."""
    later = driver.clock.now() + 10 * MINUTE
    entry = PendingSession(
        key="key_1", order="ORD-9", request=b"{}", due_at=later, held_until=later
    )
    await driver.service.inbox.database.writer.commit(note_pending, entry)


async def test_deliveries_that_cannot_be_written_again_and_again(
    tmp_path: Path, log: io.StringIO
) -> None:
    """A trigger aborts each write. Every sender is told to retry; after three in a row, readiness,
    metrics and log say so until a write succeeds."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        assert (await driver.send(event("e0"))).status_code == 200
        inbox = driver.service.inbox.writer.writer
        async with inbox.transaction() as connection:
            await connection.exec_driver_sql(
                "CREATE TRIGGER no BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        for number in range(3):
            assert await broken(driver) == (200, []), number
            answer = await driver.send(event(f"e{number + 1}"))
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        for _ in range(2):  # looking does not mend it
            status, (reason,) = await broken(driver)
            assert status == 503
            assert "the last 3 batches of deliveries could not be written" in reason
            assert "run `tallyhook db check`" in reason
        figures = (await driver.client.get("/metrics")).text
        assert "tallyhook_write_faults 3.0" in figures
        assert "tallyhook_store_writable 0.0" in figures
        assert log.getvalue().count("deliveries cannot be written") == 1
        async with inbox.transaction() as connection:
            await connection.exec_driver_sql("DROP TRIGGER no")
        assert await broken(driver) == (200, [])
        assert "deliveries can be written again" in log.getvalue()
        assert "tallyhook_write_faults 0.0" in (await driver.client.get("/metrics")).text
        assert (await driver.send(event("e1"))).status_code == 200
        assert driver.rows("SELECT count(*) FROM deliveries") == [(2,)]


async def test_deliveries_that_cannot_be_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was accepted is kept, readiness is red whoever sends, and all is read afterwards."""
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.05)  # who sends would wait for the reader
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        async with driver.service.inbox.database.writing() as connection:
            await connection.exec_driver_sql(
                "CREATE TRIGGER no BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        for number in range(2):
            assert (await driver.send(event(f"e{number}"))).status_code == 200
            assert (await driver.send(event(f"e{number}"), headers=[])).status_code == 401
        await soon(lambda: driver.service.inbox.append_faults >= 3)
        status, (reason,) = await broken(driver)
        assert status == 503
        assert "accepted deliveries cannot be appended" in reason
        figures = (await driver.client.get("/metrics")).text
        assert "tallyhook_store_writable 0.0" in figures
        assert "tallyhook_inbox_unread 4.0" in figures
        assert driver.rows("SELECT count(*) FROM deliveries") == [(0,)]
        async with driver.service.inbox.database.writing() as connection:
            await connection.exec_driver_sql("DROP TRIGGER no")
        await soon(lambda: driver.rows("SELECT count(*) FROM deliveries") == [(2,)])
        await soon(lambda: driver.rows("SELECT count(*) FROM rejections") == [(2,)])
        assert driver.rows("SELECT count(*) FROM inbox") == [(0,)]
        assert await broken(driver) == (200, [])
