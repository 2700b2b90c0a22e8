"""Contract of every database for the figures of the watchdog and of the checklist."""

import os
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.access.operators import register_operator
from app.core.ids import first_id, new_id
from app.core.reading import TRIED
from app.database.facts import database_facts
from app.database.gaps import Gap, accepted_gaps, add_gap
from app.golive.signoff_store import Signoff, add_signoff, signoffs
from app.monitoring import monitoring_store as watch
from app.monitoring import work_notice_store as notices
from app.orders.counter_store import finding_counts
from app.orders.record_store import add_records
from app.providers.request import FETCHED
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, HOUR, MINUTE, TICK, Instant
from reconcile.ledger.records import Record, RecordKind
from tests.database.builders import arrival, change, commit, context, fetch, keep, plan_of, said
from tests.database.contract_ledgers import folded
from tests.reconcile.build import T, seconds

CODES = ("same_id_different_body", "paid_twice")


class WatchingContract:
    """Queries of the watchdog and the checklist. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_deliveries_of_a_stretch_exclude_its_end(self, inbox: Inbox) -> None:
        assert await fetch(inbox, watch.last_delivery) is None
        for at in range(5):
            await keep(
                inbox,
                arrival(said(f"e{at}"), at=at, delivery_id=new_id("dlv_", seconds(at))),
            )
        async with inbox.database.reading() as connection:
            assert await watch.last_delivery(connection) == seconds(4)
            assert await watch.last_delivery(connection, seconds(2)) == seconds(4)
            for start, end, enough, count in (
                (1, 4, 9, 3),
                (0, 99, 9, 5),
                (0, 99, 2, 2),
                (5, 9, 9, 0),
            ):
                found = await watch.deliveries_between(
                    connection, seconds(start), seconds(end), enough=enough
                )
                assert found == count

    async def test_rates_of_arrivals_count_every_source_up_to_now(self, inbox: Inbox) -> None:
        """Deliveries that a fast clock dated ahead count on no earlier day."""
        minute, day = T // MINUTE, T // DAY
        async with inbox.database.reading() as connection:
            assert await watch.arrival_rates(connection, now=T) == watch.ArrivalRates()
        for number, at in enumerate((-9 * 86_400, -86_400, -86_399, 0, 1, 2 * 86_400)):
            source = "shop" if number % 2 else "other"
            await keep(inbox, arrival(said(f"e{number}", source=source), at=at, source=source))
        async with inbox.database.reading() as connection:
            rates = await watch.arrival_rates(connection, now=T)
        assert rates == watch.ArrivalRates(
            daily=4 / 7, days=7, busiest_day=2, day=day, busiest_minute=2, minute=minute
        )
        async with inbox.database.reading() as connection:
            early = await watch.arrival_rates(connection, now=Instant(T - 9 * DAY + HOUR))
        assert (early.daily, early.days, early.busiest_day, early.day) == (1, 1, 1, day - 9)

    async def test_stored_deliveries_and_their_space_are_known_without_a_scan(
        self, inbox: Inbox
    ) -> None:
        async def stored() -> watch.Stored:
            async with inbox.database.reading() as connection:
                if connection.dialect.name == "postgresql":  # it counts when it analyzes
                    await connection.execute(text("ANALYZE deliveries"))
                return await watch.stored_deliveries(connection)

        before = await stored()
        for number in range(3):
            padded = arrival(said(f"e{number}"), body=os.urandom(40_000))
            await keep(inbox, padded)
        after = await stored()
        assert (before.deliveries, after.deliveries) == (0, 3)
        assert 120_000 <= after.size - before.size < 1_000_000

    @pytest.mark.alike
    async def test_unreadable_deliveries_are_counted_by_source(self, inbox: Inbox) -> None:
        """The latest of them, where only so many are asked for."""
        for at, source in enumerate(("shop", "shop", "other", "shop")):
            name = new_id("dlv_", seconds(at))
            await keep(inbox, arrival(None, at=at, delivery_id=name, source=source))
        await keep(inbox, arrival(said("e1"), at=9, delivery_id=new_id("dlv_", seconds(9))))
        async with inbox.database.reading() as connection:
            for start, enough, found in (
                (0, 9, {"shop": 3, "other": 1}),
                (1, 9, {"shop": 2, "other": 1}),
                (0, 2, {"shop": 1, "other": 1}),
                (4, 9, {}),
            ):
                counted = await watch.unreadable_since(
                    connection, seconds(start), unvouched=(), enough=enough
                )
                assert counted == found

    @pytest.mark.alike
    async def test_what_anybody_can_send_is_not_counted_among_unreadable_messages(
        self, inbox: Inbox
    ) -> None:
        """An unreadable answer of its provider is, and so is a message of another source."""
        for at, source in enumerate(("till", "till", "shop")):
            await keep(
                inbox,
                arrival(
                    None,
                    at=at,
                    delivery_id=new_id("dlv_", seconds(at)),
                    source=source,
                    headers=f"{FETCHED}: /v1" if at == 1 else "",
                ),
            )
        async with inbox.database.reading() as connection:
            for unvouched, found in (
                ((), {"till": 2, "shop": 1}),
                (("till",), {"till": 1, "shop": 1}),
            ):
                counted = await watch.unreadable_since(
                    connection, seconds(0), unvouched=unvouched, enough=9
                )
                assert counted == found

    async def test_unreadable_deliveries_are_found_by_their_index(self, inbox: Inbox) -> None:
        values = {"start": first_id("dlv_", T), "tried": TRIED, "answers": "", "enough": 9}
        asked = watch.UNREADABLE.replace(":unvouched", "('till')")
        assert "ix_deliveries_unreadable" in await plan_of(inbox, asked, values)

    @pytest.mark.alike
    async def test_successes_among_the_last_deliveries_come_once_each(self, inbox: Inbox) -> None:
        events = [
            said("e0", "succeeded", order="A", payment="p0"),
            said("e1", "succeeded", payment="p1"),
            said("e2", "declined", payment="p2"),
            said("e3", "succeeded", session="s3"),
            said("e4", "succeeded"),
        ]
        for at, event in enumerate((*events, events[1])):
            name = new_id("dlv_", seconds(at))
            await keep(inbox, arrival(event, at=at, delivery_id=name))
        wanted = [
            ("e4", seconds(4), False), ("s3", seconds(3), False),
            ("p1", seconds(1), False), ("p0", seconds(0), True),
        ]  # fmt: skip
        async with inbox.database.reading() as connection:
            for until, looked_at, found in ((9, 9, wanted), (9, 3, wanted[:2]), (4, 9, wanted[1:])):
                rows = await watch.paid_until(connection, seconds(until), looked_at=looked_at)
                assert [(row[1], *row[3:]) for row in rows] == found
                assert {row[0] for row in rows} == {"shop"}
            assert await watch.tied_since(connection, seconds(0), looked_at=5) == {"shop"}
            assert await watch.tied_since(connection, seconds(1), looked_at=5) == set()
            assert await watch.tied_since(connection, seconds(0), looked_at=4) == set()

    @pytest.mark.alike
    async def test_the_first_sessions_after_an_instant_are_found(self, inbox: Inbox) -> None:
        kinds: tuple[RecordKind, ...] = (
            "session_opened",
            "session_opened",
            "order_canceled",
            "session_opened",
        )
        records = [
            Record(
                record_id=new_id("rec_", seconds(at)), recorded_at=seconds(at), kind=kind,
                order="A", at=seconds(at), session="cs" if kind == "session_opened" else None,
                source="shop" if kind == "session_opened" else None,
            )
            for at, kind in enumerate(kinds)
        ]  # fmt: skip
        await commit(inbox, add_records, records)
        async with inbox.database.reading() as connection:
            assert await watch.sessions_since(connection, T, enough=9) == [seconds(1), seconds(3)]
            assert await watch.sessions_since(connection, T - TICK, enough=2) == [T, seconds(1)]

    @pytest.mark.alike
    async def test_orders_are_counted_by_the_whole_code_of_a_finding(self, inbox: Inbox) -> None:
        for order in ("A", "B"):
            for claim in ("succeeded", "declined"):
                await keep(inbox, arrival(said(f"e-{order}", claim, order=order, payment=order)))
        await folded(context(inbox, at=1))
        found = await fetch(inbox, finding_counts, CODES)
        assert found == {"same_id_different_body": 2, "paid_twice": 0}

    async def test_statements_of_the_checklist_are_append_only_in_order(self, inbox: Inbox) -> None:
        said_ = [
            Signoff(item=item, state="passed", at=T, signer=signer, note="ö\n")
            for item, signer in (("rollback", "Ann"), ("rehearsal", "Ben"), ("rollback", "Ann"))
        ]
        for each in said_:
            await commit(inbox, add_signoff, each)
        assert await fetch(inbox, signoffs) == said_

    async def test_accepted_gaps_are_only_added_and_read_back(self, inbox: Inbox) -> None:
        gaps = [
            Gap(
                id=f"gap_{number}",
                kind="database",
                since=T,
                until=seconds(3),
                deliveries=lost,
                detail="The newest commits are missing.",
                accepted_at=seconds(9),
                accepted_by="Ann",
                reason="ö\n",
            )
            for number, lost in enumerate((None, 99))
        ]
        for gap in gaps:
            await inbox.database.writer.commit(add_gap, gap)
        for change_ in ("UPDATE gaps SET deliveries=0", "DELETE FROM gaps"):
            with pytest.raises(DBAPIError, match="only added"):
                await change(inbox, change_)
        assert await inbox.database.on_snapshot(accepted_gaps) == gaps

    async def test_a_sound_database_has_nothing_switched_off(self, inbox: Inbox) -> None:
        facts = await fetch(inbox, database_facts)
        assert facts.version > (3, 0)
        assert (facts.off, facts.standbys) == ((), ())
        assert facts.journal_mode == ("wal" if facts.kind == "SQLite" else None)

    async def test_a_message_about_an_alarm_is_claimed_and_sent_once(self, inbox: Inbox) -> None:
        """It is over when the alarm is not seen any more."""
        async with inbox.database.writing() as connection:
            assert not await watch.any_lasts(connection)
            for way in ("mail", "post"):
                message = watch.AlarmMessage(
                    alarm="held",
                    way=way,
                    reason="orders_held",
                    sentence="1 order is held.",
                    raised_at=T,
                    seen_at=T,
                    due_at=T,
                )
                await watch.put_seen(connection, message)
            mail, post = await watch.messages_due(connection, T)
            assert await watch.claim_message(connection, mail, until=seconds(9))
            assert not await watch.claim_message(connection, mail, until=seconds(9))
            assert await watch.messages_due(connection, T) == [post]
            await watch.put_notified(connection, mail, now=seconds(1))
            await watch.put_failed(connection, post, again_at=seconds(7))
            await watch.put_seen(
                connection, replace(mail, seen_at=seconds(5), raised_at=seconds(5))
            )
            await watch.put_over(connection, unseen_since=seconds(3), now=seconds(6))
            assert await watch.messages_due(connection, seconds(6)) == []
            assert await watch.any_lasts(connection)
            await watch.put_over(connection, unseen_since=seconds(6), now=seconds(7))
            assert not await watch.any_lasts(connection)
            mail, post = await watch.messages_due(connection, seconds(7))
            assert (mail.raised_at, mail.told_at, mail.over_at) == (T, seconds(1), seconds(7))
            assert (post.told_at, post.over_at) == (None, seconds(6))
            await watch.put_seen(connection, replace(post, seen_at=seconds(8)))
            for each in (mail, post):
                await watch.delete_message(connection, each)
            assert [each.way for each in await watch.messages_due(connection, seconds(8))] == [
                "post"
            ]

    @pytest.mark.alike
    async def test_a_clock_that_was_ahead_holds_no_notice_back(self, inbox: Inbox) -> None:
        """An alarm that it saw, and that is not seen now, is over; what it put off is due."""
        ahead = seconds(86_400)
        async with inbox.database.writing() as connection:
            message = watch.AlarmMessage(
                alarm="held", way="mail", reason="orders_held", sentence="1 order is held.",
                raised_at=ahead, seen_at=ahead, due_at=ahead,
            )  # fmt: skip
            await watch.put_seen(connection, message)
            assert await watch.messages_due(connection, T) == []
            assert await watch.messages_due(connection, T, beyond=seconds(9)) == [message]
            await watch.put_over(connection, unseen_since=T, now=seconds(1))
            assert not await watch.any_lasts(connection)
            choice = notices.NoticeChoice(
                operator="ann", pace="daily", way="mail", address="a@b.eu", position=0, due_at=ahead
            )
            await notices.put_choice(connection, choice)
            assert await notices.choices_due(connection, T) == []
            assert await notices.choices_due(connection, T, beyond=seconds(9)) == [choice]

    async def test_a_notice_of_work_is_claimed_once_and_not_after_another_choice(
        self, inbox: Inbox
    ) -> None:
        at = context(inbox)
        await register_operator(at, name="ann", role="admin", by=None)
        choice = notices.NoticeChoice(
            operator="ann", pace="daily", way="mail", address="a@b.eu", position=0, due_at=T
        )
        async with inbox.database.writing() as connection:
            assert await notices.newest_entry(connection) == 1
            assert list(await notices.work_entries(connection, after=0, limit=9)) == []
            await notices.put_choice(connection, choice)
            assert await notices.choices_due(connection, T) == [choice]
            assert await notices.claim_choice(connection, choice, until=seconds(9))
            assert not await notices.claim_choice(connection, choice, until=seconds(9))
            assert await notices.choices_due(connection, T) == []
            await notices.put_looked(connection, choice, position=4, due_at=seconds(5), tries=1)
            looked = replace(choice, position=4, due_at=seconds(5), tries=1)
            assert await notices.choice_of(connection, "ann") == looked
            other = replace(looked, way="post", address=None, tries=0)
            await notices.put_choice(connection, other)
            await notices.put_looked(connection, looked, position=8, due_at=seconds(7))
            assert await notices.choice_of(connection, "ann") == other
            await notices.delete_choice(connection, "ann")
            assert await notices.choice_of(connection, "ann") is None
