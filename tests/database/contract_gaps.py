"""Contract of every database for accepted gaps: nothing is claimed about what may be lost."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Final

import pytest

from app.database.gaps import FoundGap, Gap, accepted_gaps
from app.finance.coverage_store import coverage
from app.orders import refold
from app.orders.holds import release
from app.orders.order_facts import OrderFacts, tell_order
from app.orders.read_orders import explain_order, order_document
from app.orders.rebuild import refold_all
from app.orders.refold import TakingUp
from app.orders.service_holds import gaps_with_holds
from app.orders.shop_facts_store import UNKNOWN, facts_of_orders
from app.privacy import gap
from app.receiving.confirmation_store import gap_since_answer
from app.receiving.inbox import Inbox
from reconcile.instants import TICK, Instant
from reconcile.ledger.events import Event, State
from reconcile.ledger.records import GAP_ACCEPTED
from reconcile.matching.rules import Span
from reconcile.money import Money
from tests.contexts import HasDatabase, with_sources
from tests.database.builders import arrival, context, fetch, keep, quiet, rows, said
from tests.database.contract_holds import hold_records, published, started
from tests.database.contract_ledgers import folded, paid
from tests.database.contract_restoring import head
from tests.reconcile.build import DUE, seconds

FIRST_RAISED: Final = 2**40


async def accept_gap(at_: HasDatabase, *, since: int, until: int, at: int) -> Gap:
    """Accept a gap `at` seconds after T, as a start does."""
    found = FoundGap(
        kind="database",
        since=seconds(since),
        until=seconds(until),
        deliveries=None,
        detail="The newest commits are missing",
    )
    async with at_.database.writing() as connection:
        await gap.accept_gap(connection, found, at=seconds(at), reason="the disk was replaced")
        await gap.follow_loss(connection, at=seconds(at))
    return (await at_.database.on_snapshot(accepted_gaps))[-1]


def later(order: str, *, at: int) -> Event:
    """Return the payment of an order, dated `at` seconds after T."""
    event: Event = paid(order)
    return replace(event, occurred_at=seconds(at))


def answered(order: str, *, event_id: str, refunded: int = 0, at: int = 0) -> Event:
    """Return a provider's answer that states how the payment of an order stands."""
    state = State(member="refunded", money=Money(minor=refunded, currency=DUE.currency))
    event = said(event_id, "succeeded", order=order, payment=f"p-{order}", money=DUE)
    return replace(event, standing="fetched", states=(state,), stated_at=seconds(at))


async def held(inbox: Inbox, order: str, *, at: int) -> bool:
    """Return whether a read at that time shows the order held for a gap."""
    ledger = await explain_order(context(inbox, at=at), order)
    return GAP_ACCEPTED in ledger.case.filed.holds


