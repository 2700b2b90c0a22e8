"""Contract of every database for deleted bodies: what stays, and what a redelivery finds."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.core.errors import StoreUnavailable
from app.database.statements import run
from app.orders.prove import prove_orders
from app.orders.rebuild import refold_all
from app.orders.refold import refold_until_quiet
from app.orders.reindex import reindex
from app.privacy import prune
from app.privacy.check import check_database
from app.receiving.inbox import Inbox
from app.receiving.phone_store import recipient_note, write_phone_notes
from reconcile.instants import DAY, SECOND
from reconcile.money import Money
from tests.contexts import with_sources
from tests.database.builders import (
    SIGNER,
    SOURCES,
    arrival,
    change,
    checked,
    context,
    dump,
    fetch,
    histories,
    keep,
    of_the_builders,
    quiet,
    rejection,
    rows,
    said,
    seal,
    session_opened,
)
from tests.database.contract_histories import Part, deliver
from tests.reconcile.build import T

MONTH = 30 * DAY
RETENTION = prune.Retention(
    quiet=MONTH, phones=MONTH, rejections=MONTH, sources=frozenset({"shop"})
)
LATER = 40 * DAY // SECOND
"""Seconds after T: the month is over for what came at T."""

TRUTH = ("deliveries", "events", "links", "contested", "records", "revisions")
PRICE = Money(minor=150_000, currency="KES")
PAID: dict[str, Any] = {"order": "A", "payment": "p", "session": "s", "money": PRICE}


async def pruned(inbox: Inbox, *, at: int = LATER, dry_run: bool = False) -> prune.Pruning:
    """Fold, seal and prune once, all `at` seconds after T."""
    then = context(inbox, at=at)
    await refold_until_quiet(then, limit=100, progress=quiet)
    await seal(inbox)
    return await prune.prune_settled(then, RETENTION, dry_run=dry_run, keep=10, progress=quiet)


async def emptied(inbox: Inbox) -> set[str]:
    """Return the event ids of pruned deliveries; every row is whole or empty."""
    found = await rows(inbox, "SELECT event_id, body, headers, pruned_at, verdict FROM deliveries")
    for _, body, headers, pruned_at, verdict in found:
        assert (pruned_at is not None) == (headers == "")
        assert (body is None) == (pruned_at is not None or verdict == "duplicate")
    return {row[0] for row in found if row[3] is not None}


UNSETTLED: dict[str, list[Part]] = {
    "disputed": [said("e1", "succeeded", **PAID), said("e2", "disputed", **PAID)],
    "authorized": [said("e1", "authorized", **PAID)],
    "unresolved": [said("e1", "refunded", **PAID)],
    "two bodies": [said("e1", "succeeded", **PAID), said("e1", "declined", **PAID)],
    "paid twice": [said("e1", "succeeded", **PAID, order_money=PRICE),
                   said("e2", "succeeded", **{**PAID, "payment": "q"}, order_money=PRICE)],
    "another's payment": [said("e1", "succeeded", **PAID),
                          said("e2", "pending", **{**PAID, "order": "B"})],
    "another's claim": [
        said("e1", "declined", **PAID),
        said("e2", "declined", **{**PAID, "order": "B"}),
    ],
    "no order": [said("e1", "succeeded", payment="p", money=PRICE)],
    "a source of which nothing is known": [said("e1", "declined", **PAID, source="other")],
}  # fmt: skip


class RetentionContract:
    """Pruning. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_only_bodies_and_headers_of_settled_orders_go(self, inbox: Inbox) -> None:
        paid, declined = said("e1", "succeeded", **PAID), said("e2", "declined", **PAID)
        await deliver(inbox, [paid, declined, paid, session_opened("A", "s")])
        await keep(inbox, arrival(None), rejection())
        await keep(inbox, arrival(said("e9", "declined", order="N"), at=LATER - 60))
        await refold_until_quiet(context(inbox, at=LATER), limit=100, progress=quiet)
        gone = ["body", "headers", "pruned_at"]
        before = await dump(inbox, *TRUTH, "ledgers", "order_due", leave_out=gone)
        known = await histories(inbox, ["A"])
        would = await pruned(inbox, dry_run=True)
        assert await emptied(inbox) == set()
        did = await pruned(inbox)
        assert await emptied(inbox) == {"e1", "e2"}
        assert would.document() == did.document()
        assert (did.orders, did.deliveries, did.others["rejections"]) == (1, 3, 1)
        assert did.size == sum(len("webhook-id: x") for _ in range(3)) + 2 * 64
        assert await dump(inbox, *TRUTH, "ledgers", "order_due", leave_out=gone) == before
        assert await histories(inbox, ["A"]) == known
        assert await rows(inbox, "SELECT count(*) FROM rejections") == [(0,)]
        assert (await pruned(inbox)).document()["deliveries"] == 0

    async def test_what_was_deleted_is_in_the_trail_however_the_pass_ended(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def failing(*_: Any, **__: Any) -> AsyncIterator[tuple[str, int]]:
            raise StoreUnavailable("the disk")
            yield  # type: ignore[unreachable] # by which it is a generator

        await keep(inbox, arrival(said("e1", "succeeded", **PAID)))
        then = context(inbox, at=LATER)
        await refold_until_quiet(then, limit=100, progress=quiet)
        monkeypatch.setattr("app.privacy.prune.prune_others", failing)
        with pytest.raises(StoreUnavailable):
            await prune.prune_by_hand(
                then, RETENTION, by="ann", signer=SIGNER, keep=0, progress=quiet
            )
        assert await emptied(inbox) == {"e1"}
        (entry,) = await fetch(inbox, audit_entries, limit=9)
        assert (entry.who, entry.action, entry.facts) == ("ann", "pruned", {"bodies": 1})

    @pytest.mark.alike
    async def test_nothing_is_pruned_until_a_month_has_passed(self, inbox: Inbox) -> None:
        event = said("e1", "declined", **PAID)
        await keep(inbox, arrival(event))
        await keep(inbox, arrival(event, at=5 * DAY // SECOND))
        last = 35 * DAY // SECOND
        assert (await pruned(inbox, at=last - 1)).orders == 0
        assert (await pruned(inbox, at=last)).orders == 1

    @pytest.mark.alike
    @pytest.mark.parametrize("kind", UNSETTLED)
    async def test_what_is_not_settled_is_kept(self, inbox: Inbox, kind: str) -> None:
        await deliver(inbox, UNSETTLED[kind])
        assert (await pruned(inbox)).orders == 0
        assert await emptied(inbox) == set()

    @pytest.mark.alike
    async def test_whom_statements_paid_is_forgotten_with_the_numbers_of_orders(
        self, inbox: Inbox
    ) -> None:
        notes = [
            recipient_note(bytes([n]) * 16, f"UJ{n}", T + LATER * SECOND - n * MONTH)
            for n in (0, 1)
        ]
        async with inbox.database.writing() as connection:
            await run(connection, write_phone_notes, notes)
        await pruned(inbox)
        assert await rows(inbox, "SELECT thing FROM phones") == [("stm:UJ0",)]

    @pytest.mark.alike
    async def test_events_of_no_order_and_no_payment_go_a_month_after_they_arrived(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What may be about a payment stays, and so do unknown kinds."""
        monkeypatch.setattr("app.privacy.prune.PRUNED_AT_ONCE", 2)
        news = [said(f"n{n}", "ignored") for n in range(5)]
        await deliver(inbox, [*news, news[0], said("u1", "unrecognized"), said("p1", "pending")])
        await deliver(
            inbox, [said("o1", "ignored", source="other"), said("a1", "ignored", order="A")]
        )
        await deliver(
            inbox, [said("i1", "ignored", payment="i"), said("i2", "ignored", session="i")]
        )
        await keep(inbox, arrival(said("late", "ignored"), at=LATER - 60))
        await keep(inbox, arrival(None))
        for n, event in enumerate((said("phone0", "ignored"), said("phone1", "unrecognized"))):
            await keep(inbox, arrival(event, customer=(bytes([n]) * 40,)))
        would = await pruned(inbox, dry_run=True)
        assert await emptied(inbox) == set()
        did = await pruned(inbox)
        assert await emptied(inbox) == {f"n{n}" for n in range(5)} | {"phone0"}
        assert would.document() == did.document()
        assert (did.orders, did.deliveries, did.document()["of_no_order"]) == (0, 7, 7)
        assert did.size == 7 * len("webhook-id: x") + 6 * 64
        assert await rows(inbox, "SELECT digest FROM phones") == [(bytes([1]) * 40,)]
        assert await keep(inbox, arrival(news[0], at=LATER)) == ["duplicate"]
        report = await check_database(
            with_sources(context(inbox, at=LATER), SOURCES), deep=1, progress=quiet
        )
        assert [each for each in report.problems if not of_the_builders(each)] == []

    @pytest.mark.alike
    async def test_an_event_in_which_a_payment_is_read_now_is_kept(self, inbox: Inbox) -> None:
        await deliver(inbox, [said("n1", "ignored"), said("n2", "ignored")])
        then = context(inbox, at=LATER)
        await seal(inbox)
        pages = [page async for page in prune.settled_orders(then, RETENTION)]
        await change(inbox, "UPDATE events SET claim = 'succeeded' WHERE event_id = 'n1'")

        async def looked(*_: Any, **__: Any) -> AsyncIterator[prune.PrunablePage]:
            for page in pages:
                yield page

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("app.privacy.prune.settled_orders", looked)
            did = await prune.prune_settled(then, RETENTION, keep=10, progress=quiet)
        assert (did.deliveries, await emptied(inbox)) == (1, {"n2"})

    @pytest.mark.alike
    async def test_evidence_after_the_look_keeps_an_orders_bodies(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", "succeeded", **PAID)))
        then = context(inbox, at=LATER)
        await refold_until_quiet(then, limit=100, progress=quiet)
        assert not any([page.settled async for page in prune.settled_orders(then, RETENTION)])
        await seal(inbox)
        pages = [page.settled async for page in prune.settled_orders(then, RETENTION)]
        await keep(inbox, arrival(said("e2", "refunded", **PAID), at=LATER))
        assert [await prune.prune_orders(then, found) for found in pages if found] == [[]]
        assert await emptied(inbox) == set()

    @pytest.mark.alike
    async def test_redeliveries_of_pruned_events_are_judged_as_before(self, inbox: Inbox) -> None:
        paid = said("e1", "succeeded", **PAID)
        await keep(inbox, arrival(paid))
        assert (await pruned(inbox)).orders == 1
        assert await keep(inbox, arrival(paid, at=LATER)) == ["duplicate"]
        other = said("e1", "declined", **PAID)
        assert await keep(inbox, arrival(other, at=LATER)) == ["duplicate_with_different_body"]
        refund = said("e2", "refunded", **PAID, movement="r")
        assert await keep(inbox, arrival(refund, at=LATER)) == ["stored"]
        history = (await histories(inbox, ["A"]))["A"]
        assert len(history.deliveries) == 4

    async def test_reindex_and_refold_lose_nothing_of_a_pruned_order(self, inbox: Inbox) -> None:
        paid = said("e1", "succeeded", **PAID)
        nameless = said("n1", "pending", payment="p")
        await deliver(inbox, [nameless, paid, session_opened("A", "s"), paid])
        assert (await pruned(inbox)).deliveries == 3
        await keep(inbox, arrival(said("e2", "refunded", **PAID, movement="r"), at=LATER))
        then = context(inbox, at=LATER)
        await refold_until_quiet(then, limit=100, progress=quiet)
        before = await dump(inbox, *TRUTH, "ledgers", leave_out=["row"])
        done = await reindex(with_sources(then, SOURCES), progress=quiet)
        assert (done.read, done.events, done.unreadable) == (3, 3, 0)
        await refold_all(then, progress=quiet)
        assert await dump(inbox, *TRUTH, "ledgers", leave_out=["row"]) == before
        report = await checked(then)
        assert [each for each in report.problems if not of_the_builders(each)] == []
        assert (report.bodies, report.pruned) == (1, 2)
        proof = await prove_orders(then, None, shuffles=20, seed=1, progress=quiet)
        assert proof.counter_examples == ()

    async def test_the_check_tells_a_pruned_body_from_a_lost_one(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", "succeeded", **PAID)))
        await pruned(inbox)
        then = context(inbox, at=LATER)
        for sql, words in (
            ("UPDATE deliveries SET pruned_at=NULL", "is gone, but was not pruned"),
            ("UPDATE deliveries SET pruned_at=1", None),
            ("UPDATE events SET claim='succeeding'", "deliveries are not compared, because a row"),
            ("DELETE FROM events", "was pruned, but its event is gone: restore a backup"),
        ):
            await change(inbox, sql)
            report = await checked(then)
            found = [each for each in report.problems if words is not None and words in each]
            assert len(found) == (words is not None), report.problems

    @pytest.mark.alike
    async def test_pages_and_transactions_of_two_rows_count_each_order_once(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("PAGE", "PRUNED_AT_ONCE"):
            monkeypatch.setattr(f"app.privacy.prune.{name}", 2)
        events = [said(f"e{n}", "declined", **{**PAID, "payment": f"p{n}"}) for n in range(7)]
        await deliver(inbox, [*events, *events, said("f", "declined", order="F", payment="f")])
        would = await pruned(inbox, dry_run=True)
        did = await pruned(inbox)
        assert would.document() == did.document()
        assert (did.orders, did.deliveries) == (2, 15)
        assert len(await emptied(inbox)) == 8
