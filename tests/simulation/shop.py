"""The merchant, who places orders, opens their checkouts, reads the feed, and ships.

The shop keeps its own memory outside of the receiver: its orders, and the revisions that it read.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from app.checkout.client import CheckoutClient
from app.checkout.open_checkout import CheckoutResult, open_checkout
from app.checkout.request import CheckoutRequest
from app.context.context import AppContext
from app.core.errors import TallyhookError, UnreachableError
from app.orders.order_facts import OrderFacts, tell_order
from app.orders.read_feed import Published, read_feed
from app.sandbox.scenarios import SCENARIOS
from reconcile.instants import Instant
from reconcile.money import Money, major_text
from tests.simulation.machine import Down, Machine
from tests.simulation.trace import Trace

TRIES = 12
"""Attempts before the shop gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A customer's order, and how the shop handles it."""

    reference: str
    money: Money
    phone: str
    placed: bool
    starts_s: float

    @property
    def checkout(self) -> CheckoutRequest:
        """Request that opens its session."""
        return CheckoutRequest(
            order=self.reference,
            amount=major_text(self.money),
            currency=self.money.currency,
            phone=self.phone,
            success_url="https://shop.example/thanks",
            cancel_url="https://shop.example/cart",
        )


def drawn_orders(chance: random.Random) -> list[Order]:
    """Draw one or two orders within an hour, each with its own scenario."""
    return [
        Order(
            reference=f"ORD-{number}",
            money=Money(
                minor=chance.randrange(500, 500_000), currency=chance.choice(("KES", "USD"))
            ),
            phone="2547000000" + chance.choice(sorted(SCENARIOS)),
            placed=chance.random() < 0.7,
            starts_s=chance.uniform(0, 3_600) * chance.random(),
        )
        for number in range(1, chance.randint(1, 2) + 1)
    ]


Work = Callable[[AppContext, CheckoutClient], Awaitable[object]]
"""An operation of the product in the running process."""


@dataclass(slots=True)
class Shop:
    """The merchant. `may_ship`: whether an order's money is really there."""

    machine: Machine
    chance: random.Random
    trace: Trace
    now: Callable[[], Instant]
    may_ship: Callable[[str], bool]
    heard: list[Published] = field(default_factory=list)
    shipped: set[str] = field(default_factory=set)
    wrongs: list[str] = field(default_factory=list)
    prices: dict[str, Money] = field(default_factory=dict)

    async def sell(self, order: Order) -> None:
        """Sell one order, from the customer's click to an answer about its session."""
        self.prices[order.reference] = order.money
        await asyncio.sleep(order.starts_s)
        if order.placed:
            facts = OrderFacts(order=order.reference, money=order.money)
            await self._insist(order, lambda context, _: tell_order(context, facts), "placed")
        result = await self._insist(
            order, lambda d, c: open_checkout(d, c, request=order.checkout), "checkout"
        )
        if result is None:
            self.trace.say("shop", f"{order.reference} gives up", count="given up")

    async def _insist(self, order: Order, work: Work, what: str) -> object:
        """Repeat until it is done, after seconds, then minutes, like a person."""
        for number in range(TRIES):
            try:
                done = await self.machine.ask(work)
            except Down:
                said = "nobody there"
            except UnreachableError as error:
                said = type(error).__name__
            else:
                if not isinstance(done, CheckoutResult) or done.state != "unknown":
                    self.trace.say("shop", f"{order.reference} {what} done")
                    return done
                said = "unknown"
            self.trace.say("shop", f"{order.reference} {what}: {said}")
            await asyncio.sleep(self.chance.uniform(1, 30) * 1.7**number)
        return None

    async def read(self) -> None:
        """Read the feed for ever, at drawn intervals."""
        while True:
            await asyncio.sleep(10.0 ** self.chance.uniform(1.5, 5.4))
            await self.look()

    async def look(self) -> int:
        """Read once; return the number of new revisions."""
        after, limit = len(self.heard), self.chance.randint(1, 20)
        try:
            found = await self.machine.ask(
                lambda context, _: read_feed(context, after=after, limit=limit, wait_s=0)
            )
        except (Down, TallyhookError):
            return 0
        for revision in found:
            if revision.seq != len(self.heard) + 1:
                self.wrongs.append(f"the feed gave {revision.seq} after {len(self.heard)}")
            self.heard.append(revision)
            shown = f"{revision.seq} {revision.order} {revision.outcome}"
            self.trace.say("feed", shown + (" fulfillable" if revision.fulfillable else ""))
            if revision.fulfillable and revision.order not in self.shipped:
                await self._ship(revision.order)
        return len(found)

    async def _ship(self, order: str) -> None:
        """Ship, and say so in half of all cases."""
        if not self.may_ship(order):
            self.wrongs.append(f"{order} may be shipped, and there is no money")
        self.shipped.add(order)
        if self.chance.random() < 0.5:
            facts = OrderFacts(order=order, money=self.prices[order], fulfilled_at=self.now())
            with suppress(Down, UnreachableError):
                await self.machine.ask(lambda context, _: tell_order(context, facts))