class GapContract:
    """Accepted gaps. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_paid_orders_are_held_numbers_rise_and_facts_are_unknown(
        self, inbox: Inbox
    ) -> None:
        """A read shows the hold before the worker has recorded it, and the worker publishes it."""
        await keep(inbox, *(arrival(paid(each)) for each in ("OPEN", "SENT")))
        await keep(inbox, arrival(later("NEW", at=50), at=50))
        await keep(inbox, arrival(said("waits", order="UNPAID", payment="p-UNPAID")))
        sent = OrderFacts(order="SENT", money=DUE, fulfilled_at=seconds(5))
        await tell_order(context(inbox, at=6), sent)
        await started(context(inbox, at=9))
        last = await head(inbox)
        made = await accept_gap(inbox, since=2, until=8, at=60)
        orders = ("OPEN", "SENT", "NEW", "UNPAID")
        assert [each for each in orders if await held(inbox, each, at=61)] == ["OPEN"]
        assert await hold_records(inbox) == []
        await started(context(inbox, at=62))
        assert await hold_records(inbox) == [("OPEN", "held", GAP_ACCEPTED, "service")]
        assert (await published(inbox))[-1] == ("OPEN", "succeeded", 0)
        assert await head(inbox) > last + FIRST_RAISED
        facts = await fetch(inbox, facts_of_orders, ("OPEN", "SENT"))
        assert facts["OPEN"].fulfilled_at == UNKNOWN
        assert facts["SENT"].fulfilled_at == seconds(5)
        assert [held for _, held in await gaps_with_holds(context(inbox, at=63))] == [1]
        document = await order_document(context(inbox, at=63), "OPEN")
        assert document["gaps"] == [
            {
                "gap": made.id,
                "since": "2026-11-20T10:00:02Z",
                "until": "2026-11-20T10:00:08Z",
                "looked_at": False,
            }
        ]
        assert "gaps" not in await order_document(context(inbox, at=63), "NEW")

    @pytest.mark.alike
    async def test_a_person_releases_and_a_later_gap_holds_again(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(paid("A")))
        await started(context(inbox, at=9))
        await accept_gap(inbox, since=2, until=8, at=20)
        assert await release(context(inbox, at=30), ["A"], reason=GAP_ACCEPTED, why="asked") == 1
        await folded(context(inbox, at=31))
        assert not await held(inbox, "A", at=32)
        (shown,) = (await order_document(context(inbox, at=32), "A"))["gaps"]
        assert shown["looked_at"]
        await accept_gap(inbox, since=33, until=34, at=40)
        await started(context(inbox, at=41))
        assert await held(inbox, "A", at=42)
        kinds = [kind for _, kind, _, _ in await hold_records(inbox)]
        assert kinds == ["held", "released", "held"]

    @pytest.mark.alike
    async def test_an_order_that_the_shop_states_as_fulfilled_is_released(
        self, inbox: Inbox
    ) -> None:
        await keep(inbox, arrival(paid("A")))
        await started(context(inbox, at=9))
        await accept_gap(inbox, since=2, until=8, at=20)
        await started(context(inbox, at=21))
        sent = OrderFacts(order="A", money=DUE, fulfilled_at=seconds(5))
        await tell_order(context(inbox, at=30), sent)
        assert not await held(inbox, "A", at=31)
        await folded(context(inbox, at=32))
        assert [each[1:] for each in await hold_records(inbox)] == [
            ("held", GAP_ACCEPTED, "service"),
            ("released", GAP_ACCEPTED, "service"),
        ]

    @pytest.mark.alike
    async def test_what_comes_again_of_the_gap_is_held_too(self, inbox: Inbox) -> None:
        """Its refund may be lost as well as it was."""
        await accept_gap(inbox, since=2, until=8, at=20)
        await keep(inbox, arrival(later("A", at=4), at=30))
        await folded(context(inbox, at=31))
        assert await published(inbox) == [("A", "succeeded", 0)]

    async def test_the_answers_of_the_provider_about_each_payment_release(
        self, inbox: Inbox
    ) -> None:
        """Answers of before count for nothing; what they state of refunds counts as usual."""
        half = Money(minor=DUE.minor // 2, currency=DUE.currency)
        for number in (1, 2):
            part = said(f"e{number}", "succeeded", order="A", payment=f"p{number}", money=half,
                        order_money=DUE)  # fmt: skip
            await keep(inbox, arrival(part))

        def answer(payment: int, *, at: int) -> Event:
            event = answered("A", event_id=f"a{payment}-{at}", at=at)
            return replace(event, payment=f"p{payment}", money=half)

        await keep(inbox, arrival(answer(1, at=3), at=3))
        await started(context(inbox, at=9))
        await accept_gap(inbox, since=2, until=8, at=20)
        await started(context(inbox, at=21))
        for payment, still in ((1, True), (2, False)):
            async with inbox.database.reading() as connection:
                assert await gap_since_answer(connection, answer(1, at=3)) == still
            await keep(inbox, arrival(answer(payment, at=30), at=30))
            await folded(context(inbox, at=31))
            assert await held(inbox, "A", at=32) == still
        assert [kind for _, kind, _, _ in await hold_records(inbox)] == ["held", "released"]

    @pytest.mark.parametrize("states", [True, False])
    async def test_providers_whose_answers_state_a_position_are_asked_after_each_gap(
        self, inbox: Inbox, states: bool
    ) -> None:
        await keep(inbox, arrival(paid("A")))
        rule = SimpleNamespace(states=states)
        source = SimpleNamespace(profile=SimpleNamespace(fetch_back=rule))
        at = [with_sources(context(inbox, at=each), {"shop": source}) for each in (9, 21, 41)]
        await started(at[0])
        for number, again in enumerate(at[1:], start=1):
            await accept_gap(inbox, since=2, until=8, at=20 * number)
            await started(again)
            asked = await rows(inbox, "SELECT event_id, due_at FROM confirmations")
            assert asked == ([("paid-A", again.clock.now())] if states else [])
            assert [held for _, held in await gaps_with_holds(again)][-1] == 1
        assert len(await hold_records(inbox)) == 2

    @pytest.mark.alike
    async def test_orders_with_money_come_due_in_batches_also_after_a_break(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refold, "AT_ONCE", 2)
        names = [f"O{number}" for number in range(5)]
        await keep(inbox, *(arrival(paid(each)) for each in names))
        await keep(inbox, arrival(said("waits", order="O5", payment="p-O5")))
        await started(context(inbox, at=9))
        await accept_gap(inbox, since=2, until=8, at=20)
        due = f"SELECT order_key FROM order_due WHERE due_at <= {seconds(30)} ORDER BY order_key"
        broken_off = TakingUp(context(inbox, at=21))
        await broken_off.some()
        assert await rows(inbox, due) == [("O0",), ("O1",)]
        again = TakingUp(context(inbox, at=22))
        while await again.some():
            pass
        assert await rows(inbox, due) == [(each,) for each in names]
        assert await again.some() == 0
        await folded(context(inbox, at=23))
        await started(context(inbox, at=24))
        assert len(await hold_records(inbox)) == 5

    @pytest.mark.alike
    async def test_a_rebuild_between_gap_and_hold_loses_no_hold(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(paid("A")))
        await started(context(inbox, at=9))
        await accept_gap(inbox, since=2, until=8, at=20)
        taking_up = TakingUp(context(inbox, at=21))
        while await taking_up.some():
            pass
        await refold_all(context(inbox, at=22), progress=quiet)
        await started(context(inbox, at=23))
        assert (await published(inbox))[-1] == ("A", "succeeded", 0)

    @pytest.mark.alike
    async def test_absence_is_not_claimed_of_an_order_of_the_time(self, inbox: Inbox) -> None:
        await tell_order(context(inbox, at=1), OrderFacts(order="OLD", money=DUE))
        await accept_gap(inbox, since=2, until=8, at=20)
        await tell_order(context(inbox, at=30), OrderFacts(order="NEW", money=DUE))
        said_of = {
            order: (await order_document(context(inbox, at=31), order)) for order in ("OLD", "NEW")
        }
        assert "may be lost" in said_of["OLD"]["plain"]["answer"][0]
        assert "may be lost" in said_of["OLD"]["staff"][-1]
        assert "lost" not in str(said_of["NEW"]["plain"]) + str(said_of["NEW"]["staff"])

    @pytest.mark.alike
    async def test_coverage_carries_the_gaps_that_were_accepted_by_then(self, inbox: Inbox) -> None:
        """A run as of an instant before says again what it said then."""
        await accept_gap(inbox, since=2, until=8, at=20)
        found = [await fetch(inbox, coverage, as_of=seconds(at)) for at in (19, 20)]
        lost = Span(since=seconds(2), until=Instant(seconds(8) + TICK))
        assert [each.lost for each in found] == [(), (lost,)]
