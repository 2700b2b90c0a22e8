"""A clock that was ahead and is set right: nothing that is here waits until time has caught up."""

import asyncio
from pathlib import Path
from typing import Any

from app.orders.notification_store import LEASE, take_notifications
from app.orders.refold import call_up_early, refold_due
from app.orders.worker import FoldWorker
from reconcile.instants import DAY, HOUR, MINUTE
from tests.api.driving import Driver, driving, event, secret
from tests.contexts import with_settings
from tests.reconcile.build import T
from tests.waiting import soon


async def outcomes(driver: Driver) -> list[str]:
    """List the published outcomes, in order."""
    return [each["outcome"] for each in (await driver.api("GET", "/outcomes")).json()["outcomes"]]


async def ahead(driver: Driver) -> None:
    """Put the clock a day ahead, let an event come, and set the clock right."""
    driver.clock.put(T + DAY)
    await driver.send(event("e1"))
    driver.clock.put(T)


async def folded_by(worker: FoldWorker, driver: Driver) -> None:
    """Let the worker run until something is published."""
    running = asyncio.create_task(worker.run())
    await soon(lambda: driver.rows("SELECT 1 FROM revisions"))
    worker.stop()
    await running


async def test_a_worker_that_starts_folds_what_waits_for_the_future(tmp_path: Path) -> None:
    """The due mark lies a day ahead."""
    async with driving(tmp_path, with_worker=False) as driver:
        await ahead(driver)
        assert await refold_due(driver.context, limit=10) == 0
        await folded_by(FoldWorker(with_settings(driver.context, worker_batch=10)), driver)
        assert await outcomes(driver) == ["succeeded"]


async def test_a_worker_sees_the_clock_go_back(tmp_path: Path) -> None:
    """It had begun before the clock was set right."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.clock.put(T + DAY)
        worker = FoldWorker(with_settings(driver.context, worker_batch=10))
        await worker._round()
        await ahead(driver)
        await folded_by(worker, driver)
        assert await outcomes(driver) == ["succeeded"]


async def test_a_deadline_stays(tmp_path: Path) -> None:
    """An order that waits for its own next decision is left alone."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1", "pending"))
        await refold_due(driver.context, limit=10)
        ((before,),) = driver.rows("SELECT due_at FROM order_due")
        assert before > T
        assert await call_up_early(driver.context) == 0
        assert driver.rows("SELECT due_at FROM order_due") == [(before,)]


async def test_the_shop_is_notified_at_once(tmp_path: Path) -> None:
    """A notification is dated after all that is known; when it is sent is not."""
    settings: dict[str, Any] = {
        "SHOP__URL": "http://127.0.0.1:9/x",
        "SHOP__SECRET": secret(b"x" * 32),
    }
    async with driving(tmp_path, with_worker=False, **settings) as driver:
        driver.clock.put(T + HOUR)
        await driver.send(event("e1", "pending"))
        await refold_due(driver.context, limit=10)
        driver.clock.put(T)
        await driver.send(event("e2"))
        await refold_due(driver.context, limit=10)
        assert await taken(driver) == []  # the first is dated ahead, and the second waits behind it
        await call_up_early(driver.context)
        assert await taken(driver) == [1]
        driver.clock.put(T + 2 * LEASE + MINUTE)
        assert await taken(driver) == [1]


async def taken(driver: Driver) -> list[int]:
    """List the revisions that the shop is to be notified of now."""
    async with driver.context.database.writing() as connection:
        now = driver.clock.now()
        found = await take_notifications(connection, now=now, limit=10, lease=LEASE)
    return [each.published.seq for each in found]
