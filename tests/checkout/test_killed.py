"""A process that ends between any two steps; the next call continues with the same key."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.checkout.client import CheckoutClient
from app.checkout.open_checkout import CheckoutResult, open_checkout
from app.checkout.request import ServiceReply, Verdict
from app.core.errors import StoreUnavailable
from app.database.database import Database
from app.database.statements import Plain, PlainConnection
from app.orders.pending_session_store import release_all
from tests.checkout.conftest import Shop
from tests.checkout.service import Service, answer, asked, drop, opened, service


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


class Fate:
    """Ends everything at the step with this number."""

    def __init__(self, at: int, end: type[BaseException]) -> None:
        self.at, self.end, self.passed = at, end, 0

    def step(self) -> None:
        self.passed += 1
        dead = self.end is Killed and self.passed > self.at
        if dead or self.passed == self.at:
            raise self.end("here")


class DyingDatabase:
    """The real database, with a step before and after each opening, and around each commit."""

    def __init__(self, database: Database, fate: Fate) -> None:
        self._database, self._fate = database, fate
        self.environment = database.environment

    @property
    def writer(self) -> DyingDatabase:
        return self

    async def on_snapshot(self, function: Plain[..., Any], *args: Any, **words: Any) -> Any:
        self._fate.step()
        found = await self._database.on_snapshot(function, *args, **words)
        self._fate.step()
        return found

    async def commit(self, function: Plain[..., Any], *args: Any, **words: Any) -> Any:
        def stepping(connection: PlainConnection) -> Any:
            made = function(connection, *args, **words)
            self._fate.step()
            return made

        self._fate.step()
        made = await self._database.writer.commit(stepping)
        self._fate.step()
        return made


class DyingClient(CheckoutClient):
    """The real client, with a step around each call, each request and each pause."""

    fate: Fate

    async def ask(self, *arguments: Any, **named: Any) -> Verdict:
        self.fate.step()
        verdict = await super().ask(*arguments, **named)
        self.fate.step()
        return verdict

    async def _request(self, *arguments: Any, **named: Any) -> ServiceReply:
        self.fate.step()
        reply = await super()._request(*arguments, **named)
        self.fate.step()
        return reply


async def _dies(shop: Shop, pay: Service, *, fate: Fate, order: str) -> CheckoutResult | None:
    plain = pay.client()
    client = DyingClient(plain.settings, sleep=pay.sleep)
    client.fate = fate
    dying: Any = DyingDatabase(shop.inbox.database, fate)
    async with plain, client:
        try:
            context = replace(shop.context, database=dying)
            return await open_checkout(context, client, request=asked(order))
        except (Killed, StoreUnavailable, RuntimeError):
            return None


@pytest.mark.slow
@pytest.mark.parametrize("end", [Killed, StoreUnavailable, RuntimeError])
async def test_killed_at_every_step_the_next_call_uses_the_same_key(
    shop: Shop, end: type[BaseException]
) -> None:
    async def by_number(writer: asyncio.StreamWriter) -> None:
        reference = f"cs_{pay.seen[-1].document['order']['reference']}"
        await (drop, answer(503), opened(reference))[min(len(pay.seen) - base, 3) - 1](writer)

    async with service(by_number) as pay, pay.client() as client:
        for step in range(1, 60):
            order, base = f"ORD-{step}", len(pay.seen)
            fate = Fate(step, end)
            died = await _dies(shop, pay, fate=fate, order=order)
            before = [record.key for record in await shop.records(order)]
            await shop.inbox.database.writer.commit(release_all)  # as a process does when it starts
            result = await shop.open(client, order=order)
            sent = {seen.key for seen in pay.seen[base:]}
            assert (result.state, result.session) == ("opened", f"cs_{order}")
            assert sent == {result.key}, "one key per order was ever sent"
            assert set(before) <= sent, "the key was committed before it was sent"
            assert await shop.kinds(order) == ["requested", "opened"]
            assert (await shop.ledger(order)).outcome == "pending"
            if fate.passed < step:
                break
    assert died == result
    assert 15 < step < 59, "every step was reached, and after the last one nothing died"


async def test_nothing_is_sent_before_the_key_is_committed(shop: Shop) -> None:
    committed: list[str | None] = []

    async def look(writer: asyncio.StreamWriter) -> None:
        committed.extend(record.key for record in await shop.records())
        await opened()(writer)

    async with service(look) as pay, pay.client() as client:
        await shop.open(client)
    assert committed == [pay.seen[0].key]


async def test_a_caller_who_gives_up_leaves_the_key_and_frees_its_turn(shop: Shop) -> None:
    async with service(drop, opened()) as pay, pay.client() as client:
        call = asyncio.ensure_future(shop.open(client))
        await pay.until(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(client.flights) == 0
        result = await shop.open(client)
    assert result.state == "opened"
    assert pay.keys == {result.key}
