"""Contract of every database for the shop's statements of its orders, also after a restore."""

import pytest

from app.orders.order_facts import NOT_SO, Moment, OrderFacts, tell_order
from app.orders.record_store import order_records
from app.orders.shop_facts_store import UNKNOWN, ShopFacts, facts_of_orders
from app.receiving.inbox import Inbox
from reconcile.ledger.records import Tender
from reconcile.money import Money
from tests.database.builders import arrival, context, fetch, keep, said
from tests.database.contract_restoring import put_back
from tests.reconcile.build import T, seconds

PRICE = Money(minor=9_000, currency="KES")
CARD = Tender(kind="gift_card", money=Money(minor=3_000, currency="KES"))


async def state(inbox: Inbox, order: str, *, at: int, **facts: Moment) -> None:
    """State an order `at` seconds after T."""
    stated = OrderFacts(order=order, money=PRICE, **facts)  # type: ignore[arg-type]
    await tell_order(context(inbox, at=at), stated)


class ShopFactsContract:
    """Contract for the shop's statements. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_a_price_is_kept_with_its_tenders(self, inbox: Inbox) -> None:
        facts = OrderFacts(order="A", money=PRICE, tenders=(CARD, CARD), placed_at=T)
        await tell_order(context(inbox), facts)
        free = OrderFacts(order="B", money=Money(minor=0, currency="KES"), free=True)
        await tell_order(context(inbox), free)
        (paid,) = await inbox.database.on_snapshot(order_records, "A")
        assert (paid.tenders, paid.free, paid.dated) == ((CARD, CARD), False, True)
        assert (paid.money, paid.due) == (PRICE, CARD.money)
        (given,) = await inbox.database.on_snapshot(order_records, "B")
        assert (given.tenders, given.free, given.dated) == ((), True, False)

    @pytest.mark.alike
    async def test_a_restore_makes_unknown_what_was_not_stated(self, inbox: Inbox) -> None:
        """Until it is stated, or where all events of the order are dated later."""
        await state(inbox, "SHIPPED", at=0, fulfilled_at=T)
        await state(inbox, "DENIED", at=0, fulfilled_at=NOT_SO, canceled_at=NOT_SO)
        await state(inbox, "OPEN", at=0)
        orders = ("SHIPPED", "DENIED", "OPEN", "OLD", "NEW", "UNDATED", "NOBODY")
        assert await fetch(inbox, facts_of_orders, orders) == {
            order: ShopFacts(fulfilled_at=T if order == "SHIPPED" else None) for order in orders
        }
        await put_back(inbox)
        dated = {"OLD": T, "NEW": seconds(5), "UNDATED": None}
        events = [
            said(f"e-{order}", "succeeded", order=order, payment=f"p-{order}", occurred_at=at)
            for order, at in dated.items()
        ]
        await keep(inbox, *map(arrival, events))
        await state(inbox, "DENIED", at=9, fulfilled_at=NOT_SO)
        unknown = ShopFacts(fulfilled_at=UNKNOWN, canceled_at=UNKNOWN)
        assert await fetch(inbox, facts_of_orders, orders) == {
            "SHIPPED": ShopFacts(fulfilled_at=T, canceled_at=UNKNOWN),
            "DENIED": ShopFacts(fulfilled_at=None, canceled_at=UNKNOWN),
            "OPEN": unknown,
            "OLD": unknown,
            "NEW": ShopFacts(),
            "UNDATED": unknown,
            "NOBODY": unknown,
        }
