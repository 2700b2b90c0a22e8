"""Payments that were stored and read, and reach no order's ledger."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.monitoring import preflight
from app.monitoring.arrivals import LEAST, MOST, PATIENCE, WINDOW, Paid, Seen, no_order
from reconcile.instants import DAY, HOUR, MINUTE, Duration
from tests.api.driving import Driver, driving, event, of_order
from tests.monitoring.alarms import told
from tests.reconcile.build import T

NOW = T


def paid(
    count: int, *, tied: bool = False, ago: Duration = 2 * HOUR, name: str = "p"
) -> list[Paid]:
    """Build payments of the shop, each of one event."""
    return [Paid("shop", f"{name}{n}", f"dlv_{n}", NOW - ago, tied) for n in range(count)]


TIED = paid(1, tied=True, name="tied")
CASES: dict[str, tuple[Sequence[Paid], bool, bool]] = {
    # what came, the latest first; whether that is all; whether there is an alarm
    "nothing": ([], True, False),
    "never one of an order, too few": (paid(LEAST - 1), True, False),
    "never one of an order": (paid(LEAST), True, True),
    "there was one of an order": (paid(LEAST) + TIED, True, False),
    "there may have been one of an order": (paid(LEAST), False, False),
    "none of the last twenty": (paid(MOST), False, True),
    "none of the last twenty, once there was": (paid(MOST) + TIED, True, True),
    "one of the last twenty": (paid(MOST - 1) + TIED, False, False),
    "the last one is of an order": (TIED + paid(MOST), True, False),
    "all events of one payment": (paid(1) * LEAST, True, False),
    "an event of the payment has the order": (
        [*paid(LEAST), Paid("shop", "p0", "dlv_9", NOW - 3 * HOUR, True)],
        True,
        False,
    ),
    "for a week": (paid(LEAST, ago=WINDOW), True, True),
    "more than a week ago": (paid(LEAST, ago=WINDOW + MINUTE), True, False),
    "longer, and still": (paid(1) + paid(LEAST, ago=30 * DAY, name="old"), True, True),
    "few at each of two": (
        [*paid(2), *(each._replace(source="till") for each in paid(2))],
        True,
        False,
    ),
    "of orders at another": (
        [*paid(LEAST), *(each._replace(source="till") for each in TIED)],
        True,
        True,
    ),
}


@pytest.mark.parametrize(("latest", "whole", "raised"), CASES.values(), ids=CASES)
def test_when(latest: Sequence[Paid], whole: bool, raised: bool) -> None:
    """None of a source's last payments has one, and they are neither too few nor too old."""
    seen = Seen(NOW, latest, whole=whole, tied_since=set())
    assert (no_order(seen) is not None) == raised


def test_since_then_it_works() -> None:
    assert no_order(Seen(NOW, paid(MOST), whole=True, tied_since={"shop"})) is None
    assert no_order(Seen(NOW, paid(MOST), whole=True, tied_since={"till"})) is not None


def test_what_it_says() -> None:
    """How many, where, one of them, and what to do."""
    till = [each._replace(source="till") for each in paid(4)]
    alarm = no_order(Seen(NOW, paid(3) + till, whole=True, tied_since=set()))
    assert alarm is not None
    assert alarm.sentence.startswith(
        "The last 7 payments that succeeded (3 at shop, the last one delivery dlv_0, 4 at till, "
    )
    for command in ("`tallyhook deliveries show`", "`tallyhook reindex`"):
        assert command in alarm.sentence
    sign = preflight.of_alarm("no_order", alarm)
    assert sign.state == "weak"
    assert sign.sentence.endswith("no ledger has their money.")


def nameless(number: int, claim: str = "succeeded") -> dict[str, object]:
    """Build an event of a payment that names no order."""
    names = {"session": {"reference": f"cs_{number}"}, "payment": {"reference": f"pay_{number}"}}
    return event(f"{claim}{number}", claim, order=None, **names)


async def test_until_one_is_tied(tmp_path: Path) -> None:
    """An event that names the order of its session ties the payment."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        for number in range(LEAST):
            await driver.send(nameless(number, "pending"))
            await driver.send(nameless(number))
        assert not await told(driver, "no_order")
        driver.clock.put(driver.clock.now() + PATIENCE + MINUTE)
        (sentence,) = await told(driver, "no_order")
        assert f"The last {LEAST} payments" in sentence
        tie = {"session": {"reference": "cs_0"}, "payment": {"reference": "pay_0"}}
        await driver.send(event("e9", "pending", **tie))
        assert not await told(driver, "no_order")


async def test_where_much_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last hour's events do not hide those before them."""
    monkeypatch.setattr("app.monitoring.arrivals.LOOKED_AT", 10)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await busy(driver, LEAST, apart=MINUTE)
        driver.clock.put(driver.clock.now() + PATIENCE)
        for number in range(20):
            await driver.send(nameless(100 + number, "pending"))
        assert await told(driver, "no_order")


async def test_where_it_worked_before(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(of_order("O-1", "tied"))
        # Deliveries of one moment have no order among them.
        driver.clock.put(driver.clock.now() + MINUTE)
        await busy(driver, MOST, apart=MINUTE)
        assert not await told(driver, "no_order")
        driver.clock.put(driver.clock.now() + PATIENCE)
        assert await told(driver, "no_order")


async def busy(driver: Driver, count: int, *, apart: Duration) -> None:
    """Send payments of no order, one after another."""
    for number in range(count):
        await driver.send(nameless(10 + number))
        driver.clock.put(driver.clock.now() + apart)
