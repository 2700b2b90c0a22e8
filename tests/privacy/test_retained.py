"""Data that an erasure keeps for a while: evidence of disputes, and payers of money of no order."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.access.operators import Proven, asking_by_token, register_operator
from app.access.proposals import Proposals
from app.core import clock
from app.evidence.attachments import AttachRequest, attach
from app.finance.place_payment import Placing, place_payment, placing_kinds
from app.orders.refold import refold_until_quiet
from app.privacy.erase import ErasureRequest, erase
from app.privacy.erase_finding import Erasure, ErasureFinder
from app.privacy.pending_erasures import ENDED, PendingErasures
from app.privacy.places import columns
from app.privacy.prune import prune_settled, retention_of
from reconcile.instants import DAY, HOUR
from tests.api.driving import Driver, driving, event, of_order
from tests.contexts import with_settings
from tests.privacy.test_erase import OTHER, PHONE, paid, quiet
from tests.privacy.test_report_equals_search import reported
from tests.reconcile.build import T


@asynccontextmanager
async def retaining(folder: Path) -> AsyncIterator[Driver]:
    """Run a service with a period for each class, of which nobody folds in the background."""
    async with driving(folder, with_worker=False) as driven:
        driven.context = with_settings(
            driven.service.context,
            retention_accounts_days=365,
            retention_disputes_days=120,
            retention_unallocated_days=90,
        )
        yield driven


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    async with retaining(tmp_path) as driven:
        yield driven


async def erased(driver: Driver, *, day: int, by: str | None = None) -> Erasure:
    """Erase the customer so many days later, by the number."""
    driver.clock.put(T + day * DAY)
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    asked = ErasureRequest(phone=PHONE, reason="asked by letter", by=by)
    return await erase(driver.context, asked, dry_run=False, progress=quiet)


def kept(erasure: Erasure) -> list[tuple[str, str]]:
    """List what stays, and why."""
    return [(each.what, each.why) for each in erasure.kept]


async def nameless(driver: Driver) -> str:
    """Pay money of no order."""
    money = {"reference": "pay_x", "amount": 1500, "currency": "KES"}
    found = event("e5", order=None, session=None, payment=money)
    found["data"]["customer"] = {"phone": PHONE}
    await driver.send(found)
    return str(driver.rows("SELECT id FROM deliveries WHERE event_id = 'e5'")[0][0])


async def test_evidence_is_kept_while_its_payment_can_be_disputed(driver: Driver) -> None:
    """By an erasure, and by what deletes settled orders by itself."""
    await driver.send(paid("ORD-1", "e1"))
    told = await erased(driver, day=119)
    assert kept(told) == [("ORD-1", "disputable")]
    context = with_settings(driver.context, retention_days=30)
    retention = retention_of(context.settings, context.sources)
    assert retention is not None
    for day, went in ((119, 0), (120, 1)):
        driver.clock.put(T + day * DAY)
        pruning = await prune_settled(context, retention, dry_run=True, progress=quiet)
        assert pruning.deliveries == went
    assert kept(await erased(driver, day=120)) == []


async def test_who_paid_money_of_no_order_is_kept_until_its_days_are_over(driver: Driver) -> None:
    name = await nameless(driver)
    assert kept(await erased(driver, day=89)) == [(name, "unallocated")]
    assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NOT NULL") == [(1,)]
    told = await erased(driver, day=90)
    assert (kept(told), told.deliveries) == ([], [name])


async def test_who_paid_money_that_is_dismissed_is_erased_at_once(driver: Driver) -> None:
    name = await nameless(driver)
    assert kept(await erased(driver, day=40)) == [(name, "unallocated")]
    for who in ("Ann", "Ben"):
        await register_operator(driver.context, name=who, role="admin", by="Ann")
    dismissed = Placing(
        kind="dismiss", payment="pay_x", dismiss="other_business", to="4000", reason="rent",
        by=Proven("Ann"),
    )  # fmt: skip
    proposal = await place_payment(driver.context, dismissed)
    assert proposal is not None
    with asking_by_token(Proven("Ben")):
        proposals = Proposals(driver.context, placing_kinds(driver.context).values())
        await proposals.approve(proposal.id, by=None, reason="I saw it")
    assert (await erased(driver, day=41, by="Ann")).deliveries == [name]


async def round_on(driver: Driver, *, day: int) -> None:
    """Have the task look at what is pending, so many days later."""
    driver.clock.put(T + day * DAY)
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    await PendingErasures(driver.context).work()


def restricted(driver: Driver) -> list[tuple[str, str, int | None]]:
    """List what is restricted, why, and until which day."""
    rows = driver.rows("SELECT thing, why, until FROM restrictions ORDER BY thing")
    return [(r[0], r[1], None if r[2] is None else (r[2] - T) // DAY) for r in rows]


def bodies(driver: Driver) -> int:
    """Count the deliveries with bodies."""
    return int(driver.rows("SELECT count(body) FROM deliveries")[0][0])


async def test_what_was_kept_is_erased_by_itself_when_its_period_ends(driver: Driver) -> None:
    """First the evidence, with the end of the dispute window; the books' period is over later."""
    await driver.send(paid("ORD-1", "e1"))
    await erased(driver, day=10)
    assert (restricted(driver), bodies(driver)) == ([("ORD-1", "disputable", 120)], 1)
    await round_on(driver, day=119)
    assert bodies(driver) == 1
    await round_on(driver, day=120)
    assert (restricted(driver), bodies(driver)) == ([("ORD-1", "accounts", 365)], 0)
    [(who, reason)] = driver.rows(
        "SELECT who, reason FROM audit WHERE action = 'erased' AND subject = 'ORD-1'"
    )
    assert (who, reason) == ("tallyhook", ENDED)
    await round_on(driver, day=364)
    assert restricted(driver) == [("ORD-1", "accounts", 365)]
    await round_on(driver, day=365)
    assert restricted(driver) == []


