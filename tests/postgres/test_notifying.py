"""Two workers on one database share the shop's notifications: each is sent once, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from app.operations.folding.refold import refold_due
from app.operations.orders.notify_shop import Notifier, Shop, notify_due
from app.outbound.http import outgoing_client
from app.providers.profile import load_profile
from app.providers.source import Source
from tests.postgres.test_sharing import several
from tests.store.builders import arrival, desk, keep, rows, said
from tests.store.contract_ledgers import paid
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.postgres

ORDERS = [f"O{number:02}" for number in range(40)]
SECRET = "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE="


async def test_two_workers_share_the_work(url: str) -> None:
    """Nothing is sent twice while both live, nothing is left out, and no order's is overtaken."""
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
    async with several(url, notifies=True) as stores:
        for make in (lambda order: said(f"e-{order}", order=order, payment=f"p-{order}"), paid):
            await keep(stores[0], *(arrival(make(order)) for order in ORDERS))
            await refold_due(desk(stores[0]), limit=100)

        async def work(number: int) -> int:
            async with outgoing_client(
                timeout_s=PATIENCE_S, transport=httpx2.MockTransport(answer)
            ) as client:
                client.headers["x-worker"] = str(number)
                shop = Shop(url="http://shop.example/", signer=signer)
                notifier = Notifier(desk=desk(stores[number], at=1), shop=shop, client=client)
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


async def _left(store: Any) -> int:
    (row,) = await rows(store, "SELECT count(*) FROM notifications WHERE due_at IS NOT NULL")
    return int(row[0])


async def _nothing() -> AsyncIterator[bytes]:
    yield b""
