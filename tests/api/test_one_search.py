"""A search for one delivery's id finds all of its log lines: received, read, folded, notified."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.http import outgoing_client
from app.core.logs import configure_logging
from app.orders.notify_shop import Notifier, Shop, notify_due
from app.orders.refold import refold_until_quiet
from app.providers.profile import load_profile
from app.providers.source import Source
from app.receiving.refusals import kind_of
from reconcile.instants import SECOND
from tests.api.driving import Driver, driving, event, secret, signed
from tests.receiving.asking import stream
from tests.rows import for_each

SHOP_SECRET = secret(b"the shop's own, of at least 24 bytes")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    lines = io.StringIO()
    configure_logging(format="json", level="info", stream=lines)
    yield lines
    configure_logging(format="json", level="warning")


async def notify(driver: Driver) -> None:
    """Fold what is due, and notify the shop, which accepts everything."""
    await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
    taken = httpx2.MockTransport(lambda request: httpx2.Response(204, content=stream(b"")))
    source = Source(name="shop", profile=load_profile("checkout"), secrets=[SHOP_SECRET])
    async with outgoing_client(timeout_s=5, transport=taken) as client:
        shop = Shop(url="http://shop.example/told", signer=source)
        while await notify_due(Notifier(context=driver.context, shop=shop, client=client)):
            pass


async def test_one_id_finds_the_way_of_a_delivery(tmp_path: Path, log: io.StringIO) -> None:
    """Each of two deliveries of one order has its own lines. An order that only a deadline moved
    stands under the last delivery it rests on."""
    more: dict[str, Any] = {"SHOP__URL": "http://shop.example/told", "SHOP__SECRET": SHOP_SECRET}
    async with driving(tmp_path, with_worker=False, **more) as driver:
        ids = []
        for name, claim in (("e1", "pending"), ("e2", "succeeded")):
            ids.append((await driver.send(event(name, claim))).json()["delivery"])
            await notify(driver)
            driver.clock.put(driver.clock.now() + SECOND)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    for delivery, outcome in zip(ids, ("pending", "succeeded"), strict=True):
        way = [line for line in lines if line.get("delivery") == delivery]
        assert [line["event"] for line in way] == ["delivery", "revision", "notification"]
        assert {line["order"] for line in way} == {"ORD-1"}
        assert way[0]["peer"] == "loopback"
        assert way[1]["outcome"] == outcome
        assert way[2]["attempt_number"] == 1


async def test_what_is_refused_says_from_what_kind_of_address(
    tmp_path: Path, log: io.StringIO
) -> None:
    """The line has the kind and never the address."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(b"{}", signed(b"{} "))
    (line,) = [each for each in map(json.loads, log.getvalue().splitlines()) if "peer" in each]
    assert (line["verdict"], line["peer"]) == ("signature_mismatch", "loopback")
    assert "127.0.0.1" not in log.getvalue()


@for_each(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:10.0.0.9", "private"),
        ("192.168.1.4", "private"),
        ("fe80::1%eth0", "private"),
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("", "none"),
        ("unix:", "none"),
    ],
)
def test_the_kind_of_an_address(address: str, kind: str) -> None:
    assert kind_of(address) == kind