async def test_no_period_ends_by_a_clock_that_went_ahead_or_is_behind(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a day after a leap, and while anything is dated later than now."""
    elapsed = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: elapsed[0])
    await driver.send(paid("ORD-1", "e1"))
    await erased(driver, day=10)
    task = PendingErasures(driver.context)
    await task.work()
    driver.clock.put(T + 121 * DAY)
    await task.work()
    assert bodies(driver) == 1
    elapsed[0] = clock.LEAP_REST_S
    await driver.send(paid("ORD-2", "e2"))
    driver.clock.put(T + 121 * DAY - HOUR)
    await task.work()
    assert bodies(driver) == 2
    await PendingErasures(driver.context).work()
    assert bodies(driver) == 2
    driver.clock.put(T + 121 * DAY)
    await PendingErasures(driver.context).work()
    assert bodies(driver) == 1


async def test_what_came_later_of_a_restricted_order_is_erased_too(driver: Driver) -> None:
    """A refund that names the customer goes without being asked for again."""
    await driver.send(paid("ORD-1", "e1"))
    await erased(driver, day=130)
    assert restricted(driver) == [("ORD-1", "accounts", 365)]
    refund = of_order("ORD-1", "e2", "refunded")
    refund["data"]["refund"] = {"reference": "re_1", "amount": 5, "currency": "KES"}
    await driver.send(refund)
    assert bodies(driver) == 1
    await round_on(driver, day=161)
    assert (restricted(driver), bodies(driver)) == ([("ORD-1", "accounts", 495)], 0)


async def test_who_paid_is_erased_with_the_order_that_the_money_is_assigned_to(
    driver: Driver,
) -> None:
    name = await nameless(driver)
    await erased(driver, day=10)
    assert restricted(driver) == [(name, "unallocated", 90)]
    await driver.send(of_order("ORD-9", "e9", "pending"))
    async with driver.context.database.writing() as connection:
        await connection.execute(text("UPDATE events SET order_key='ORD-9' WHERE event_id='e5'"))
    await round_on(driver, day=90)
    assert restricted(driver) == [("ORD-9", "changed", None)]


async def test_a_refused_delivery_goes_with_the_order_beside_it(driver: Driver) -> None:
    """It may tell of the payment, and stays as long as that can be disputed."""
    await driver.send(paid("ORD-1", "e1"))
    await driver.send(json.dumps(paid("ORD-1", "e2")).encode(), [])
    await erased(driver, day=10)
    assert [why for _, why, _ in restricted(driver)] == ["disputable", "refused"]
    await round_on(driver, day=119)
    assert driver.rows("SELECT count(*) FROM rejections") == [(1,)]
    await round_on(driver, day=120)
    await round_on(driver, day=121)
    assert driver.rows("SELECT count(*) FROM rejections") == [(0,)]
    assert restricted(driver) == [("ORD-1", "accounts", 365)]


async def test_a_file_of_another_order_goes_when_that_order_no_longer_needs_it(
    driver: Driver,
) -> None:
    await driver.send(paid("ORD-1", "e1"))
    await driver.send(paid("ORD-2", "e2", OTHER))
    letter = AttachRequest(
        about="order", subject="ORD-2", name="a.txt", content=f"of {PHONE}".encode(),
        kind="correspondence", note="", by=None,
    )  # fmt: skip
    await attach(driver.context, letter)
    await erased(driver, day=10)
    assert [why for _, why, _ in restricted(driver)] == ["disputable", "disputable"]
    await round_on(driver, day=119)
    assert driver.rows("SELECT count(*) FROM attachment_files") == [(1,)]
    await round_on(driver, day=120)
    assert driver.rows("SELECT count(*) FROM attachment_files") == [(0,)]
    assert restricted(driver) == [("ORD-1", "accounts", 365)]


async def test_what_cannot_be_judged_keeps_nothing_else_and_is_tried_again_a_day_later(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        await driver.send(paid(f"ORD-{number}", f"e{number}"))
    await erased(driver, day=10)
    judged = ErasureFinder.of_restricted

    async def fails(self: ErasureFinder, connection: Any, row: Any, **words: Any) -> Erasure:
        if row.thing == "ORD-1":
            raise ValueError("cannot be folded")
        return await judged(self, connection, row, **words)

    with monkeypatch.context() as patched:
        patched.setattr(ErasureFinder, "of_restricted", fails)
        await round_on(driver, day=120)
    assert restricted(driver) == [("ORD-1", "disputable", 120), ("ORD-2", "accounts", 365)]
    await PendingErasures(driver.context).work()
    assert bodies(driver) == 1, "it was tried a moment ago"
    await round_on(driver, day=121)
    assert bodies(driver) == 0


async def test_a_kept_order_whose_reference_holds_the_number_is_reported_wherever_it_is_named(
    tmp_path: Path,
) -> None:
    """The erasure itself names it, in its restriction."""
    async with retaining(tmp_path) as driver:
        await driver.send(paid(f"ORD-{PHONE}", "e1"))
        told = await erased(driver, day=10)
        assert [each.why for each in told.kept] == ["disputable"]
        holding = set()
        for table, column in (name.split(".") for name, _ in columns()):
            rows = driver.rows(f'SELECT "{column}" FROM {table}')
            if any(PHONE in str(row) for row in rows):
                holding.add(f"{table}.{column}")
        assert "restrictions.thing" in holding
        assert holding <= reported(told)
