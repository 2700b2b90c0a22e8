"""Contract of every database for the outbox of notifications."""

import asyncio

import pytest

from app.config.settings import ShopSettings
from app.orders import refold
from app.orders.ledger_store import publish
from app.orders.notification_store import (
    Notification,
    SendResult,
    notification_counts,
    notifications_in,
    send_again,
    settle_notifications,
    take_notifications,
)
from app.orders.rebuild import refold_all
from app.orders.refold import refold_due
from app.receiving.inbox import Inbox
from reconcile.instants import SECOND
from tests.contexts import NOTIFIED
from tests.database.builders import arrival, commit, context, fetch, keep, quiet, rows, said
from tests.database.contract_ledgers import paid
from tests.reconcile.build import seconds

LEASE = 60 * SECOND


async def publish_two(inbox: Inbox, *orders: str, at: int = 0) -> None:
    """Publish two revisions of each order, of which the shop is to be notified."""
    inbox.settings = inbox.settings.model_copy(update={"shop": NOTIFIED})
    for make in (lambda order: said(f"e-{order}", order=order, payment=f"p-{order}"), paid):
        await keep(inbox, *(arrival(make(order), at=at) for order in orders))
        await refold_due(context(inbox, at=at), limit=100)


async def take(inbox: Inbox, *, at: int = 0, limit: int = 100) -> list[Notification]:
    return await commit(inbox, take_notifications, now=seconds(at), limit=limit, lease=LEASE)


async def settle(inbox: Inbox, *results: SendResult, at: int = 0) -> None:
    await commit(inbox, settle_notifications, results, now=seconds(at))


def names(taken: list[Notification]) -> list[tuple[str, str]]:
    """Return (order, outcome) of each, sorted."""
    return sorted((each.published.order, each.published.outcome) for each in taken)


async def counts(inbox: Inbox, *, enough: int = 9) -> tuple[int, int]:
    """Return how many wait, and how many were given up."""
    return await fetch(inbox, notification_counts, enough=enough)


class OutboxContract:
    """The outbox of notifications. A subclass gives `url`."""

    async def test_a_revision_and_its_notification_are_one_transaction(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """There is none where no shop is to be notified."""
        inbox.settings = inbox.settings.model_copy(update={"shop": NOTIFIED})
        await keep(inbox, arrival(paid("A")))

        def fail_after(*arguments: object, **words: object) -> None:
            publish(*arguments, **words)  # type: ignore[arg-type]
            raise RuntimeError("planned")

        monkeypatch.setattr(refold, "publish", fail_after)
        with pytest.raises(RuntimeError, match="planned"):
            await refold_due(context(inbox, at=99), limit=9)
        both = "SELECT seq FROM revisions UNION ALL SELECT seq FROM notifications"
        assert await rows(inbox, both) == []
        monkeypatch.setattr(refold, "publish", publish)
        await refold_all(context(inbox, at=100), progress=quiet)
        assert await rows(inbox, both) == [(1,), (1,)]
        inbox.settings = inbox.settings.model_copy(update={"shop": ShopSettings()})
        await keep(inbox, arrival(paid("B"), at=101))
        await refold_all(context(inbox, at=101), progress=quiet)
        assert sorted(await rows(inbox, both)) == [(1,), (1,), (2,)]

    @pytest.mark.alike
    async def test_an_order_is_notified_in_order(self, inbox: Inbox) -> None:
        """The next is given out once the first was delivered or given up."""
        await publish_two(inbox, "A", "B")
        first = await take(inbox)
        assert names(first) == [("A", "pending"), ("B", "pending")]
        assert await take(inbox) == []
        await settle(
            inbox,
            SendResult(sent=first[0], delivered=True),
            SendResult(sent=first[1], problem="timed_out", again_at=seconds(20)),
            at=1,
        )
        second = await take(inbox, at=1)
        assert names(second) == [(first[0].published.order, "succeeded")]
        again = await take(inbox, at=20)
        assert [each.tries for each in again] == [1]
        await settle(inbox, SendResult(sent=again[0], problem="status_500"), at=21)
        assert names(await take(inbox, at=21)) == [(first[1].published.order, "succeeded")]

    async def test_a_worker_that_died_loses_its_lease(self, inbox: Inbox) -> None:
        """Its late results change nothing."""
        await publish_two(inbox, "A")
        (lost,) = await take(inbox)
        (found,) = await take(inbox, at=60)
        assert found.published == lost.published
        await settle(inbox, SendResult(sent=lost, delivered=True), at=61)
        assert await counts(inbox) == (2, 0)
        assert await counts(inbox, enough=1) == (1, 0)
        await settle(inbox, SendResult(sent=found, delivered=True), at=62)
        assert await counts(inbox) == (1, 0)
        waits, there = await fetch(inbox, notifications_in, state=None, limit=9)
        assert (waits.due_at, waits.delivered_at) == (seconds(62), None)
        assert (there.due_at, there.delivered_at) == (None, seconds(62))
        assert (there.published_at, there.problem) == (seconds(0), None)

    async def test_no_two_workers_take_the_same_notification(self, inbox: Inbox) -> None:
        await publish_two(inbox, *(f"O{n}" for n in range(12)))
        parts = await asyncio.gather(*(take(inbox, limit=4) for _ in range(4)))
        taken = [each.published.seq for part in parts for each in part]
        assert len(taken) == len(set(taken)) > 3
        rest = [each.published.seq for _ in range(3) for each in await take(inbox, limit=4)]
        assert len({*taken, *rest}) == len(taken) + len(rest) == 12

    async def test_new_and_retried_notifications_each_have_places(self, inbox: Inbox) -> None:
        await publish_two(inbox, *(f"O{n}" for n in range(12)))
        tried = await take(inbox, limit=12)
        later = [SendResult(sent=each, problem="status_404", again_at=seconds(5)) for each in tried]
        await settle(inbox, *later)
        await publish_two(inbox, *(f"N{n}" for n in range(12)), at=5)
        taken = await take(inbox, at=6, limit=8)
        assert sorted(each.published.order[0] for each in taken) == ["N"] * 6 + ["O"] * 2
        rest = [each.published.order[0] for _ in range(4) for each in await take(inbox, at=6)]
        assert (rest.count("N"), rest.count("O")) == (6, 10)

    async def test_a_given_up_notification_is_listed_and_sent_again(self, inbox: Inbox) -> None:
        await publish_two(inbox, "A")
        (sent,) = await take(inbox)
        await settle(inbox, SendResult(sent=sent, problem="status_410"))
        async with inbox.database.reading() as connection:
            (dead,) = await notifications_in(connection, state="dead", limit=9)
            listed = await notifications_in(connection, state=None, limit=9)
        assert (dead.seq, dead.problem, dead.tries) == (1, "status_410", 1)
        assert [each.state for each in listed] == ["waiting", "dead"]
        async with inbox.database.writing() as connection:
            assert await send_again(connection, now=seconds(9), revisions=None) == 1
            assert await send_again(connection, now=seconds(9), revisions=[7]) == 0
        (again,) = await take(inbox, at=9)
        assert (again.published, again.tries, again.since) == (sent.published, 0, seconds(9))
