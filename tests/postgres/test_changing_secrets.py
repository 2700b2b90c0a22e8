"""A webhook secret is changed on four receivers, one after the other, while deliveries come."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import httpx2
import pytest

from app.config.load import load_settings
from app.core.clock import SetClock
from app.wiring.service import open_service
from reconcile.instants import SECOND, TICK, format_instant
from tests.api.driving import environ, of_order, secret, signed
from tests.postgres.conftest import ask_in_loop
from tests.reconcile.build import T

pytestmark = pytest.mark.postgres

OLD, NEW = b"a key for tests, to be changed", b"a newer key for tests, no secret"
RECEIVERS = 2
EACH = 3
"""Deliveries to each receiver between two changes."""

NUMBERS = count()


class Receivers:
    """Receivers behind a balancer, each with its own configuration, on one database."""

    def __init__(self, url: str, folder: Path, clock: SetClock) -> None:
        self._url, self._folder, self._clock = url, folder, clock
        self._open: dict[int, tuple[AsyncExitStack, httpx2.AsyncClient]] = {}
        self.taken = 0

    async def replace(self, number: int, *secrets: str) -> None:
        """End a receiver, if it runs, and start it with these secrets."""
        await self.end(number)
        words = {"DATABASE_URL": self._url, "SOURCES__SHOP__SECRETS": json.dumps(secrets)}
        settings = load_settings(environ(self._folder, **words), serving=True)
        stack = AsyncExitStack()
        service = await stack.enter_async_context(
            open_service(settings, clock=self._clock, work="reading")
        )
        transport = httpx2.ASGITransport(app=service.application)
        client = httpx2.AsyncClient(transport=transport, base_url="http://service")
        self._open[number] = stack, await stack.enter_async_context(client)

    async def end(self, number: int) -> None:
        if number in self._open:
            stack, _ = self._open.pop(number)
            await stack.aclose()

    async def statuses(self, key: bytes, *receivers: int, times: int = 1) -> set[int]:
        """Return the answers of these receivers, or of all, to new deliveries signed with the
        key."""
        found = set()
        for number in list(receivers or self._open) * times:
            name = f"e{next(NUMBERS)}"
            body = json.dumps(of_order(f"O-{name}", name)).encode()
            headers = signed(body, at=self._clock.now(), key=key)
            _, client = self._open[number]
            answer = await client.post("/webhooks/shop", content=body, headers=headers)
            found.add(answer.status_code)
            self.taken += answer.status_code == 200
        return found


@asynccontextmanager
async def receivers(url: str, folder: Path, clock: SetClock) -> AsyncIterator[Receivers]:
    """Start all of them with the old secret."""
    made = Receivers(url, folder, clock)
    try:
        for number in range(RECEIVERS):
            await made.replace(number, secret(OLD))
        yield made
    finally:
        for number in range(RECEIVERS):
            await made.end(number)


@pytest.mark.soak
async def test_a_secret_is_changed_on_one_after_the_other(url: str, tmp_path: Path) -> None:
    """Every receiver takes what is signed with a secret in force, and refuses a withdrawn secret
    from its restart on."""
    async with receivers(url, tmp_path, SetClock(T)) as all_of_them:
        for number in range(RECEIVERS):
            assert await all_of_them.statuses(NEW, number) == {401}
            await all_of_them.replace(number, secret(NEW), secret(OLD))
            assert await all_of_them.statuses(OLD, times=EACH) == {200}
        for key in (OLD, NEW):
            assert await all_of_them.statuses(key, times=EACH) == {200}
        for number in range(RECEIVERS):
            await all_of_them.replace(number, secret(NEW))
            assert await all_of_them.statuses(OLD, *range(number + 1)) == {401}
            assert await all_of_them.statuses(NEW, times=EACH) == {200}
        taken = all_of_them.taken
    assert taken == (2 * RECEIVERS + 2) * RECEIVERS * EACH
    assert [tuple(row) for row in await ask_in_loop(url, "SELECT count(*) FROM events")] == [
        (taken,)
    ]


async def test_a_secret_ends_everywhere_at_once(url: str, tmp_path: Path) -> None:
    """At the end written beside it, without a restart."""
    clock = SetClock(T)
    ending = f"{secret(OLD)} until {format_instant(T + 60 * SECOND)}"
    async with receivers(url, tmp_path, clock) as all_of_them:
        for number in range(RECEIVERS):
            await all_of_them.replace(number, secret(NEW), ending)
        clock.put(T + 60 * SECOND - TICK)
        assert await all_of_them.statuses(OLD) == {200}
        clock.put(T + 60 * SECOND)
        assert await all_of_them.statuses(OLD) == {401}
        assert await all_of_them.statuses(NEW) == {200}
