"""One request, several events: each is kept, judged and told apart by itself."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from app.operations.refold import refold_until_quiet
from tests.app.web.driving import Driver, driving

PROFILE = """
[signature]
mac = "hmac-sha256"
where = "header:webhook-signature"
signed = "{body}"
[event]
items = "events[*]"
id = "json:id"
kind = "json:action"
order = "json:order"
payment = "json:payment"
[amounts]
unit = "minor"
payment = "json:amount"
payment_currency = "json:currency"
[claims]
paid = "succeeded"
failed = "declined"
"""
KEY = "kP3vX9qLm2TzRw8YsBn5Jd7Hf4Gc6Ea1"


def item(number: int, action: str = "paid", **more: Any) -> dict[str, Any]:
    """One event of order O-number."""
    named = {"id": f"EV{number}", "action": action, "order": f"O-{number}", "payment": f"P{number}"}
    return {**named, "amount": 500, "currency": "EUR", **more}


def service(folder: Path) -> Any:
    """A service with one source that sends batches."""
    path = folder / "batches.toml"
    path.write_text(PROFILE)
    return driving(folder, SOURCES__SHOP__PROFILE=str(path), SOURCES__SHOP__SECRETS=KEY)


async def send(driver: Driver, *items: Any) -> dict[str, Any]:
    """Deliver a batch; the answer."""
    body = json.dumps({"events": items}).encode()
    mac = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest().encode()
    answer = await driver.send(body, [(b"webhook-signature", mac)])
    assert answer.status_code == 200
    return dict(answer.json())


async def outcomes(driver: Driver, *orders: str) -> list[str]:
    """The outcomes of these orders."""
    await refold_until_quiet(driver.desk, limit=100, progress=lambda count: None)
    return [(await driver.api("GET", f"/orders/{order}")).json()["outcome"] for order in orders]


async def test_each_event_of_a_batch_is_an_event(tmp_path: Path) -> None:
    """Three orders from one request; the whole body is kept once beside the parts."""
    async with service(tmp_path) as driver:
        answer = await send(driver, item(1), item(2, "failed"), item(3))
        assert answer["verdict"] == "stored"
        assert await outcomes(driver, "O-1", "O-2", "O-3") == ["succeeded", "failed", "succeeded"]
        assert driver.rows("SELECT count(*) FROM envelopes") == [(1,)]
        names = [row[0] for row in driver.rows("SELECT id FROM deliveries ORDER BY id")]
        assert names[0] == answer["delivery"]
        assert names[1:] == [f"{names[0]}-1", f"{names[0]}-2"]


async def test_an_event_in_another_batch_is_the_same_event(tmp_path: Path) -> None:
    """A redelivery beside new events is a duplicate by itself, and counts once."""
    async with service(tmp_path) as driver:
        await send(driver, item(1), item(2))
        assert (await send(driver, item(2), item(3)))["verdict"] == "stored"
        verdicts = driver.rows(
            "SELECT event_id, verdict FROM deliveries ORDER BY event_id, verdict"
        )
        assert verdicts == [
            ("EV1", "stored"), ("EV2", "duplicate"), ("EV2", "stored"), ("EV3", "stored"),
        ]  # fmt: skip
        assert (await send(driver, item(1), item(3)))["verdict"] == "duplicate"


async def test_one_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path) -> None:
    """It is kept as unreadable, with its own bytes; the others count."""
    async with service(tmp_path) as driver:
        answer = await send(driver, item(1), item(2, amount="12.5"), item(3))
        assert answer["verdict"] == "unreadable"
        assert await outcomes(driver, "O-1", "O-3") == ["succeeded", "succeeded"]
        ((body, problem),) = driver.rows(
            "SELECT body, problem FROM deliveries WHERE verdict='unreadable'"
        )
        assert json.loads(body) == item(2, amount="12.5")
        assert problem.startswith("event 2 of 3: ")


async def test_another_body_of_one_event_is_told(tmp_path: Path) -> None:
    """Of the verdicts of one request the most telling is answered."""
    async with service(tmp_path) as driver:
        await send(driver, item(1))
        answer = await send(driver, item(1, amount=900), item(2))
        assert answer["verdict"] == "duplicate_with_different_body"


async def test_a_batch_can_be_read_again(tmp_path: Path) -> None:
    """A rebuilt index holds each event of a batch as before."""
    from app.bootstrap_sources import compile_sources
    from app.config import load_settings
    from app.operations.reindex import reindex
    from tests.app.web.driving import environ

    async with service(tmp_path) as driver:
        await send(driver, item(1), item(2, amount=[]), item(3))
        columns = "event_id, order_key, digest, amount"
        before = driver.rows(f"SELECT {columns} FROM events ORDER BY event_id")
        more = {
            "SOURCES__SHOP__PROFILE": str(tmp_path / "batches.toml"),
            "SOURCES__SHOP__SECRETS": KEY,
        }
        sources = compile_sources(load_settings(environ(tmp_path, **more)))
        done = await reindex(driver.desk, sources=sources, progress=lambda count: None)
        assert (done.read, done.events, done.unreadable) == (3, 2, 1)
        assert driver.rows(f"SELECT {columns} FROM events ORDER BY event_id") == before
        await asyncio.sleep(0)
