"""A merchant changes what counts as late and starts again: everything follows the new policy."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from app.core.logs import configure_logging
from app.finance.reconcile_rows import refresh_ledger_lines
from app.orders import refold
from app.orders.refold import TakingUp, refold_until_quiet
from app.orders.worker import FoldWorker
from app.privacy.check import check_database
from app.privacy.prune import Retention, prune_orders, settled_orders
from reconcile.instants import DAY, MINUTE, NO_TIME, Duration
from reconcile.ledger.policy import FORM
from tests.api.driving import Driver, driving, event, of_order
from tests.contexts import with_settings
from tests.database.builders import quiet
from tests.reconcile.build import T
from tests.waiting import soon

CHANGED = "settings that affect outcomes have changed; all orders will be folded again"
NOT_KNOWN = "the settings of the last folds are unknown; all orders will be folded again"


@pytest.fixture
def log() -> io.StringIO:
    """Capture the process's log during the test."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream


def set_due(log: io.StringIO) -> list[tuple[str, int]]:
    """List the lines about orders set due, with their counts."""
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [
        (line["event"], line["count"]) for line in lines if "will be folded again" in line["event"]
    ]


def feed(driver: Driver) -> list[str]:
    """List the outcomes in the feed, in its order."""
    return [row[0] for row in driver.rows("SELECT outcome FROM revisions ORDER BY seq")]


def noted(driver: Driver) -> list[tuple[str, str]]:
    """List what `meta` notes of the policy."""
    return driver.rows("SELECT name, value FROM meta WHERE name='policy'")


def marks(driver: Driver) -> list[tuple[Any, ...]]:
    """Return when each order is due next, and its generation."""
    return driver.rows("SELECT due_at, generation FROM order_due ORDER BY order_key")


async def read(driver: Driver) -> str:
    """Return the API's answer about the order now."""
    return str((await driver.api("GET", "/orders/ORD-1")).json()["outcome"])


async def opened(folder: Path, *, until: Duration, expected: list[str], **settings: Any) -> None:
    """Run a service in which an order was published as pending, until so much later."""
    async with driving(folder, **settings) as driver:
        await driver.send(event("e1", "pending"))
        await soon(lambda: feed(driver) == ["pending"])
        driver.clock.put(T + until)
        await soon(lambda: feed(driver) == expected)


async def test_a_shortened_window_is_published(tmp_path: Path, log: io.StringIO) -> None:
    """An order whose deadline has passed by the new window is published as timed out, without an
    event: feed, listing and read agree."""
    await opened(tmp_path, until=40 * MINUTE, expected=["pending"], PAYMENT_WINDOW_S="7200")
    async with driving(tmp_path, at=T + 41 * MINUTE, PAYMENT_WINDOW_S="1800") as driver:
        await soon(lambda: feed(driver) == ["pending", "timed_out"])
        assert await read(driver) == "timed_out"
        assert driver.rows("SELECT outcome FROM ledgers") == [("timed_out",)]
    assert [(text, count) for text, count in set_due(log)] == [(CHANGED, 1)]


async def test_a_shortened_window_is_published_when_it_passes(tmp_path: Path) -> None:
    """The due mark is moved to the deadline by the new window, and the order comes up then."""
    await opened(tmp_path, until=10 * MINUTE, expected=["pending"], PAYMENT_WINDOW_S="7200")
    async with driving(tmp_path, at=T + 10 * MINUTE, PAYMENT_WINDOW_S="1800") as driver:
        await soon(lambda: marks(driver) == [(T + 35 * MINUTE, 2)])
        driver.clock.put(T + 35 * MINUTE)
        await soon(lambda: feed(driver) == ["pending", "timed_out"])


async def test_a_lengthened_window_is_published(tmp_path: Path) -> None:
    """An order that has timed out by the old window is open again by the new one, and comes due."""
    timed_out = ["pending", "timed_out"]
    await opened(tmp_path, until=40 * MINUTE, expected=timed_out, PAYMENT_WINDOW_S="1800")
    async with driving(tmp_path, at=T + 41 * MINUTE, PAYMENT_WINDOW_S="7200") as driver:
        await soon(lambda: feed(driver) == [*timed_out, "pending"])
        assert await read(driver) == "pending"
        await soon(lambda: marks(driver) == [(T + 125 * MINUTE, 2)])


@pytest.mark.parametrize(
    "setting",
    ["PAYMENT_WINDOW_S", "GRACE_S", "LATE_AFTER_S", "FUTURE_TOLERANCE_S", "FULFILLMENT_WINDOW_S"],
)
async def test_each_setting_of_the_policy_is_noticed(tmp_path: Path, setting: str) -> None:
    """Whichever is changed, every order is folded again, and no more than once."""
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        await soon(lambda: marks(driver) == [(None, 1)])
    changed: dict[str, Any] = {setting: "77"}
    for generation in (2, 2):
        async with driving(tmp_path, **changed) as driver:
            await soon(
                lambda: (
                    noted(driver)[0][1].startswith(f"v{FORM}") and "77000000" in noted(driver)[0][1]
                )
            )
            assert marks(driver)[0][1] == generation


