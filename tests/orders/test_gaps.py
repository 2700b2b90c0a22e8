"""Sentences after an accepted gap: none denies anything of its time."""

from pathlib import Path

import pytest

from app.core.errors import NotFoundError
from app.evidence.seal import seal_all
from app.evidence.verify_log import verify_log
from app.monitoring.preflight import of_gap
from app.orders.find_orders import find_orders
from app.orders.holds import release
from app.orders.read_orders import explain_order
from app.orders.service_holds import gaps_with_holds
from app.receiving.source_state import source_states
from reconcile.instants import DAY, Instant
from tests.api.driving import Driver, driving, event
from tests.database.builders import SIGNER
from tests.database.contract_gaps import accept_gap
from tests.database.contract_holds import started
from tests.reconcile.build import seconds

PLACED = {"amount": "1500.00", "currency": "KES"}
LOST = "from 2026-11-20T10:00:02Z to 2026-11-20T10:00:08Z"


async def accepted(driver: Driver) -> None:
    """Accept the gap LOST, nine seconds after T."""
    driver.clock.put(seconds(9))
    await accept_gap(driver.context, since=2, until=8, at=9)


async def test_an_order_of_the_time_is_not_said_to_have_no_payment(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        await driver.api("PUT", "/orders/OLD", json=PLACED)
        before = (await driver.api("GET", "/orders/OLD")).json()
        assert "gaps" not in before
        await accepted(driver)
        found = (await driver.api("GET", "/orders/OLD")).json()
        assert found["plain"]["answer"][0].startswith("Messages that reached us between 20 Nov")
        assert before["plain"]["answer"][0] not in found["plain"]["answer"]
        assert [each["looked_at"] for each in found["gaps"]] == [False]
        assert found["fingerprint"] == before["fingerprint"]


@pytest.mark.parametrize("text", ["NOBODY", "9.00"])
async def test_a_search_that_finds_nothing_says_what_may_be_lost(tmp_path: Path, text: str) -> None:
    async with driving(tmp_path) as driver:
        assert "lost" not in str((await find_orders(driver.context, text, by=None, limit=9)).notes)
        await accepted(driver)
        assert LOST in str((await find_orders(driver.context, text, by=None, limit=9)).notes)


async def test_an_unknown_order_may_have_been_lost(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        await accepted(driver)
        with pytest.raises(NotFoundError, match=LOST):
            await explain_order(driver.context, "NOBODY")


async def test_money_is_not_said_to_be_owed_before_the_provider_was_asked(tmp_path: Path) -> None:
    """It may have gone back already."""
    async with driving(tmp_path) as driver:
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        await driver.send(event("e1"))
        await driver.api(
            "PUT", "/orders/ORD-1", json=PLACED | {"canceled_at": "2026-11-20T10:00:01Z"}
        )
        assert (
            "Give back KES 1,500.00." in (await driver.api("GET", "/orders/ORD-1")).json()["staff"]
        )
        await accepted(driver)
        found = (await driver.api("GET", "/orders/ORD-1")).json()
        assert "Give nothing back before the payment service has said" in str(found["staff"])
        assert "is to be given back" not in str(found["plain"]["answer"])


async def test_the_doctor_lists_gaps_and_the_orders_that_they_hold(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        assert await gaps_with_holds(driver.context) == []
        await driver.send(event("e1"))
        await driver.api("GET", "/orders/ORD-1")
        await accepted(driver)
        await started(driver.context)
        ((gap, held),) = await gaps_with_holds(driver.context)
        found = of_gap(gap, held=held)
        assert (found.state, held) == ("weak", 1)
        assert "The newest commits are missing (2026-11-20T10:00:02Z to " in found.sentence
        assert found.sentence.endswith(
            ": the disk was replaced. 1 order is still held because of it."
        )
        await release(driver.context, ["ORD-1"], reason="gap_accepted", why="looked up")
        ((gap, held),) = await gaps_with_holds(driver.context)
        assert (of_gap(gap, held=held).state, held) == ("ok", 0)


async def test_a_source_that_delivers_says_for_a_day_what_may_be_lost(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        await accepted(driver)
        for pause, said in ((0, True), (DAY, False)):
            driver.clock.put(Instant(driver.clock.now() + pause))
            (state,) = await source_states(driver.context)
            assert (LOST in state.sentence) == said


async def test_the_log_says_what_may_be_lost_of_it(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        await accepted(driver)
        await seal_all(driver.context, SIGNER)
        found = await verify_log(driver.context, own=SIGNER.key.public, progress=lambda *_: None)
        assert found.sentence().endswith(f"Leaves that were sealed {LOST} may be lost.")
