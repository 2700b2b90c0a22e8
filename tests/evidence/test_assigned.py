"""A bundle says which payments a person gave to its order or took from it, and can be checked."""

from pathlib import Path

import pytest

from app.evidence.verify import unpack
from app.orders.record_store import add_records
from reconcile.instants import DAY, HOUR, MINUTE
from reconcile.ledger.records import WITHDRAWN, Record
from tests.api.driving import driving, event, of_order
from tests.evidence.conftest import build, failed, seal_now
from tests.evidence.world import LATER
from tests.reconcile.build import T


@pytest.mark.parametrize("order", ["ORD-1", "ORD-2"])
@pytest.mark.parametrize("withdrawn", [False, True])
async def test_a_bundle_of_assigned_payments_verifies(
    tmp_path: Path, order: str, withdrawn: bool
) -> None:
    """The payment's events name ORD-2, and a person gave it to ORD-1."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(of_order("ORD-2", "e1"))
        await driver.send(event("e2", "pending"))
        await driver.send(event("e3", order=None, session=None, payment={"reference": "pay-ORD-2"}))
        await seal_now(driver)
        for number in range(1 + withdrawn):
            at = T + HOUR + number * MINUTE
            driver.clock.put(at)
            given = Record(
                record_id=f"rec_{number}", recorded_at=at, kind="payment_assigned", at=at,
                order="ORD-1", source="shop", payment="pay-ORD-2", author="operator:bob",
                reason=WITHDRAWN if number else None, replaces="rec_0" if number else None,
            )  # fmt: skip
            async with driver.context.database.writing() as connection:
                await add_records(connection, [given])
            await seal_now(driver)
        driver.clock.put(LATER)
        await seal_now(driver)
        outcome = (await driver.api("GET", f"/orders/{order}")).json()["outcome"]
        assert (outcome == "succeeded") == ((order == "ORD-2") is withdrawn)
        bundle = await build(driver, order, as_of=LATER - DAY)
    assert failed(bundle) == []
    [letter] = [body.decode() for name, body in unpack(bundle).items() if name.endswith(".html")]
    assert "A person assigned a payment to the order" in letter
    assert ("A person withdrew the assignment" in letter) is withdrawn
