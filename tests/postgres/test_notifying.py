"""Two workers on one database share the shop's notifications: each is sent once, in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from app.core.http import outgoing_client
from app.orders.notify_shop import Notifier, Shop, notify_due
from app.orders.refold import refold_due
from app.providers.profile import load_profile
from app.providers.source import Source
from tests.contexts import NOTIFIED
from tests.database.builders import arrival, context, keep, rows, said
from tests.database.contract_ledgers import paid
from tests.postgres.test_sharing import several
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.postgres

ORDERS = [f"O{number:02}" for number in range(40)]
SECRET = "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE="


async def test_two_workers_send_each_notification_once_and_in_order(url: str) -> None:
    heard: list[tuple[str, int, str]] = []
    both = asyncio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        data: dict[str, Any] = json.loads(request.content)["data"]
        heard.append((data["order"], data["id"], request.headers["x-worker"]))
        if len({worker for *_, worker in heard}) == 2:
            both.set()
        await both.wait()  # nobody goes on alone
        await asyncio.sleep(0.01)
        return httpx2.Response(204, content=_nothing())

    signer = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET])
    async with several(url, shop=NOTIFIED) as stores:
        for make in (lambda order: said(f"e-{order}", order=order, payment=f"p-{order}"), paid):
            await keep(stores[0], *(arrival(make(order)) for order in ORDERS))
            await refold_due(context(stores[0]), limit=100)

        async def work(number: int) -> int:
            async with outgoing_client(
                timeout_s=PATIENCE_S, transport=httpx2.MockTransport(answer)
            ) as client:
                client.headers["x-worker"] = str(number)
                shop = Shop(url="http://shop.example/", signer=signer)
                notifier = Notifier(context=context(stores[number], at=1), shop=shop, client=client)
                sent = 0
                while await _left(stores[number]):
                    sent += await notify_due(notifier)
                return sent

        async with asyncio.timeout(PATIENCE_S):
            sent = await asyncio.gather(work(0), work(1))
    assert sum(sent) == len(heard) == 2 * len(ORDERS)
    assert min(sent) > 0
    for order in ORDERS:
        told = [number for name, number, _ in heard if name == order]
        assert told == sorted(set(told)), order


async def test_two_workers_send_one_probe_to_a_shop_that_is_away(url: str) -> None:
    """When the shop is back, it gets all that wait, once each."""
    heard: list[str] = []
    status = 503

    async def answer(request: httpx2.Request) -> httpx2.Response:
        heard.append(json.loads(request.content)["data"]["order"])
        await asyncio.sleep(0.02)
        return httpx2.Response(status, content=_nothing())

    signer = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET])
    async with several(url, shop=NOTIFIED) as stores:
        await keep(stores[0], arrival(paid("A")), arrival(paid("B")))
        await refold_due(context(stores[0]), limit=100)
        async with outgoing_client(
            timeout_s=PATIENCE_S, transport=httpx2.MockTransport(answer)
        ) as client:

            async def look(at: int) -> None:
                shop = Shop(url="http://shop.example/", signer=signer)
                notifiers = [
                    Notifier(context=context(inbox, at=at), shop=shop, client=client)
                    for inbox in stores
                    for _ in range(4)
                ]
                await asyncio.gather(*map(notify_due, notifiers))

            await look(1)
            assert heard == ["A", "B"]
            await keep(stores[0], *(arrival(paid(order)) for order in ORDERS))
            await refold_due(context(stores[0], at=1), limit=100)
            await look(2)
            assert len(heard) == 2
            for number, at in enumerate((6, 26, 86, 146), 3):
                await look(at)
                assert len(heard) == number
                await look(at + 1)
                assert len(heard) == number
            status = 204
            del heard[:]
            await look(206)
            while await _left(stores[0]):
                await look(206)
    assert sorted(heard) == sorted(["A", "B", *ORDERS])


async def _left(inbox: Any) -> int:
    (row,) = await rows(inbox, "SELECT count(*) FROM notifications WHERE due_at IS NOT NULL")
    return int(row[0])


async def _nothing() -> AsyncIterator[bytes]:
    yield b""
