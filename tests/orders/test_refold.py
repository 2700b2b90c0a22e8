"""Folding what is due and rebuilding everything: one bad order harms no other, marks are right."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.logs import configure_logging
from app.orders import refold
from app.orders.rebuild import refold_all
from app.orders.refold import PUT_ASIDE, refold_due, refold_until_quiet
from app.receiving.due_store import Due
from app.receiving.pace import Pace
from reconcile.instants import SECOND
from reconcile.ledger.fold import fold as sound_fold
from reconcile.ledger.policy import Policy
from reconcile.ledger.revise import revise as sound_revise
from tests.api.driving import Driver, driving, event, of_order
from tests.database.builders import quiet
from tests.reconcile.build import T
from tests.rows import for_each

HUGE = "92233720368547758.07"
"""The largest amount of KES that 64 bits of minor units hold."""


class PlannedFault(Exception):
    """Error that the broken fold raises; its message must not reach the log."""


@pytest.fixture
def log() -> io.StringIO:
    """Capture the process's log during the test."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream


@pytest.fixture
async def driver(tmp_path: Path, log: io.StringIO) -> AsyncIterator[Driver]:
    """Run a service without a worker: the tests fold."""
    async with driving(tmp_path, with_worker=False) as driven:
        yield driven


@pytest.fixture
def unfoldable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let the fold raise for the orders in the returned set."""
    orders = {"O-1"}

    def fold(history: Any, **words: Any) -> Any:
        if history.order in orders:
            raise PlannedFault("254711223344")
        return sound_fold(history, **words)

    monkeypatch.setattr(refold, "fold", fold)
    return orders


def marks(driver: Driver) -> dict[str, int | None]:
    """Return when each order is due next."""
    return dict(driver.rows("SELECT order_key, due_at FROM order_due"))


def published(driver: Driver) -> list[str]:
    """List the orders in the feed, in its order."""
    return [row[0] for row in driver.rows("SELECT order_key FROM revisions ORDER BY seq")]


def faults(log: io.StringIO) -> list[tuple[str, str]]:
    """Order and class of every fold that the log says has failed."""
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    found = [line for line in lines if line["event"] == "an order cannot be folded"]
    return [(line["order"], line["error_class"].rpartition(".")[2]) for line in found]


async def test_an_order_that_cannot_be_folded_is_put_aside(
    driver: Driver, unfoldable: set[str], log: io.StringIO
) -> None:
    """The others are published, the fault is logged by its class, and the order waits its time."""
    for number in range(3):
        await driver.send(of_order(f"O-{number}", f"e{number}"))
    assert await refold_due(driver.context, limit=10) == 3
    assert sorted(published(driver)) == ["O-0", "O-2"]
    assert faults(log) == [("O-1", "PlannedFault")]
    assert "254711223344" not in log.getvalue()
    assert marks(driver)["O-1"] == T + PUT_ASIDE == T + 600 * SECOND
    assert await refold_due(driver.context, limit=10) == 0
    unfoldable.clear()
    driver.clock.put(T + PUT_ASIDE)
    assert await refold_due(driver.context, limit=10) >= 1
    assert "O-1" in published(driver)


async def test_an_order_that_cannot_be_published_is_put_aside(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    """As one that cannot be folded: by whoever folds what is due, and by who rebuilds all."""

    def revise(before: Any, ledger: Any, **words: Any) -> Any:
        if ledger.order == "O-1":
            raise PlannedFault("254711223344")
        return sound_revise(before, ledger, **words)

    monkeypatch.setattr(refold, "revise", revise)
    for number in range(3):
        await driver.send(of_order(f"O-{number}", f"e{number}"))
    assert await refold_due(driver.context, limit=10) == 3
    assert sorted(published(driver)) == ["O-0", "O-2"]
    assert faults(log) == [("O-1", "PlannedFault")]
    assert marks(driver)["O-1"] == T + PUT_ASIDE
    assert await refold_all(driver.context, progress=quiet) == 2
    assert marks(driver)["O-1"] == T + PUT_ASIDE


async def test_new_evidence_fetches_an_order_that_was_put_aside(
    driver: Driver, unfoldable: set[str]
) -> None:
    """An order that was put aside is due at once when something more is known of it."""
    await driver.send(of_order("O-1", "e1", "pending"))
    await refold_due(driver.context, limit=10)
    unfoldable.clear()
    assert await refold_due(driver.context, limit=10) == 0
    driver.clock.put(T + SECOND)
    await driver.send(of_order("O-1", "e2"))
    assert await refold_due(driver.context, limit=10) == 1
    assert published(driver) == ["O-1"]


async def test_what_a_clock_ahead_has_dated_is_not_forgotten_when_it_is_set_right(
    driver: Driver,
) -> None:
    """Money that is stored is known, whatever the clock says later."""
    driver.clock.put(T + 200 * SECOND)
    await driver.send(of_order("O-1", "e2"))
    await refold_due(driver.context, limit=10)
    driver.clock.put(T)
    await driver.send(of_order("O-1", "e1", "pending"))
    assert await refold_due(driver.context, limit=10) == 1
    assert driver.rows("SELECT outcome FROM revisions ORDER BY seq") == [("succeeded",)]
    assert driver.rows("SELECT outcome FROM ledgers") == [("succeeded",)]
    assert (await driver.api("GET", "/orders/O-1")).json()["outcome"] == "succeeded"


async def test_the_worker_outlives_an_order_that_cannot_be_folded(
    tmp_path: Path, unfoldable: set[str], log: io.StringIO
) -> None:
    """With the worker at work the service stays ready and publishes what comes afterwards."""
    async with driving(tmp_path) as driver:
        await driver.send(of_order("O-1", "e1"))
        await driver.send(of_order("O-2", "e2"))
        page = (await driver.api("GET", "/outcomes?wait=60")).json()
        assert [each["order"] for each in page["outcomes"]] == ["O-2"]
        assert await driver.ready()
        assert driver.service.broken == []


async def test_rebuilding_goes_around_an_order_that_cannot_be_folded(
    driver: Driver, unfoldable: set[str], log: io.StringIO
) -> None:
    """All other ledgers are rebuilt and published, and no mark of the bad order is lost."""
    for number in range(3):
        await driver.send(of_order(f"O-{number}", f"e{number}"))
    assert await refold_all(driver.context, progress=quiet) == 2
    assert sorted(published(driver)) == ["O-0", "O-2"]
    assert faults(log) == [("O-1", "PlannedFault")]
    assert marks(driver)["O-1"] == T + PUT_ASIDE
    unfoldable.clear()
    driver.clock.put(T + PUT_ASIDE)
    await refold_until_quiet(driver.context, limit=10, progress=quiet)
    assert sorted(published(driver)) == ["O-0", "O-1", "O-2"]


async def test_more_money_than_64_bits_on_one_order(tmp_path: Path) -> None:
    """Two captures whose sum is beyond 64 bits are acknowledged, explained and published."""
    async with driving(tmp_path) as driver:
        for number in (1, 2):
            said = event(f"e{number}", payment={"reference": f"pay_{number}"})
            body = json.dumps(said).replace("1500", HUGE).encode()
            answer = await driver.send(body)
            assert (answer.status_code, answer.json()["verdict"]) == (200, "stored")
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
        assert ledger["totals"]["captured"]["amount"] == "184467440737095516.14"
        assert "paid_twice" in {finding["code"] for finding in ledger["findings"]}
        page = (await driver.api("GET", "/outcomes?wait=60")).json()
        assert page["outcomes"]
        assert await driver.ready()
        assert driver.service.broken == []


async def standing(driver: Driver) -> None:
    """Fold three orders, one of them open."""
    await driver.send(of_order("O-0", "e0", "pending"))
    await driver.send(of_order("O-1", "e1", "pending"))
    await driver.send(of_order("O-2", "e2"))
    await refold_until_quiet(driver.context, limit=10, progress=quiet)


async def test_rebuilding_makes_lost_marks_again(driver: Driver) -> None:
    """With every due mark lost, a rebuilt ledger has its own at its next decision."""
    await standing(driver)
    before = marks(driver)
    assert before["O-0"] is not None
    async with driver.service.inbox.database.writing() as connection:
        await connection.exec_driver_sql("DELETE FROM order_due")
    await refold_all(driver.context, progress=quiet)
    assert marks(driver) == before
    assert marks(driver) == dict(driver.rows("SELECT order_key, next_decision_at FROM ledgers"))


async def test_rebuilding_moves_marks_to_another_policy(driver: Driver) -> None:
    """With a shorter payment window the marks stand where the rebuilt ledgers need them."""
    await standing(driver)
    before = marks(driver)
    policy = replace(
        driver.context.policy, payment_window=driver.context.policy.payment_window // 2
    )
    assert policy != Policy()
    await refold_all(replace(driver.context, policy=policy), progress=quiet)
    after = marks(driver)
    assert after["O-0"] is not None
    assert before["O-0"] is not None
    assert after["O-0"] < before["O-0"]
    assert after == dict(driver.rows("SELECT order_key, next_decision_at FROM ledgers"))


async def test_while_others_wait_folds_are_published_in_short_transactions(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each order once, whichever transaction it is in."""
    writer, parts = driver.service.inbox.database.writer, []
    commit = writer.commit

    async def counted(function: Any, *args: Any, **words: Any) -> Any:
        if len(args) > 1:  # the inbox commits, too
            parts.append(len(args[1]))
        return await commit(function, *args, **words)

    for number in range(5):
        await driver.send(of_order(f"O-{number}", f"e{number}"))
    monkeypatch.setattr(type(writer), "was_wanted", True)
    monkeypatch.setattr(writer, "commit", counted)
    pace = Pace(first=2, most=10)
    assert await refold_due(driver.context, limit=10, pace=pace) == 5
    assert sorted(published(driver)) == [f"O-{number}" for number in range(5)]
    assert (parts[0], sum(parts), len(parts) > 1) == (2, 5, True)


@for_each(
    ("sizes", "at_once", "parts"),
    [
        ([1, 1, 1], 2, [[1, 1], [1]]),
        ([1, 1, 1], 1, [[1], [1], [1]]),
        ([1, 3, 1], 2, [[1, 3], [1]]),
        ([5, 1], 2, [[5], [1]]),
    ],
)
def test_orders_that_share_evidence_are_published_together(
    sizes: list[int], at_once: int, parts: list[list[int]]
) -> None:
    """However few are published at once: one alone could be judged by what is no longer so."""
    left = [[Due(order="O", generation=1)] * size for size in sizes]
    found = []
    while left:
        found.append([len(each) for each in refold._next_part(left, size=at_once)])
    assert found == parts
