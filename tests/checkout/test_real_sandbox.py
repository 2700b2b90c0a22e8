"""Checkouts at the simulated provider, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import uvicorn

from app.checkout.client import CheckoutClient, ClientSettings
from app.sandbox.server import DroppingProtocol, build_sandbox
from app.sandbox.settings import SANDBOX_TOKEN, SandboxSettings
from reconcile.instants import SECOND
from tests.checkout.conftest import Shop
from tests.sandbox.harness import FakeSigner
from tests.waiting import PATIENCE_S


@asynccontextmanager
async def sandbox() -> AsyncIterator[str]:
    """Serve a sandbox in this loop, on uvicorn as `serve_sandbox` sets it up. Yields its URL."""
    app = build_sandbox(
        SandboxSettings(unit_s=0.01, retry_after_s=2),
        signer=FakeSigner(),
        transport=httpx2.MockTransport(lambda _: httpx2.Response(200)),
    )
    config = uvicorn.Config(
        app, http=DroppingProtocol, ws="none", lifespan="on", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.ensure_future(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, PATIENCE_S)


@pytest.mark.parametrize(
    ("phone", "pauses"),
    [("254712345601", 0), ("254712345615", 1), ("254712345616", 2)],
    ids=["success", "no answer", "service trouble"],
)
async def test_each_scenario_opens_exactly_one_session(shop: Shop, phone: str, pauses: int) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async with sandbox() as base_url:
        settings = ClientSettings(base_url=base_url, token=SANDBOX_TOKEN, source="checkout")
        async with CheckoutClient(settings, sleep=sleep) as client:
            first = await shop.open(client, phone=phone)
            again = await shop.open(client, phone=phone)
        async with httpx2.AsyncClient(trust_env=False) as http:
            state = (await http.get(base_url + "/sandbox/state")).json()
            page = (await http.get(base_url + f"/checkout/{first.session}")).status_code
    assert first.state == "opened"
    assert again == first
    assert (state["sessions"], page) == (1, 200)
    assert len(slept) == pauses
    assert all(seconds >= 2 for seconds in slept if phone.endswith("16"))
    assert await shop.kinds() == ["requested", "opened"]
    ledger = await shop.ledger()
    assert ledger.outcome == ("pending" if ledger.as_of < (first.expires_at or 0) else "timed_out")


async def test_a_wrong_token_opens_nothing_and_a_corrected_one_continues(shop: Shop) -> None:
    async with sandbox() as base_url:
        wrong = ClientSettings(base_url=base_url, token="live_token", source="checkout")
        right = ClientSettings(base_url=base_url, token=SANDBOX_TOKEN, source="checkout")
        async with CheckoutClient(wrong) as client:
            with pytest.raises(Exception, match="403: correct the token"):
                await shop.open(client, phone="254712345601")
        shop.clock.put(shop.clock.now() + SECOND)
        async with CheckoutClient(right) as client:
            result = await shop.open(client, phone="254712345601")
    (requested, session) = await shop.records()
    assert result.session == session.session
    assert requested.key == session.key
