"""Every request that the description allows, and many that it does not, is answered as it says.

Schemathesis sends them over a socket, one by one and along the links between operations.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

from app.access.tokens import TOKEN_SCOPES, issue_token
from app.api import evidence_routes
from app.core.errors import NotFoundError
from app.evidence.bundle import BundleRequest
from app.orders.refold import refold_until_quiet
from app.wiring.serving import SignallessServer
from tests.api.driving import Driver, of_order
from tests.api.test_checkouts import shop
from tests.api.test_deciding import People
from tests.api.test_finance import keep_books
from tests.checkout.service import opened
from tests.contexts import stand_in
from tests.waiting import PATIENCE_S

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
"""File with the token that each operation takes, and the statuses that answer a valid request."""


class Served(NamedTuple):
    """The API's address, and tokens of a program and of a person with every permission."""

    url: str
    program: str
    person: str


@asynccontextmanager
async def _served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """Fill a service with orders, files, breaks, proposals, deliveries and notifications."""
    settings: dict[str, Any] = {
        "SHOP__URL": "https://shop.example/told",
        "SHOP__SECRET": "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE=",
        "SCHEDULE": "nightly | 30 2 * * * | reconcile",
        "LONGPOLL_MAX_S": "1",
    }

    async def bundle(asked: BundleRequest, file: Path) -> None:
        """Write a placeholder instead of starting a process per bundle. Other tests build real
        bundles."""
        if asked.order != "ORD-1":
            raise NotFoundError(asked.order)
        file.write_bytes(b"PK")  # noqa: ASYNC240

    stand_in(monkeypatch, evidence_routes._build, bundle)
    async with shop(folder, opened(), **settings) as (driver, _):
        await keep_books(driver, folder, monkeypatch)
        program = await issue_token(driver.context, name="any", scopes=TOKEN_SCOPES)
        people = People(driver)
        await people.begin()
        await driver.send(of_order("ORD-2", "e2", "pending"))
        await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
        async with _listening(driver) as url:
            yield Served(url, program, people.tokens["Ben"])


@asynccontextmanager
async def _listening(driver: Driver) -> AsyncIterator[str]:
    server = SignallessServer(
        uvicorn.Config(driver.service.application, port=0, lifespan="off", log_config=None)
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


@contextmanager
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Run the API on a loop of its own."""
    found: list[Served] = []
    there, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with _served(folder, monkeypatch) as each:
            found.append(each)
            there.set()
            await asyncio.to_thread(over.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            there.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert there.wait(PATIENCE_S)
        assert found, "it did not start: see the thread's error"
        yield found[0]
    finally:
        over.set()
        thread.join()


def asked(served: Served, folder: Path, *words: str) -> None:
    """Request every operation; fail with what schemathesis found."""
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("st"), "--config-file", CONFIGURATION),
            *("run", f"{served.url}/api/v1/openapi.json", "--no-color", "--continue-on-failure"),
            *("--seed", "1", "--generation-deterministic", *words),
        ],
        cwd=folder,  # it keeps what it found there
        env={**os.environ, "PROGRAM": served.program, "PERSON": served.person},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


@pytest.mark.soak
def test_two_hundred_requests_of_every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All phases run: examples, each bound of each parameter, generated requests, and sequences
    along the links between operations."""
    with served(tmp_path, monkeypatch) as api:
        asked(api, tmp_path, "--max-examples", "200")
