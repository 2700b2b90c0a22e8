"""An error that any function of a running service raises reveals none of its text.

It is looked for in answers, metrics, log lines and standard error.
"""

import asyncio
import gc
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from uvicorn.server import ServerState

from app.core.http import outgoing_client
from app.core.logs import configure_logging
from app.receiving.connection_limits import ConnectionLimits
from app.receiving.guard import guarded
from app.wiring import service as wiring
from app.wiring import worker
from tests.api.connected import LIMITS, post
from tests.api.driving import Driver, driving, of_order, signed
from tests.api.wire import Client
from tests.bench.load import is_whole
from tests.checkout.service import TOKEN, opened, service
from tests.cli.test_canaries import Canaries
from tests.crashing import Called, Crash, PlantedError, Point, crashing, private

SOME = 8
ANSWER_S = 1.0
"""Time to wait for an answer, or a notification, that may never come."""

SHOP_SECRET = "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE="
NUMBERS = count()


@dataclass
class World:
    """A whole service between a provider, a payment service and a shop, with all of its output."""

    driver: Driver
    kind: Any
    config: uvicorn.Config
    canaries: Canaries
    heard: list[bytes]
    broken: list[str]
    answered: str = ""

    async def ask(self, request: bytes) -> None:
        """Send one request on its own connection."""
        connection = self.kind(self.config, ServerState(), {})
        try:
            client = Client(connection)
            await client.ask(request)
        except PlantedError as error:  # handled as the loop's own transport does
            said = {"message": "Fatal error: protocol.data_received() call failed."}
            own = {"exception": error, "protocol": connection}
            asyncio.get_running_loop().call_exception_handler(said | own)
            return
        await self.patiently(lambda: is_whole(client.wire.sent[0]))
        self.answered += client.wire.sent[0].decode("latin-1")

    async def patiently(self, holds: Callable[[], bool]) -> None:
        """Wait for a limited time: a crash may have ended the task that would bring the result."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while not holds() and not self.broken:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)

    def deliver(self, **words: Any) -> bytes:
        """Send a genuine delivery of a new order."""
        number = next(NUMBERS)
        document = of_order(f"O-{number}", f"e-{number}")
        document["data"]["customer"] = {"phone": self.canaries.phone()}
        body = json.dumps(document).encode()
        return post(body, *signed(body), **words)

    def api(self, method: str, path: str, document: object = None, token: str = "") -> bytes:
        """Send a request with the shop's token."""
        body = b"" if document is None else json.dumps(document).encode()
        bearer = (b"authorization", f"Bearer {token or self.driver.token}".encode())
        return post(body, bearer, path=f"/api/v1{path}", line=f"{method} {{}} HTTP/1.1")


async def delivery(world: World) -> None:
    await world.ask(world.deliver())


async def delivery_through_asgi(world: World) -> None:
    await world.ask(world.deliver(path=f"/webhooks/shop?phone={world.canaries.phone()}"))


async def forged_deliveries(world: World) -> None:
    body = json.dumps({"phone": world.canaries.phone()}).encode()
    key = (b"x-api-key", world.canaries.word("key").encode())
    await world.ask(post(body, key))
    await world.ask(post(body, key, path="/webhooks/nobody"))


async def order_placed(world: World) -> None:
    placed = {"amount": "5.00", "currency": "KES"}
    await world.ask(world.api("PUT", f"/orders/P-{next(NUMBERS)}", placed))
    await world.ask(world.api("PUT", "/orders/P", placed | {"amount": world.canaries.word("n")}))


async def orders_read(world: World) -> None:
    for path in ("/orders", "/orders?outcome=succeeded", "/orders/ORD-0", "/orders/nobody"):
        await world.ask(world.api("GET", path))
    await world.ask(world.api("GET", "/orders", token=world.canaries.word("token")))


async def feed_read(world: World) -> None:
    await world.ask(world.api("GET", "/outcomes"))
    await world.ask(world.api("GET", f"/outcomes?after={world.canaries.phone()}x"))


async def checkout_started(world: World) -> None:
    order = {"reference": f"C-{next(NUMBERS)}", "amount": "5.00", "currency": "KES"}
    asked = {"order": order, "customer": {"phone": world.canaries.phone()}}
    urls = {"success": "https://shop.test/ok", "cancel": "https://shop.test/no"}
    asked["return_urls"] = urls
    await world.ask(world.api("POST", "/checkout/sessions", asked))


async def notification(world: World) -> None:
    before = len(world.heard)
    await world.ask(world.deliver())
    await world.patiently(lambda: len(world.heard) > before)


async def figures(world: World) -> None:
    for path in ("/metrics", "/readyz", "/livez", "/api/v1/openapi.json", "/nothing"):
        await world.ask(post(path=path, line="GET {} HTTP/1.1"))


