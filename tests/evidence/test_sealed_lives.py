"""Proofs in bundles for deliveries that are joined to an order later, and for masked references."""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import text

from app.database.statements import run
from app.evidence.seal import open_signer, seal_all
from app.evidence.verify import unpack
from app.evidence.verify_evidence import VerifiedBundle, verify_evidence
from app.orders.refold import refold_until_quiet
from app.sealing.log_queue_store import mark_read_again
from tests.api.driving import Driver, driving, event
from tests.evidence.conftest import build, changed, forged_with
from tests.evidence.world import CUSTOMER, PHONE


async def sealed(driver: Driver, folder: Path) -> None:
    await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
    await seal_all(driver.context, await open_signer(driver.context))


def steps(found: VerifiedBundle) -> dict[str, bool | None]:
    return {each.name: each.passed for each in found.steps}


async def test_a_delivery_that_found_its_order_later_is_proved(tmp_path: Path) -> None:
    """Its own entry names no order, and a later one does."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1", "pending", order=None))
        await sealed(driver, tmp_path)
        await driver.send(event("e2"))
        await sealed(driver, tmp_path)
        archive = await build(driver, as_of=None)
    found = verify_evidence(archive)
    assert found.valid
    assert (steps(found)["readings"], steps(found)["completeness"]) == (True, True)
    assert not [each for each in found.not_proven if "that these parts belong to" in each]
    kinds = [json.loads(each["leaf"])["kind"] for each in log_of(archive)["leaves"]]
    assert kinds.count("reading") == 1


def log_of(archive: bytes) -> Any:
    return json.loads(unpack(archive)["log.json"])


async def test_a_reference_that_is_masked_is_proved_but_for_itself(tmp_path: Path) -> None:
    """Neither the order's key nor the salt of the reference is there to guess it with, and nothing
    is hidden whole."""
    order = f"ORD-{PHONE}"
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1", order={"reference": order}, customer=CUSTOMER))
        await sealed(driver, tmp_path)
        archive = await build(driver, order=order, as_of=None)
        full = await build(driver, order=order, as_of=None, reason="dispute 12")
    assert PHONE.encode() not in archive
    log = log_of(archive)
    assert log["order"]["key"] is None
    for opened in log["parts"].values():
        assert {name for name, part in opened.items() if "hash" in part} <= {"order", "because"}
    assert None not in [each["leaf"] for each in log["leaves"]]
    found = verify_evidence(archive)
    assert found.valid
    assert (steps(found)["inclusion"], steps(found)["readings"]) == (True, None)
    not_proven = "\n".join(found.not_proven)
    assert "the log's entries belong to this order: its reference is masked" in not_proven
    assert "in texts that are masked (history.json)" in not_proven
    assert steps(verify_evidence(full))["readings"] is True


async def test_an_earlier_reading_proves_nothing(tmp_path: Path) -> None:
    """The shop shows what it read at first, which it has sealed too, and not what it reads now."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1", "succeeded"))
        await sealed(driver, tmp_path)
        first = await build(driver, as_of=None)
        async with driver.context.database.writing() as connection:
            await connection.execute(text("UPDATE events SET claim = 'declined'"))
            delivery = json.loads(unpack(first)["history.json"])["deliveries"][0]["delivery_id"]
            await run(connection, mark_read_again, [delivery])
        await sealed(driver, tmp_path)
        now = await build(driver, as_of=None)
        key = (await open_signer(driver.context)).key
    assert verify_evidence(now).valid

    def change(members: dict[str, bytes]) -> None:
        earlier = unpack(first)
        members["history.json"] = earlier["history.json"]
        opened = json.loads(earlier["log.json"])["parts"][delivery]

        def reopen(log: Any) -> None:
            log["parts"] = {n: e for n, e in log["parts"].items() if not n.startswith("reading:")}
            log["parts"][delivery] = opened

        changed("log.json", reopen)(members)

    found = verify_evidence(forged_with(key, now, change))
    assert steps(found)["readings"] is False
