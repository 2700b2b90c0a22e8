"""The four paths to a provider do what their page says, each against a service in this process."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.cli import main
from app.config.config_file import plan_settings
from app.core.clock import SystemClock
from app.core.http import outgoing_client
from app.wiring import service as wiring
from tests.api.driving import Driver, driving
from tests.docs.sessions import Command, differences, sessions
from tests.waiting import soon

PAGE = Path(__file__).resolve().parents[2] / "app/providers/CONNECTING.md"
PATHS = {session[0].text.split()[2]: session for session in sessions(PAGE)}
SECRET = "whsec_test_9f8e7d6c5b4a3f2e1d0c"
CREDENTIALS = {"consumer": "k:s", "shortcode": "174379", "timestamp": "20261120100000",
               "password": "cGFzc3dvcmQ="}  # fmt: skip


class _Bridge(httpx2.AsyncBaseTransport):
    """Transport of a command's requests to the service in another loop."""

    def __init__(self, driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self._loop = loop

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        asked = self._driver.service.application
        transport = httpx2.ASGITransport(app=asked)

        async def ask() -> tuple[int, bytes]:
            async with httpx2.AsyncClient(transport=transport) as client:
                answer = await client.request(
                    request.method, request.url, headers=request.headers.raw, content=content
                )
                return answer.status_code, answer.content

        asking = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        status, body = await asyncio.wrap_future(asking)
        return httpx2.Response(status, stream=httpx2.ByteStream(body))


@pytest.mark.parametrize("provider", PATHS)
async def test_the_path_ends_as_its_page_says(
    provider: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/t.db")
    monkeypatch.delenv("TALLYHOOK_CONFIG", raising=False)
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "credentials.json").write_text(json.dumps(CREDENTIALS))

    def nobody(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no network in tests")

    transport = httpx2.MockTransport(nobody)
    monkeypatch.setattr(
        wiring,
        "outgoing_client",
        lambda timeout_s: outgoing_client(timeout_s=timeout_s, transport=transport),
    )
    connect, export, serve, trigger, look = PATHS[provider]
    assert export.text == "export TALLYHOOK_CONFIG=tallyhook.env"
    assert serve.text.startswith("tallyhook serve ")
    await _runs(connect, capsys)
    monkeypatch.setenv("TALLYHOOK_CONFIG", "tallyhook.env")
    values = plan_settings(Path("tallyhook.env"), {}).values
    more: Any = {name.removeprefix("TALLYHOOK_"): value for name, value in values.items()}
    async with driving(tmp_path, at=SystemClock().now(), **more) as driver:
        bridge = _Bridge(driver, asyncio.get_running_loop())

        @asynccontextmanager
        async def sending() -> AsyncIterator[httpx2.AsyncClient]:
            async with httpx2.AsyncClient(transport=bridge) as client:
                yield client

        monkeypatch.setattr("app.cli.local.sending", sending)
        await _runs(trigger, capsys)
        if provider == "mpesa_stk":
            await soon(lambda: driver.rows("SELECT 1 FROM deliveries") != [])
        else:
            done = "SELECT 1 FROM ledgers WHERE outcome = 'succeeded'"
            await soon(lambda: driver.rows(done) != [])
        await _runs(look, capsys)


async def _runs(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    code = await asyncio.to_thread(main.run, shlex.split(command.text)[1:])
    written = capsys.readouterr()
    assert code == 0, written.err
    printed = (written.out + written.err).splitlines()
    assert not differences(command.output, printed), "\n".join(printed)