Step = Callable[[World], Awaitable[None]]
STEPS: tuple[Step, ...] = (
    delivery, delivery_through_asgi, forged_deliveries, order_placed, orders_read, feed_read,
    checkout_started, notification, figures,
)  # fmt: skip


async def nothing() -> AsyncIterator[bytes]:
    yield b""


@asynccontextmanager
async def world(
    folder: Path, monkeypatch: pytest.MonkeyPatch, canaries: Canaries
) -> AsyncIterator[World]:
    """Run the whole service with a token and one known order."""
    heard: list[bytes] = []

    def shop(request: httpx2.Request) -> httpx2.Response:
        heard.append(request.content)
        return httpx2.Response(204, content=nothing())

    def client(timeout_s: float) -> httpx2.AsyncClient:
        return outgoing_client(timeout_s=timeout_s, transport=httpx2.MockTransport(shop))

    monkeypatch.setattr(wiring, "outgoing_client", client)
    monkeypatch.setattr(worker, "IDLE_S", 0.02)
    async with service(opened()) as pay:
        more: dict[str, Any] = {
            "CHECKOUT__BASE_URL": f"http://127.0.0.1:{pay.port}",
            "CHECKOUT__TOKEN": TOKEN,
            "SHOP__URL": "https://shop.example/outcomes",
            "SHOP__SECRET": SHOP_SECRET,
        }
        async with driving(folder, looking=True, **more) as driver:
            own = driver.service
            config = uvicorn.Config(
                own.application, ws="none", lifespan="off", log_config=None, proxy_headers=False
            )
            config.load()
            kind = guarded(ConnectionLimits(LIMITS))
            made = World(driver, kind, config, canaries, heard, own._broken)
            await driver.send(of_order("ORD-0", "e-first"))
            await driver.api("GET", "/orders")
            yield made


@dataclass
class Collected:
    """Answers, and the results of the crashes."""

    answered: str = field(default="", repr=False)
    crashed: int = 0
    failed: int = 0
    broken: int = 0


async def recorded(make: Callable[[], Any]) -> Called:
    """Return the functions that each step calls, recorded on a separate service."""
    called = Called()
    with called.looking_on():
        async with make() as whole:
            going_on = asyncio.create_task(called.go_on())
            for step in STEPS:
                called.begin(step)
                await step(whole)
            called.step = None
            going_on.cancel()
    return called


async def crash_at(points: list[Point], make: Callable[[], Any], crash: Crash) -> Collected:
    """Run each point's step while it crashes. Replace a service that breaks."""
    seen = Collected()
    async with AsyncExitStack() as stack:
        whole: World | None = None
        for _, function, step in points:
            if whole is None or not await whole.driver.ready():
                await stack.aclose()
                made: World = await stack.enter_async_context(make())
                whole = made
            before, whole.answered = crash.count, ""
            with crashing(function, crash):
                await step(whole)
                if crash.count == before:  # called in the background, whatever step there was
                    await notification(whole)
            seen.answered += whole.answered
            seen.crashed += crash.count > before
            seen.failed += "HTTP/1.1 500" in whole.answered
            seen.broken += bool(whole.broken)
        assert whole is not None
        await figures(whole)
        seen.answered += whole.answered
    return seen


# What the database's library had open when it crashed is closed by nobody, and looked for here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("some", "least"), [(SOME, (5, 2)), pytest.param(10_000, (17, 5), marks=pytest.mark.soak)]
)
def test_no_private_value_comes_out_of_any_crash(
    some: int,
    least: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    canaries, log, folders = Canaries(), io.StringIO(), count()
    configure_logging(format="json", level="debug", stream=log)
    crash = Crash(private(canaries))

    def make() -> Any:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return world(folder, monkeypatch, canaries)

    async def crash_everywhere() -> tuple[int, int, Collected]:
        points = (await recorded(make)).points()
        planted = len(canaries.planted)
        chosen = points[:: max(1, len(points) // some)]
        return len(points), planted, await crash_at(chosen, make, crash)

    points, planted, seen = asyncio.run(crash_everywhere())
    written = "".join(capfd.readouterr())
    assert canaries.seen_in(seen.answered) == []
    assert canaries.seen_in(log.getvalue()) == []
    assert canaries.seen_in(written) == []
    gc.unfreeze()
    gc.collect()
    print(f"crashed at {seen.crashed} of {points} functions: {seen}")
    assert points > 300
    assert (seen.crashed >= least[0], seen.failed >= least[1]) == (True, True), seen
    assert "PlantedError" in log.getvalue()
    # Counted before the crashes: a world that breaks early brings fewer private values.
    assert planted >= 15
