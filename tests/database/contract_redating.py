"""Contract of every database for things that were dated by a clock that was ahead."""

import pytest

from app.access.operator_store import AuditEntry, Operator, add_entry, add_operator
from app.access.proposal import Proposal
from app.access.proposal_store import (
    add_proposal,
    proposal_of,
    waiting_proposals,
)
from app.access.session_store import (
    SignInLink,
    add_link,
    add_session,
    invited,
    sessions_by_name,
)
from app.core.ids import new_id
from app.database.statements import run
from app.evidence.attachment_store import counted_entries
from app.orders.clock_correction import ClockState, put_right
from app.orders.clock_correction_store import ClockCorrection, last_correction, newest_ahead
from app.orders.history_store import histories_of
from app.orders.hold_store import holds_of
from app.orders.index_store import drop_index
from app.orders.ledger_store import WITHOUT_HISTORY, revisions_of_order
from app.orders.read_orders import spoken_of
from app.orders.record_store import add_records, hold_record, order_records
from app.orders.refold import refold_until_quiet
from app.orders.unallocated_store import unplaced_keys
from app.receiving.inbox import Inbox
from app.receiving.refusal_store import Rejection, RejectionRing, kept_rejections
from reconcile.instants import TICK, Instant
from reconcile.ledger.events import Event
from tests.database.builders import arrival, context, fetch, keep, said
from tests.database.contract_ledgers import paid, revisions
from tests.reconcile.build import seconds

AHEAD, RIGHT = 86_400, 600
"""Seconds after T: what the clock showed, and when it was put right."""

SEEN = ClockCorrection(None, seconds(RIGHT), seconds(AHEAD))
"""Correction of the clock as a process sees it that runs meanwhile."""


async def receive(inbox: Inbox, event: Event, *, at: int) -> None:
    """Keep a delivery with an id of its instant."""
    await keep(inbox, arrival(event, at=at, delivery_id=new_id("dlv_", seconds(at))))


async def fold(inbox: Inbox, *, at: int) -> None:
    await refold_until_quiet(context(inbox, at=at), limit=10, progress=lambda _: None)


