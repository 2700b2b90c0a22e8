"""Payments started over a bad network: exactly one for each order, and its ledger is true."""

import asyncio
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.sandbox.scenarios import SCENARIOS
from tests.e2e.meddler import FAULTS, Meddler, meddling
from tests.e2e.processes import serving, token
from tests.e2e.provider import checkout_settings, get, provider
from tests.waiting import PATIENCE_S

GATE = 24
SOAK = int(os.environ.get("STARTS", "1000"))
SEED = int(os.environ.get("SEED", "7"))
"""Five of the gate's orders hear nothing for a while, and every fault happens."""

AT_ONCE = 40
"""Customers who pay at one moment."""


def asked(number: int) -> dict[str, Any]:
    """Make the start of one order; its scenario follows from its number."""
    ending = sorted(SCENARIOS)[number % len(SCENARIOS)]
    return {
        "order": {"reference": f"ORD-{number}", "amount": f"{100 + number}.50", "currency": "KES"},
        "customer": {"phone": f"2547000000{ending}"},
    }


async def start(http: httpx2.AsyncClient, number: int, turn: asyncio.Semaphore) -> list[int]:
    """One customer, who clicks twice, and again until there is a session. All statuses."""
    click = partial(http.post, "/api/v1/checkout/sessions", json=asked(number))
    async with turn:
        statuses = [each.status_code for each in await asyncio.gather(click(), click())]
        while statuses[-1] == 202:
            statuses.append((await click()).status_code)
    return statuses


async def settled(http: httpx2.AsyncClient, truth: dict[str, Any]) -> None:
    """Wait until the order's ledger agrees with what happened. Fails with both if it never does."""
    ledger: dict[str, Any] = {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not _true(ledger, truth):
                await asyncio.sleep(0.2 if ledger else 0)
                ledger = (await http.get(f"/api/v1/orders/{truth['order']}")).json()
    except TimeoutError:
        raise AssertionError((truth, ledger)) from None


def _true(ledger: dict[str, Any], truth: dict[str, Any]) -> bool:
    if ledger.get("outcome") != truth["outcome"]:
        return False
    money = ("captured", "refunded") if truth["outcome"] != "unresolved" else ()
    return all(ledger["totals"][side] == truth[side] for side in money)


async def play(folder: Path, *, starts: int) -> Counter[str]:
    """Play all starts through the proxies, and check that everything is true. Return counts of the
    meddling."""
    async with meddling(SEED) as outward, meddling(SEED + 1) as inward:
        with provider(webhook_port=inward.port) as port:
            outward.target = port
            settings = checkout_settings(outward.port)
            with serving(folder, **settings) as process:
                inward.target = process.port
                shop = await asyncio.to_thread(token, folder, **settings)
                await _play(process.port, port, shop, starts)
        return _done(outward, inward)


def _done(*meddlers: Meddler) -> Counter[str]:
    return sum((meddler.done for meddler in meddlers), Counter())


async def _play(service: int, sandbox: int, shop: str, starts: int) -> None:
    turn = asyncio.Semaphore(AT_ONCE)
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{service}",
        headers={"Authorization": f"Bearer {shop}"},
        timeout=PATIENCE_S,
    ) as http:
        answers = await asyncio.gather(*(start(http, n, turn) for n in range(starts)))
        assert {statuses[-1] for statuses in answers} <= {200, 201}
        assert any(202 in statuses for statuses in answers), "some starts were unknown for a while"
        truths = await asyncio.to_thread(get, sandbox, "/sandbox/truth")
        state = await asyncio.to_thread(get, sandbox, "/sandbox/state")
        assert state["sessions"] == len(truths) == starts, "one payment for each order"
        assert {truth["order"] for truth in truths} == {f"ORD-{n}" for n in range(starts)}
        while state["pending_events"] or state["undelivered"]:
            await asyncio.sleep(0.2)
            state = await asyncio.to_thread(get, sandbox, "/sandbox/state")
        truths = await asyncio.to_thread(get, sandbox, "/sandbox/truth")
        async with asyncio.TaskGroup() as group:
            for truth in truths:
                group.create_task(settled(http, truth))


@pytest.mark.slow
async def test_faulty_starts_make_one_payment_each(tmp_path: Path) -> None:
    done = await play(tmp_path, starts=GATE)
    assert set(FAULTS) <= done.keys(), "every fault has happened"


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_thousand_faulty_starts_make_one_payment_each(tmp_path: Path) -> None:
    done = await play(tmp_path, starts=SOAK)
    print(f"{SOAK} starts, seed {SEED}: {dict(done)}")
