"""Contract of every database for events that their provider is to be asked about."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.core.ids import new_id
from app.orders.record_store import add_records
from app.receiving import confirmation_store as waiting
from app.receiving.append_store import keep_arrivals
from app.receiving.inbox import Inbox
from reconcile.instants import HOUR, MINUTE
from reconcile.ledger.events import ClaimKind
from tests.database.builders import arrival, commit, keep, opened, rows, said, session_opened
from tests.reconcile.build import T, seconds


async def receive(inbox: Inbox, name: str, *, at: int = 0, **fields: Any) -> None:
    """Keep an unconfirmed event of an order of its own."""
    event = said(name, order=f"O-{name}", standing="unconfirmed", **fields)
    await keep(inbox, arrival(event, at=at))


def asking(*, at: int, source: str = "shop") -> waiting.Asking:
    return waiting.Asking(source=source, now=seconds(at), lease=MINUTE, longest=HOUR)


async def take(
    inbox: Inbox, *, at: int = 0, limit: int = 10, source: str = "shop"
) -> list[waiting.Confirmation]:
    return await commit(inbox, waiting.take_due, asking(at=at, source=source), limit=limit)


def names(taken: list[waiting.Confirmation]) -> list[str]:
    return [each.event.event_id for each in taken]


class ConfirmingContract:
    """Events that wait for their provider's answer. A subclass gives `url`."""

    async def test_a_question_is_taken_once_until_its_lease_ends(self, inbox: Inbox) -> None:
        """The first that came comes first. Said events do not wait."""
        await receive(inbox, "e1", at=1)
        await receive(inbox, "e2", at=2)
        await receive(inbox, "other", at=1, source="till")
        await keep(inbox, arrival(said("signed", order="O"), at=1))
        assert await take(inbox, at=0) == []
        assert names(await take(inbox, at=5, limit=1)) == ["e1"]
        assert names(await take(inbox, at=5)) == ["e2"]
        assert await take(inbox, at=5) == []
        assert names(await take(inbox, at=65)) == ["e1", "e2"]
        assert names(await take(inbox, at=5, source="till")) == ["other"]
        async with inbox.database.reading() as connection:
            assert await waiting.any_due(connection, asking(at=125))
            assert not await waiting.any_due(connection, asking(at=124))
            assert await waiting.asked_count(connection, "shop") == 0

    @pytest.mark.alike
    async def test_a_clock_that_was_ahead_puts_nothing_off(self, inbox: Inbox) -> None:
        """Events dated ahead are asked about at once, and so are questions put off by that
        clock."""
        await receive(inbox, "asked")
        (asked,) = await take(inbox)
        await receive(inbox, "heard", at=71)
        async with inbox.database.writing() as connection:
            await waiting.put_off(connection, asked, until=seconds(10 + 3_600 + 61))
            assert not await waiting.any_due(connection, asking(at=11))
            assert await waiting.any_due(connection, asking(at=10))
        assert names(await take(inbox, at=10)) == ["heard", "asked"]
        assert await take(inbox, at=10) == []

    @pytest.mark.alike
    async def test_the_least_asked_questions_come_first(self, inbox: Inbox) -> None:
        """Questions without success delay no new ones."""
        await receive(inbox, "old")
        (old,) = await take(inbox)
        await commit(inbox, waiting.put_off, old, until=seconds(10))
        await receive(inbox, "new", at=20)
        assert names(await take(inbox, at=30, limit=1)) == ["new"]
        (old,) = await take(inbox, at=30)
        assert (old.event.event_id, old.tries, old.asked_since) == ("old", 1, seconds(0))

    async def test_one_question_about_a_payment_at_a_time_whoever_asks(self, inbox: Inbox) -> None:
        """Also where several ask at once; the next one is free once the answer is there."""
        payment: dict[str, Any] = {"payment": "p1", "session": "s1"}
        for number in range(3):
            await receive(inbox, f"e{number}", **payment)
        await receive(inbox, "e3", session="s1")
        taken = await asyncio.gather(*(take(inbox, at=5, limit=1) for _ in range(4)))
        assert sorted(names([each for some in taken for each in some])) == ["e0", "e3"]
        assert await take(inbox, at=5) == []
        [first] = [each for some in taken for each in some if each.event.event_id == "e0"]
        await receive(inbox, "e0", at=6, **payment)
        assert await take(inbox, at=7) == []  # not even about itself
        await commit(inbox, waiting.put_off, first, until=seconds(60))
        assert names(await take(inbox, at=7)) == ["e1"]
        assert sorted(names(await take(inbox, at=68))) == ["e1", "e3"]  # their askers have died

    @pytest.mark.alike
    async def test_what_was_never_asked_about_is_counted_up_to_a_bound(self, inbox: Inbox) -> None:
        for number in range(3):
            await receive(inbox, f"e{number}")
        await receive(inbox, "other", source="till")
        async with inbox.database.reading() as connection:
            found = [await waiting.unasked(connection, "shop", over=over) for over in (2, 3)]
        assert found == [True, False]
        (taken,) = await take(inbox, limit=1)
        await commit(inbox, waiting.put_off, taken, until=seconds(10))
        async with inbox.database.reading() as connection:
            assert not await waiting.unasked(connection, "shop", over=2)

    async def test_a_redelivered_event_is_neither_settled_nor_put_off(self, inbox: Inbox) -> None:
        """The answer under way may be older than the redelivery."""
        await receive(inbox, "e1")
        (taken,) = await take(inbox)
        await receive(inbox, "e1", at=5)
        async with inbox.database.writing() as connection:
            await waiting.settle(connection, taken)
            await waiting.put_off(connection, taken, until=seconds(500))
        (again,) = await take(inbox, at=5)
        await commit(inbox, waiting.settle, again)
        assert await rows(inbox, "SELECT * FROM confirmations") == []
        await receive(inbox, "e1", at=9)
        assert names(await take(inbox, at=9)) == ["e1"]

    async def test_what_the_shop_names_after_its_callback_is_asked_about_first(
        self, inbox: Inbox
    ) -> None:
        """A few such events of one session, and none of another session or source."""
        for number in range(12):
            await receive(inbox, f"flood{number:02}", session=f"x{number}")
        for number in range(12):
            event = said(f"late{number:02}", standing="unconfirmed", session="cs_1")
            await keep(inbox, arrival(event))
        await receive(inbox, "other", session="cs_1", source="till")
        await commit(inbox, add_records, [replace(session_opened("A", "cs_1"), source="shop")])
        asked = names(await take(inbox, limit=12))
        assert [name[:4] for name in asked] == ["late"] * 10 + ["floo"] * 2

    async def test_references_that_our_side_named_are_read_with_their_source(
        self, inbox: Inbox
    ) -> None:
        opened = replace(session_opened("A", "cs_1", record_id=new_id("rec_", T)), source="till")
        await commit(inbox, add_records, [opened])
        async with inbox.database.reading() as connection:
            for sources, since, found in (
                (["till"], 0, [("till", "cs_1")]),
                (["shop"], 0, []),
                (["till"], 1, []),
            ):
                assert found == await waiting.named_references(
                    connection, sources, since=seconds(since), limit=9
                )

    @pytest.mark.alike
    async def test_ignored_kinds_are_not_asked_about(self, inbox: Inbox) -> None:
        """Neither on arrival nor after the index was rebuilt."""
        await receive(inbox, "noise", claim="ignored")
        assert await take(inbox) == []
        await commit(inbox, waiting.await_again, now=seconds(1), not_known="not_found")
        assert await take(inbox, at=2) == []

    @pytest.mark.alike
    async def test_an_event_twice_in_a_batch_is_one_question(self, inbox: Inbox) -> None:
        event = said("e1", order="O", standing="unconfirmed")
        assert await keep(inbox, arrival(event), arrival(event, at=1)) == ["stored", "duplicate"]
        assert names(await take(inbox, at=9)) == ["e1"]

    async def test_of_too_many_questions_the_most_asked_go(self, inbox: Inbox) -> None:
        """Those of other sources, and those never asked, stay."""
        for number in range(6):
            await receive(inbox, f"e{number}", at=number)
        await receive(inbox, "other", source="till")
        for number, each in enumerate((await take(inbox, at=9))[:4]):
            await commit(inbox, waiting.put_off, each, until=seconds(10 + number))
        async with inbox.database.writing() as connection:
            assert await waiting.drop_most_asked(connection, "shop", keep=1) == 3
            assert await waiting.drop_most_asked(connection, "shop", keep=1) == 0
        left = await rows(inbox, "SELECT event_id FROM confirmations ORDER BY event_id")
        assert [row[0] for row in left] == ["e0", "e4", "e5", "other"]

    @pytest.mark.alike
    async def test_after_a_rebuild_events_without_a_final_answer_wait(self, inbox: Inbox) -> None:
        """A final answer covers what its order and source said before."""
        for name in ("final", "denied", "open", "later"):
            await receive(inbox, name, at=20 if name == "later" else 0)
        answers: tuple[tuple[str, ClaimKind, str], ...] = (
            ("final", "succeeded", "paid"),
            ("denied", "pending", "not_found"),
            ("open", "pending", "still_open"),
            ("later", "succeeded", "paid"),
        )
        for name, claim, kind in answers:
            answer = said(f"a-{name}", claim, order=f"O-{name}", standing="fetched", kind=kind)
            await keep(inbox, arrival(answer, at=10))
        async with inbox.database.writing() as connection:
            for each in await waiting.take_due(connection, asking(at=30), limit=9):
                await waiting.settle(connection, each)
        await commit(inbox, waiting.await_again, now=seconds(40), not_known="not_found")
        assert sorted(names(await take(inbox, at=40))) == ["later", "open"]

    @pytest.mark.alike
    async def test_a_command_that_keeps_arrivals_notes_questions_too(self, url: str) -> None:
        async with opened(url) as inbox:
            event = said("e1", order="O", standing="unconfirmed")
            await commit(inbox, keep_arrivals, [arrival(event)])
            assert names(await take(inbox, at=1)) == ["e1"]