class RedatingContract:
    """Things dated by a clock that was ahead. A subclass gives `url`."""

    async def test_what_a_clock_that_was_ahead_dated_counts_from_its_correction(
        self, inbox: Inbox
    ) -> None:
        """Also of payments of no order; and what was published by it is known by then."""
        await receive(inbox, said("begun", order="A"), at=1)
        await fold(inbox, at=1)
        for event in (paid("B"), paid("B"), said("orphan", "succeeded", payment="p")):
            await receive(inbox, event, at=AHEAD)
        await fold(inbox, at=AHEAD)
        assert await put_right(context(inbox, at=RIGHT)) is ClockState.RIGHT
        assert await fetch(inbox, run, newest_ahead, seconds(RIGHT)) == seconds(RIGHT)
        noted = await fetch(inbox, run, last_correction)
        assert noted == (seconds(1), seconds(RIGHT), seconds(AHEAD))
        await fold(inbox, at=RIGHT + 1)
        outcomes = [(each.order, each.outcome) for each in await revisions(inbox)]
        assert outcomes[-2:] == [("A", "pending"), ("B", "succeeded")]
        async with inbox.database.reading() as connection:
            known = await revisions_of_order(connection, "A", until=seconds(RIGHT + 1), limit=9)
        assert [each.outcome for each in known] == ["pending", "timed_out", "pending"]

    @pytest.mark.alike
    async def test_what_was_only_redated_places_nothing(self, inbox: Inbox) -> None:
        """Neither a refund of no payment that names an order, nor the ledger of an order whose
        evidence is read differently now."""
        alone = said("e1", "refunded", order="71", payment="R1", standalone=True)
        for event in (alone, paid("B")):
            await receive(inbox, event, at=AHEAD)
        await fold(inbox, at=AHEAD)
        assert await put_right(context(inbox, at=RIGHT)) is ClockState.RIGHT
        keys = await fetch(inbox, run, unplaced_keys, source=None, after=0, limit=9)
        assert [key for key, _ in keys] == [("shop", "R1")]
        history = (await fetch(inbox, run, histories_of, ["71"]))["71"]
        assert [each.kind for each in history.records] == ["redated"]
        assert not spoken_of(history)
        await fold(inbox, at=RIGHT + 1)
        async with inbox.database.writing() as connection:
            await drop_index(connection, now=seconds(RIGHT + 1))
            rows = await connection.exec_driver_sql(WITHOUT_HISTORY)
            assert "B" in [each[0] for each in rows]

    @pytest.mark.alike
    async def test_a_hold_of_that_time_is_released_by_a_later_record(self, inbox: Inbox) -> None:
        """By when they count, not by the instants that were stored."""
        held = hold_record(
            "A", "held", at=seconds(AHEAD), record_id=new_id("rec_", seconds(AHEAD)),
            reason="unreadable_delivery",
        )  # fmt: skip
        async with inbox.database.writing() as connection:
            await add_records(connection, [held])
        await put_right(context(inbox, at=RIGHT), seen=SEEN)
        (hold,) = await fetch(inbox, holds_of, ["A"])
        assert hold.since == seconds(RIGHT)
        released = hold_record(
            "A", "released", at=Instant(hold.since + TICK),
            record_id=new_id("rec_", seconds(RIGHT)), reason="unreadable_delivery",
        )  # fmt: skip
        async with inbox.database.writing() as connection:
            await add_records(connection, [released])
        assert await fetch(inbox, holds_of, ["A"]) == []
        known = await fetch(inbox, run, order_records, "A")
        assert [each.kind for each in known if each.kind != "redated"] == ["held", "released"]

    async def test_refused_deliveries_of_that_time_arrived_when_it_was_corrected(
        self, inbox: Inbox
    ) -> None:
        """Though nothing else was stored meanwhile; those of before stay as they are."""
        ring = RejectionRing(max_count=9, max_bytes=9_999)
        refused = [
            Rejection(
                delivery_id=new_id("dlv_", seconds(at)), received_at=seconds(at), source="shop",
                verdict="timestamp_too_old", digest="0" * 64, size=1, headers="", body=b"x",
                problem="It is old.",
            )
            for at in (1, RIGHT, AHEAD, AHEAD + 1)
        ]  # fmt: skip
        async with inbox.database.writing() as connection:
            await run(connection, ring.append, refused)
        assert await fetch(inbox, run, newest_ahead, seconds(RIGHT)) == seconds(AHEAD + 1)
        assert await put_right(context(inbox, at=RIGHT), seen=SEEN) is ClockState.RIGHT
        assert await fetch(inbox, run, newest_ahead, seconds(RIGHT)) == seconds(RIGHT)
        async with inbox.database.reading() as connection:
            kept = await kept_rejections(connection, after="", at_once=9)
        assert [each.received_at for each in kept] == [seconds(1), *[seconds(RIGHT)] * 3]

    @pytest.mark.alike
    async def test_a_file_attached_in_that_time_was_attached_when_it_was_corrected(
        self, inbox: Inbox
    ) -> None:
        entry = AuditEntry(
            at=seconds(AHEAD), who="ann", role="support", action="attached", subject="att_1",
            facts={"attachment": "att_1"}, order="A",
        )  # fmt: skip
        async with inbox.database.writing() as connection:
            await add_entry(connection, entry)
        await put_right(context(inbox, at=RIGHT), seen=SEEN)
        async with inbox.database.reading() as connection:
            for at, count in ((RIGHT - 1, 0), (RIGHT, 1)):
                entries = await counted_entries(connection, "A", until=seconds(at))
                assert len(entries) == count

    @pytest.mark.parametrize(("leapt", "at"), [(None, AHEAD), (1, RIGHT)])
    async def test_what_would_last_longer_by_that_time_ends_at_its_correction(
        self, inbox: Inbox, leapt: int | None, at: int
    ) -> None:
        """Where the clock was seen to go ahead, also what it dated earlier than now."""
        ahead, until = seconds(AHEAD), seconds(9 * AHEAD)
        async with inbox.database.writing() as connection:
            for name, made in (("ann", seconds(at)), ("bob", seconds(0))):
                await add_operator(
                    connection, Operator(name=name, role="finance", created_at=seconds(0))
                )
                proposal = Proposal(
                    id=name, kind="k", subject=name, sentence="Do it.", subject_state="", who=name,
                    role="finance", reason="r", at=made, until=until,
                )  # fmt: skip
                await add_proposal(connection, proposal)
                link = SignInLink(kind="invite", name=name, until=until, totp=None)
                await add_link(connection, link, token=name, now=made)
                await add_session(connection, token=name, name=name, now=made, until=until)
            entry = AuditEntry(at=ahead, who="ann", role="finance", action="proposed", subject="p")
            await add_entry(connection, entry)
        since = None if leapt is None else seconds(leapt)
        seen = ClockCorrection(since, seconds(RIGHT), ahead)
        await put_right(context(inbox, at=RIGHT), seen=seen)
        now = seconds(AHEAD + 1)
        async with inbox.database.reading() as connection:
            assert [each.id for each in await waiting_proposals(connection, now=now)] == ["bob"]
            found = await proposal_of(connection, "ann")
            assert found is not None
            assert found.decided is not None
            assert (found.decided.decision, found.decided.at) == ("withdrawn", seconds(RIGHT))
            assert await invited(connection, now=now) == {"bob"}
            lasting = await sessions_by_name(connection, now=now, used_after=seconds(-1))
            assert set(lasting) == {"bob"}
