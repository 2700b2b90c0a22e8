"""Payments that were stored and read, and reach no order's ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from app.operations.no_order import LEAST, MOST, PATIENCE, WINDOW, Paid, no_order
from app.operations.reindex import reindex
from reconcile.instants import HOUR, MINUTE, Duration
from tests.app.operations.alarms import told
from tests.app.operations.test_reindex import quiet, receive_with, source
from tests.app.web.driving import T, driving, event, of_order

NOW = T


def paid(tied: bool = False, *, ago: Duration = 2 * HOUR, source: str = "shop") -> Paid:
    return Paid(source, "dlv_1", NOW - ago, tied)


UNTIED, TIED = paid(), paid(tied=True)
CASES: dict[str, tuple[Sequence[Paid], bool]] = {
    "nothing": ([], False),
    "too few": ([UNTIED] * (LEAST - 1), False),
    "enough": ([UNTIED] * LEAST, True),
    "one of them is tied": ([UNTIED] * LEAST + [TIED], False),
    "it worked once, long before": ([UNTIED] * MOST + [TIED], True),
    "the twentieth is tied": ([UNTIED] * (MOST - 1) + [TIED], False),
    "it works again": ([paid(tied=True, ago=MINUTE), *[UNTIED] * MOST], False),
    "what ties them may still come": ([paid(ago=PATIENCE - MINUTE)] * MOST, False),
    "it should have come": ([paid(ago=PATIENCE)] * LEAST, True),
    "long ago": ([paid(ago=WINDOW + MINUTE)] * MOST, False),
    "within the week": ([paid(ago=WINDOW)] * LEAST, True),
    "few at each of two": ([UNTIED, UNTIED, *[paid(source="till")] * 2], False),
    "tied at another": ([*[UNTIED] * LEAST, *[paid(tied=True, source="till")] * 9], True),
}


@pytest.mark.parametrize(("latest", "raised"), CASES.values(), ids=CASES)
def test_when(latest: Sequence[Paid], raised: bool) -> None:
    """None of a source's last payments, and neither too few nor too young."""
    assert (no_order(latest, now=NOW) is not None) == raised


def test_what_it_says() -> None:
    """How many, where, one to look at, and what to do."""
    alarm = no_order([UNTIED] * 3 + [paid(source="till")] * 4, now=NOW)
    assert alarm is not None
    assert alarm.sentence.startswith(
        "The last 7 payments that succeeded (3 at shop, the last one delivery dlv_1, 4 at till, "
    )
    for command in ("`tallyhook deliveries show`", "`tallyhook reindex`"):
        assert command in alarm.sentence


async def test_until_an_event_ties_them(tmp_path: Path) -> None:
    """An event that names the session's order makes it the order of all of them."""
    async with driving(tmp_path, with_worker=False) as driver:
        for number in range(LEAST):
            await driver.send(event(f"e{number}", order=None))
            await driver.send(event(f"p{number}", "pending", order=None))
        assert not await told(driver, "no_order")
        driver.clock.put(driver.clock.now() + PATIENCE)
        (sentence,) = await told(driver, "no_order")
        assert f"The last {LEAST} payments" in sentence
        await driver.send(event("e9", "pending"))
        assert not await told(driver, "no_order")


async def test_until_the_profile_is_corrected(tmp_path: Path) -> None:
    """What the alarm says to do ends it."""
    async with driving(tmp_path, with_worker=False) as driver:
        right = driver.service.sources["shop"]
        wrong = source(tmp_path, order='"json:data.order.number"', session='"json:data.none"')
        receive_with(driver, wrong)
        for number in range(LEAST):
            await driver.send(of_order(f"O-{number}", f"e{number}"))
        driver.clock.put(driver.clock.now() + PATIENCE)
        assert await told(driver, "no_order")
        await reindex(driver.desk, sources={"shop": right}, progress=quiet)
        assert not await told(driver, "no_order")


async def test_what_is_still_to_be_asked_about_is_no_payment(tmp_path: Path) -> None:
    """Until the provider was asked, anybody may have sent it."""
    async with driving(tmp_path, with_worker=False) as driver:
        for number in range(LEAST):
            await driver.send(event(f"e{number}", order=None))
        driver.clock.put(driver.clock.now() + PATIENCE)
        assert await told(driver, "no_order")
        with closing(sqlite3.connect(driver.path)) as database, database:
            database.execute("UPDATE events SET standing = 'unconfirmed'")
        assert not await told(driver, "no_order")
