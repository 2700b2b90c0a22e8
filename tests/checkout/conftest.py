"""A store for each test, and a view of what a checkout leaves in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.checkout.client import CheckoutClient
from app.checkout.open_checkout import CheckoutResult, open_checkout
from app.context.context import AppContext
from app.core.clock import SetClock
from app.database.statements import select_in
from app.orders.record_store import order_records
from app.receiving.inbox import Inbox, open_inbox
from reconcile.instants import SECOND, Instant, parse_instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record
from tests.checkout.service import asked
from tests.contexts import settings_of
from tests.database.made import put_new

START = parse_instant("2026-11-20T10:00:00Z")


class Ticking(SetClock):
    """A clock that advances by a second with each reading, so that no two records tie."""

    def now(self) -> Instant:
        self.put(super().now() + SECOND)
        return super().now()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    """Open a store with a clock."""
    path = tmp_path / "tallyhook.db"
    put_new(path)
    async with open_inbox(settings_of(path), purpose="writing") as inbox:
        yield Shop(inbox, Ticking(START))


@dataclass
class Shop:
    """Opens checkouts and shows what they leave behind."""

    inbox: Inbox
    clock: SetClock

    @property
    def context(self) -> AppContext:
        return self.inbox.context(clock=self.clock)

    async def open(
        self, client: CheckoutClient, *, new_payment: bool = False, **changes: Any
    ) -> CheckoutResult:
        request = asked(**changes)
        return await open_checkout(self.context, client, request=request, new_payment=new_payment)

    async def records(self, order: str = "ORD-1") -> list[Record]:
        return await self.inbox.database.on_snapshot(order_records, order)

    async def kinds(self, order: str = "ORD-1") -> list[str]:
        return [record.kind.removeprefix("session_") for record in await self.records(order)]

    async def details(self, order: str = "ORD-1") -> list[str]:
        """List the details kept beside each of `records`."""
        ids = [record.record_id for record in await self.records(order)]
        sql = "SELECT id, details FROM records WHERE id IN ({})"
        async with self.inbox.database.reading() as connection:
            found: dict[str, str] = dict(await select_in(connection, sql=sql, values=ids))
        return [found[record_id] for record_id in ids]

    async def written(self) -> str:
        """Return all text of the table, for every order."""
        async with self.inbox.database.reading() as connection:
            rows = await select_in(
                connection, sql="SELECT * FROM records WHERE 1 IN ({})", values=[1]
            )
        return repr(rows)

    async def ledger(self, order: str = "ORD-1", *, as_of: Instant | None = None) -> Ledger:
        history = History(order=order, records=frozenset(await self.records(order)))
        return fold(history, policy=Policy(), as_of=as_of or self.clock.now())
