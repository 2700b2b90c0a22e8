"""Bundles of orders whose evidence a clock that was ahead has dated."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SetClock
from app.evidence import verify_evidence as verify_evidence_module
from app.evidence.seal import open_signer
from app.evidence.verify import unpack
from app.evidence.verify_evidence import verify_evidence
from app.evidence.verify_log import verify_own_log
from app.orders.clock_correction import ClockWatch
from app.orders.record_store import add_records
from reconcile.instants import DAY, HOUR, MINUTE, Instant, format_instant
from reconcile.ledger.records import Record
from tests.api.driving import driving, event
from tests.evidence.conftest import build, changed, failed, forged_with, seal_now
from tests.evidence.test_attachments import one
from tests.evidence.world import CUSTOMER
from tests.reconcile.build import T
from tests.rows import for_each

RIGHT = Instant(T + HOUR)
"""Instant at which the clock is put right, a day after it went ahead."""


async def redated_bundle(folder: Path) -> tuple[bytes, Any]:
    """Return the bundle of an order that was placed, begun, paid and given a file while the clock
    was a day ahead, made a minute after the clock was put right; and the key that signed it."""
    async with driving(folder, with_worker=False, looking=True, at=Instant(T + DAY)) as driver:
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        await driver.send(event("e1", "pending", customer=CUSTOMER))
        await seal_now(driver)
        await driver.send(event("e2", customer=CUSTOMER))
        await one(driver.service.context)
        driver.clock.put(RIGHT)
        await ClockWatch(driver.context).look()
        await seal_now(driver)
        driver.clock.put(Instant(RIGHT + MINUTE))
        bundle = await build(driver, as_of=None, attachments=True)
        assert (await verify_own_log(driver.context)).problems == []
        return bundle, (await open_signer(driver.context)).key


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any]:
    return asyncio.run(redated_bundle(tmp_path_factory.mktemp("redated")))


@pytest.fixture(autouse=True)
def verified_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SetClock(Instant(RIGHT + 2 * MINUTE))
    monkeypatch.setattr(verify_evidence_module, "SystemClock", lambda: now)


def test_a_bundle_made_after_the_correction_verifies(made: tuple[bytes, Any]) -> None:
    """It has the instants that were stored, and is as of an instant before them."""
    bundle, _ = made
    assert failed(bundle) == []
    found = verify_evidence(bundle)
    assert found.valid
    members = unpack(bundle)
    history, ledger = (json.loads(members[each]) for each in ("history.json", "ledger.json"))
    assert history["as_of"] == format_instant(Instant(RIGHT + MINUTE))
    assert {each["received_at"] for each in history["deliveries"]} == {
        format_instant(Instant(T + DAY))
    }
    assert ledger["outcome"] == "succeeded"
    assert {each["received_at"][:19] for each in ledger["timeline"]} == {format_instant(RIGHT)[:19]}
    # Placed, begun, published, paid, attached.
    assert len([each for each in history["records"] if each["kind"] == "redated"]) == 5
    (file,) = json.loads(members["attachments.json"])
    assert file["attached"]["at"] == format_instant(Instant(T + DAY))


@for_each("lost", ["redated", "later"])
def test_what_came_later_than_the_bundle_needs_its_redating(
    made: tuple[bytes, Any], lost: str
) -> None:
    bundle, key = made

    def change(history: Any) -> None:
        moved = [each for each in history["records"] if each["kind"] == "redated"]
        if lost == "redated":
            history["records"].remove(moved[0])
        else:
            moved[0]["at"] = moved[0]["expires_at"]

    forged = forged_with(key, bundle, changed("history.json", change), rendering=False)
    assert "deliveries" in failed(forged)


async def test_a_bundle_of_what_was_redated_twice_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was put right in two steps, and the bundle is made when both instants are past."""
    later = Instant(T + 3 * DAY)
    monkeypatch.setattr(verify_evidence_module, "SystemClock", lambda: SetClock(later))
    async with driving(tmp_path, with_worker=False, looking=True, at=Instant(T + 2 * DAY)) as at:
        watch = ClockWatch(at.context)
        await watch.look()
        await at.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        await at.send(event("e1", customer=CUSTOMER))
        await seal_now(at)
        for right in (T + DAY, RIGHT):
            at.clock.put(Instant(right))
            await watch.look()
            await seal_now(at)
        at.clock.put(later)
        bundle = await build(at, as_of=None)
        assert failed(bundle) == []
        ledger = json.loads(unpack(bundle)["ledger.json"])
        assert {each["received_at"][:19] for each in ledger["timeline"]} == {
            format_instant(RIGHT)[:19]
        }


async def test_a_bundle_with_a_payment_that_was_assigned_later_verifies(tmp_path: Path) -> None:
    """It was redated while no order had it."""
    async with driving(tmp_path, with_worker=False, looking=True, at=Instant(T + DAY)) as driver:
        await driver.send(event("e1", order=None, session=None))
        driver.clock.put(RIGHT)
        await ClockWatch(driver.context).look()
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        given = Record(
            record_id="rec_given", recorded_at=RIGHT, kind="payment_assigned", at=RIGHT,
            order="ORD-1", source="shop", payment="pay_1", author="operator:bob",
        )  # fmt: skip
        async with driver.context.database.writing() as connection:
            await add_records(connection, [given])
        await seal_now(driver)
        driver.clock.put(Instant(RIGHT + MINUTE))
        assert (await driver.api("GET", "/orders/ORD-1")).json()["outcome"] == "succeeded"
        assert failed(await build(driver, as_of=None)) == []
