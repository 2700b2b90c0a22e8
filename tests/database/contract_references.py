"""Contract of every database for payments and sessions that the shop names for its orders."""

import asyncio
from itertools import permutations

import pytest

from app.access.operators import trail
from app.orders.order_facts import OrderFacts, Reference, ReferenceTaken, tell_order
from app.orders.refold import refold_until_quiet
from app.orders.reindex import reindex
from app.receiving.inbox import Inbox
from reconcile.money import Money
from tests.contexts import with_sources
from tests.database.builders import (
    SOURCES,
    arrival,
    checked,
    context,
    events_in,
    histories,
    keep,
    of_the_builders,
    rows,
    said,
    session_opened,
)
from tests.database.contract_histories import deliver
from tests.reconcile.build import seconds
from tests.searching import every

PRICE = Money(minor=1_500, currency="KES")


def stated(order: str, *references: Reference, minor: int = 1_500) -> OrderFacts:
    money = Money(minor=minor, currency="KES")
    return OrderFacts(order=order, money=money, references=references)


PAYMENT = Reference(source="shop", payment="p")
SESSION = Reference(source="shop", session="s")


class ReferenceContract:
    """References that the shop names, and their authors. A subclass gives `url`."""

    @pytest.mark.alike
    @pytest.mark.parametrize("reference", [PAYMENT, SESSION])
    @pytest.mark.parametrize("event_first", [True, False])
    async def test_a_reference_leads_an_event_to_its_order(
        self, inbox: Inbox, reference: Reference, event_first: bool
    ) -> None:
        """Whichever came first. The rebuilt index is the same."""
        at = context(inbox, at=5)
        event = arrival(said("n", "succeeded", payment="p", session="s", money=PRICE))
        if event_first:
            await keep(inbox, event)
            await tell_order(at, stated("A", reference))
        else:
            await tell_order(at, stated("A", reference))
            await refold_until_quiet(at, limit=10, progress=lambda count: None)
            await keep(inbox, event)
        await refold_until_quiet(at, limit=10, progress=lambda count: None)
        assert await rows(inbox, "SELECT order_key, outcome, fulfillable FROM ledgers") == [
            ("A", "succeeded", 1)
        ]
        report = await checked(at)
        assert [each for each in report.problems if not of_the_builders(each)] == []
        links = await rows(inbox, "SELECT * FROM links ORDER BY kind")
        assert len(links) == 2
        await reindex(with_sources(at, SOURCES), progress=lambda count: None)
        assert await rows(inbox, "SELECT * FROM links ORDER BY kind") == links
        assert len(events_in((await histories(inbox, ["A"]))["A"])) == 1

    @pytest.mark.alike
    @pytest.mark.parametrize("opened_first", [True, False])
    async def test_an_opened_session_links_its_events(
        self, inbox: Inbox, opened_first: bool
    ) -> None:
        event = said("n", "succeeded", session="s", money=PRICE)
        opened = session_opened("A", "s")
        await deliver(inbox, [opened, event] if opened_first else [event, opened])
        await tell_order(context(inbox, at=5), stated("A"))
        await refold_until_quiet(context(inbox, at=5), limit=10, progress=lambda count: None)
        assert await rows(inbox, "SELECT order_key, outcome FROM ledgers") == [("A", "succeeded")]

    async def test_a_reference_is_of_one_order(self, inbox: Inbox) -> None:
        """Another order is refused it, is told whose it is, and nothing is written."""
        at = context(inbox, at=5)
        await tell_order(at, stated("A", PAYMENT))
        await deliver(inbox, [session_opened("B", "s"), said("c", order="C", payment="q")])
        for reference, owner in (
            (PAYMENT, "A"),
            (SESSION, "B"),
            (Reference(source="shop", payment="q"), "C"),
        ):
            with pytest.raises(ReferenceTaken, match=f"belongs to order {owner}") as raised:
                await tell_order(
                    at, stated("D", Reference(source="shop", payment="mine"), reference)
                )
            assert (raised.value.order, raised.value.reference) == (owner, reference)
            assert len(await tell_order(at, stated(owner, reference))) <= 2
        assert await rows(inbox, "SELECT id FROM records WHERE order_key='D'") == []
        assert await rows(inbox, "SELECT order_key FROM links WHERE order_key='D'") == []
        elsewhere = (Reference(source="other", payment="p"), Reference(source="shop", session="p"))
        assert len(await tell_order(at, stated("D", *elsewhere))) == 3

    @pytest.mark.alike
    async def test_a_reference_named_twice_is_one_record(self, inbox: Inbox) -> None:
        at = context(inbox, at=5)
        assert len(await tell_order(at, stated("A", PAYMENT, PAYMENT, SESSION))) == 3
        assert await tell_order(at, stated("A", SESSION, PAYMENT), author="token:other") == []
        await deliver(inbox, [session_opened("B", "t")])
        fresh = await tell_order(at, stated("B", Reference(source="shop", session="t")))
        assert [record.kind for record in fresh] == ["order_placed"]

    @pytest.mark.alike
    async def test_of_many_orders_at_once_one_gets_a_reference(self, inbox: Inbox) -> None:
        at = context(inbox, at=5)
        calls = [tell_order(at, stated(f"O{n}", PAYMENT)) for n in range(8)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in found if isinstance(each, ReferenceTaken)]
        assert len(refused) == 7
        assert len([each for each in found if isinstance(each, list)]) == 1
        assert len(await rows(inbox, "SELECT order_key FROM links")) == 1

    async def test_authors_of_records_and_new_prices_are_kept(self, inbox: Inbox) -> None:
        at = context(inbox, at=5)
        await tell_order(at, stated("A", PAYMENT), author="token:shop")
        await tell_order(at, stated("A", PAYMENT), author="token:other")
        await tell_order(at, stated("A", minor=100), author="token:other")
        await tell_order(at, stated("A", minor=100), author="token:other")
        authors = await rows(inbox, "SELECT kind, author FROM records ORDER BY recorded_at, kind")
        assert authors == [
            ("order_placed", "token:shop"),
            ("reference_named", "token:shop"),
            ("order_placed", "token:other"),
        ]
        (entry,) = await trail(at, subject="A", limit=9)
        assert (entry.who, entry.role, entry.action) == ("token:other", "token", "price_changed")
        assert dict(entry.facts) == {"before": "KES 15.00", "after": "KES 1.00"}
        assert entry.at == seconds(5)
        named = [r for r in (await histories(inbox, ["A"]))["A"].records if r.payment is not None]
        assert [(r.source, r.payment, r.author) for r in named] == [("shop", "p", "token:shop")]

    @pytest.mark.alike
    async def test_an_unconfirmed_event_makes_no_link_and_no_contest(self, inbox: Inbox) -> None:
        """Neither before nor after the genuine event."""
        for place, early in enumerate((True, False)):
            payment, victim, thief = f"pay_{place}", f"VICTIM-{place}", f"THIEF-{place}"
            forged = said(
                f"forged_{place}", "pending", order=thief, payment=payment, standing="unconfirmed"
            )
            named = said(f"named_{place}", "pending", order=victim, payment=payment)
            paid = said(f"paid_{place}", "succeeded", order=None, payment=payment)
            order = [forged, paid, named] if early else [named, paid, forged]
            for each in order:
                await keep(inbox, arrival(each))
            found = await histories(inbox, [victim, thief])
            events = {d.event.event_id for d in found[victim].deliveries}
            assert events == {named.event_id, paid.event_id}
            assert {d.event.event_id for d in found[thief].deliveries} == {forged.event_id}
        assert await rows(inbox, "SELECT * FROM contested") == []

    @pytest.mark.parametrize("folds_between", [True, pytest.param(False, marks=pytest.mark.alike)])
    async def test_any_arrival_order_gives_a_payment_to_the_order_that_the_shop_placed(
        self, inbox: Inbox, folds_between: bool
    ) -> None:
        """The refund names an order of its own, an authorization a cart. The index is right."""
        found = set()
        at = context(inbox, at=5)
        orders = list(permutations(("cart", "paid", "returned", "placed")))
        for number, members in enumerate(orders[:: every(5)]):
            payment, cart, order, own = (f"{name}{number}" for name in ("p", "cart", "A", "71-"))
            half = Money(minor=500, currency="KES")
            events = {
                "cart": said(f"c{number}", "authorized", payment=payment, order=cart, money=PRICE),
                "paid": said(f"s{number}", "succeeded", payment=payment, order=order, money=PRICE),
                "returned": said(
                    f"r{number}", "refunded", payment=payment, order=own, movement="m", money=half
                ),
            }
            for member in members:
                if member == "placed":
                    await tell_order(at, stated(order))
                else:
                    await keep(inbox, arrival(events[member]))
                if folds_between:
                    await refold_until_quiet(at, limit=10, progress=lambda count: None)
            await refold_until_quiet(at, limit=10, progress=lambda count: None)
            ledgers = await rows(inbox, "SELECT order_key, outcome, fulfillable FROM ledgers")
            outcomes = {each[0]: each[1:] for each in ledgers}
            found.add(tuple(outcomes.get(name) for name in (order, cart, own)))
        none = ("not_attempted", 0)
        assert found == {(("partially_refunded", 0), none, none)}
        report = await checked(at)
        assert [each for each in report.problems if not of_the_builders(each)] == []

    @pytest.mark.alike
    async def test_a_movements_own_reference_waits_for_its_payment_and_touches_no_order(
        self, inbox: Inbox
    ) -> None:
        """In any arrival order. Its reference equals the number of another order."""
        at = context(inbox, at=5)
        for number, members in enumerate(permutations(("authorized", "captured", "placed"))):
            payment, order, other = (f"{name}{number}" for name in "pAB")
            events = {
                "authorized": said(f"a{number}", "authorized", payment=payment, order=order),
                "captured": said(
                    f"c{number}", "succeeded", payment=payment, suggested=other, money=PRICE
                ),
            }
            for member in members:
                if member == "placed":
                    await tell_order(at, stated(order))
                    await tell_order(at, stated(other))
                else:
                    await keep(inbox, arrival(events[member]))
                await refold_until_quiet(at, limit=10, progress=lambda count: None)
        await keep(inbox, arrival(said("r", "refunded", payment="q", suggested="71")))
        await refold_until_quiet(at, limit=10, progress=lambda count: None)
        found = dict(await rows(inbox, "SELECT order_key, outcome FROM ledgers"))
        assert {name: found[name] for name in found if name[0] == "A"} == {
            f"A{number}": "succeeded" for number in range(6)
        }
        assert {found[name] for name in found if name[0] == "B"} == {"not_attempted"}
        assert "71" not in found