async def test_an_ordinary_start_and_a_receiver_without_a_worker_change_nothing(
    tmp_path: Path, log: io.StringIO
) -> None:
    """Who has the same policy writes nothing of it; nor does who folds nothing."""
    await opened(tmp_path, until=NO_TIME, expected=["pending"])
    for settings in ({"with_worker": True}, {"with_worker": False, "GRACE_S": "7"}):
        async with driving(tmp_path, **settings) as driver:
            before = marks(driver)[0], noted(driver)
            await driver.send(of_order("P-2", "e2"))
            assert (marks(driver)[0], noted(driver)) == before
    assert set_due(log) == []


async def test_a_database_that_does_not_say(tmp_path: Path, log: io.StringIO) -> None:
    """It is folded once, in the background, and then says by what."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1", "pending"))
        await refold_until_quiet(driver.context, limit=9, progress=quiet)
        assert noted(driver) == []
    for _ in range(2):
        async with driving(tmp_path) as driver:
            await soon(lambda: bool(noted(driver)))
            assert marks(driver)[0][1] == 2
    assert [(text, count) for text, count in set_due(log)] == [(NOT_KNOWN, 1)]


async def test_what_another_process_has_taken_up_is_not_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process that folds begins anew, and has folded everything when it ends: the first
    one does not go on where it was."""
    monkeypatch.setattr(refold, "AT_ONCE", 1)
    async with driving(tmp_path, with_worker=False) as driver:
        for number in range(3):
            await driver.send(of_order(f"ORD-{number}", f"e{number}"))
        await refold_until_quiet(driver.context, limit=9, progress=quiet)
    async with driving(tmp_path, with_worker=False, PAYMENT_WINDOW_S="7200") as driver:
        signals, other = driver.context.signals, TakingUp(driver.context)
        first = FoldWorker(with_settings(driver.context, worker_batch=9))
        await first._round()
        assert [generation for _, generation in marks(driver)] == [2, 1, 1]
        while await other.some():
            pass
        await refold_until_quiet(driver.context, limit=9, progress=quiet)
        before = marks(driver)
        signals.folded_elsewhere = True
        running = asyncio.create_task(first.run())
        for elsewhere in (True, False, False, False):
            signals.folded_elsewhere = elsewhere
            signals.folded.clear()
            signals.evidence_arrived.set()
            await signals.folded.wait()
        first.stop()
        await running
        assert marks(driver) == before


async def test_check_says_that_other_settings_were_used(tmp_path: Path) -> None:
    """One problem, not one of each order; none once the service has folded by them."""
    await opened(tmp_path, until=40 * MINUTE, expected=["pending"], PAYMENT_WINDOW_S="7200")
    async with driving(tmp_path, with_worker=False, at=T + 41 * MINUTE) as driver:
        (problem,) = (await check_database(driver.context, deep=1, progress=quiet)).problems
        assert "other settings" in problem
        while await TakingUp(driver.context).some():
            pass
        await refold_until_quiet(driver.context, limit=9, progress=quiet)
        assert (await check_database(driver.context, deep=1, progress=quiet)).problems == []


async def test_takings_follow_the_new_policy(tmp_path: Path) -> None:
    """A reconciliation after the start takes no order as it was by the policy before."""
    async with driving(tmp_path, with_worker=False, PAYMENT_WINDOW_S="7200") as driver:
        assert await TakingUp(driver.context).some() == 0
        await driver.send(event("e1", "pending"))
        await refold_until_quiet(driver.context, limit=9, progress=quiet)
        assert await refresh_ledger_lines(driver.context, progress=quiet) == 1
        before = driver.rows("SELECT told FROM takings")
    async with driving(tmp_path, at=T + 41 * MINUTE, PAYMENT_WINDOW_S="1800") as driver:
        await soon(lambda: feed(driver) == ["pending", "timed_out"])
        assert await refresh_ledger_lines(driver.context, progress=quiet) == 1
        assert driver.rows("SELECT told FROM takings") != before
        assert (await check_database(driver.context, deep=1, progress=quiet)).problems == []


async def test_a_pruned_order_loses_nothing(tmp_path: Path) -> None:
    """Its bodies are gone; its events are not, and by the new policy it is what it was."""
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        await driver.send(event("e2", "pending"))
        await soon(lambda: "succeeded" in feed(driver))
        driver.clock.put(T + 40 * DAY)
        await soon(lambda: marks(driver)[0][0] is None)
        async for page in settled_orders(
            driver.context,
            Retention(quiet=30 * DAY, sources=frozenset({"shop"})),
            unsealed_too=True,
        ):
            went = await prune_orders(driver.context, page.settled)
            assert [each.order for each in went] == ["ORD-1"]
        before, token = (await driver.api("GET", "/orders/ORD-1")).json(), driver.token
        assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NULL") == [(2,)]
    async with driving(tmp_path, at=T + 40 * DAY, GRACE_S="7") as driver:
        await soon(
            lambda: bool('"grace":7000000' in noted(driver)[0][1] and marks(driver)[0][0] is None)
        )
        driver.token = token
        after = (await driver.api("GET", "/orders/ORD-1")).json()
        moved = {"attempts", "fingerprint"}  # the deadline is in them
        assert {n for n in before if after[n] != before[n]} == moved
        assert after["attempts"][0]["outcome"] == before["attempts"][0]["outcome"]
        assert "timed_out" not in feed(driver)
