"""The API is loaded at its first request."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.api import api_routes
from tests.api.driving import driving, event

ROUTES = api_routes.api_routes


def loads_by(monkeypatch: pytest.MonkeyPatch, load: Callable[..., Any]) -> None:
    monkeypatch.setattr(api_routes, "api_routes", load)


async def test_first_requests_wait_for_one_load_and_deliveries_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, loads = asyncio.get_running_loop(), list[int]()
    begins, ends = asyncio.Event(), threading.Event()

    def slowly(*words: Any, **more: Any) -> Any:
        loads.append(1)
        loop.call_soon_threadsafe(begins.set)
        ends.wait()
        return ROUTES(*words, **more)

    loads_by(monkeypatch, slowly)
    async with driving(tmp_path) as driver:
        asked = [
            asyncio.create_task(driver.client.request(method, path))
            for method, path in (
                ("GET", "/api/v1/orders"),
                ("GET", "/api/v1/openapi.json"),
                ("OPTIONS", "/api/v1/orders"),
                ("GET", "/nothing"),
            )
        ]
        canceled = asyncio.create_task(driver.client.get("/api/v1/outcomes"))
        await begins.wait()
        canceled.cancel()
        assert (await driver.send(event("e1"))).status_code == 200
        assert (await driver.client.get("/livez")).status_code == 200
        assert not any(each.done() for each in asked)
        ends.set()
        statuses = [(await each).status_code for each in asked]
        assert (statuses, loads) == ([401, 200, 405, 404], [1])


async def test_an_api_that_cannot_be_loaded_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*words: Any, **more: Any) -> Any:
        raise ImportError("no module")

    loads_by(monkeypatch, fail)
    async with driving(tmp_path) as driver:
        answers = await asyncio.gather(*(driver.client.get("/api/v1/orders") for _ in range(2)))
        assert [each.status_code for each in answers] == [500, 500]
        await asyncio.wait_for(driver.service.stopped(), 5)
        assert driver.service.broken == ["the API cannot be loaded"]
        assert not await driver.ready()
