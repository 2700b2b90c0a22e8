"""The walk through one M-Pesa payment, in the room of the providers, ends as it says."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.http import outgoing_client
from app.wiring import service as wiring
from reconcile.instants import MINUTE, SECOND
from tests.api.driving import Driver, driving
from tests.receiving.asking import stream
from tests.reconcile.build import T
from tests.waiting import soon

ROOM = Path(__file__).resolve().parents[2] / "app" / "providers" / "README.md"
_SECTION = re.compile(r"^## A payment whose events name no order.*?(?=^## )", re.M | re.S)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(kind: str) -> list[str]:
    """Return the section's blocks of one kind, in order."""
    section = _SECTION.search(ROOM.read_text())
    assert section is not None
    return [text for found, text in _BLOCK.findall(section[0]) if found == kind]


PUSHED, STATED, CALLBACK, ANSWER = map(json.loads, blocks("json"))


async def ledger(driver: Driver) -> dict[str, Any]:
    """Return what the API says of the order."""
    found: dict[str, Any] = (await driver.api("GET", "/orders/ORD-1042")).json()
    return found


@pytest.mark.parametrize("callback_first", [False, True])
async def test_the_walk_through_a_payment_whose_events_name_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callback_first: bool
) -> None:
    """Whichever of the two came first, it ends fulfillable."""
    asked: list[httpx2.Request] = []

    def daraja(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        if "oauth" in str(request.url):
            answer = {"access_token": "t0k3n", "expires_in": "3599"}
        else:
            answer = ANSWER
        return httpx2.Response(200, content=stream(json.dumps(answer).encode()))

    monkeypatch.setattr(
        wiring,
        "outgoing_client",
        lambda timeout_s: outgoing_client(
            timeout_s=timeout_s, transport=httpx2.MockTransport(daraja)
        ),
    )
    assert STATED["references"][0]["session"] == PUSHED["CheckoutRequestID"]
    (lines,) = blocks("env")
    settings: dict[str, Any] = {
        name.removeprefix("TALLYHOOK_"): value
        for name, value in (line.split("=", 1) for line in lines.strip().splitlines())
    }
    async with driving(tmp_path, at=T + MINUTE, **settings) as driver:
        steps = ["stated", "called back"]
        for step in reversed(steps) if callback_first else steps:
            if step == "stated":
                answer = await driver.api("PUT", "/orders/ORD-1042", json=STATED)
                assert answer.status_code == 200
                assert not answer.json()["fulfillable"] or asked
            else:
                assert (await driver.send(CALLBACK, [], source="mpesa")).status_code == 200
        driver.clock.put(T + MINUTE + 6 * SECOND)
        await soon(lambda: driver.rows("SELECT 1 FROM events WHERE standing='answered'"))
        found = await ledger(driver)
        assert (found["outcome"], found["fulfillable"]) == ("succeeded", True)
        assert found["totals"]["captured"] == {"amount": "1500.00", "currency": "KES"}
        other = await driver.api("PUT", "/orders/ORD-1043", json=STATED)
        assert (other.status_code, other.json()["order"]) == (409, "ORD-1042")
    assert any("stkpushquery" in str(request.url) for request in asked)
