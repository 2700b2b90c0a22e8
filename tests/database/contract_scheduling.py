"""Contract of every database for rows of the schedule: each due time goes to one of several
workers."""

import asyncio
from dataclasses import replace

import pytest

from app.finance import scheduled_store as schedule
from app.receiving.inbox import Inbox
from tests.database.builders import commit
from tests.reconcile.build import seconds

FIRST = schedule.ScheduledRun(
    name="month",
    due_at=seconds(60),
    cron="0 6 12 * *",
    state="running",
    asked=False,
    late=False,
    tries=1,
    as_of=seconds(61),
    until=seconds(99),
)


class SchedulingContract:
    """Rows of the schedule. A subclass gives `url`."""

    async def test_of_several_who_claim_a_time_one_has_it(self, inbox: Inbox) -> None:
        async def claim() -> bool:
            return await commit(inbox, schedule.add_run, FIRST)

        assert sorted(await asyncio.gather(*(claim() for _ in range(4)))) == [
            False,
            False,
            False,
            True,
        ]

    @pytest.mark.alike
    async def test_a_row_comes_back_as_it_was_written(self, inbox: Inbox) -> None:
        done = replace(
            FIRST,
            state="done",
            late=True,
            until=None,
            ended_at=seconds(70),
            reconciled=7,
            delivered=(schedule.Delivered(way="mail", file="é.pdf", sha256="ab"),),
        )
        async with inbox.database.writing() as connection:
            await schedule.add_run(connection, FIRST)
            assert await schedule.change_run(connection, done, before=FIRST)
            assert await schedule.run_at(connection, "month", FIRST.due_at) == done
            assert await schedule.run_at(connection, "month", seconds(61)) is None

    async def test_who_has_lost_the_lease_changes_nothing(self, inbox: Inbox) -> None:
        again = replace(FIRST, tries=2, until=seconds(200))
        async with inbox.database.writing() as connection:
            await schedule.add_run(connection, FIRST)
            assert await schedule.change_run(connection, again, before=FIRST)
            late = replace(FIRST, state="done")
            assert not await schedule.change_run(connection, late, before=FIRST)
            assert await schedule.run_at(connection, "month", FIRST.due_at) == again

    async def test_the_newest_is_by_entry_and_a_persons_asking_is_apart(self, inbox: Inbox) -> None:
        seen = replace(FIRST, due_at=seconds(1), state="seen")
        failed = replace(FIRST, state="failed", problem="no room")
        asked = replace(FIRST, due_at=seconds(80), asked=True, state="done")
        other = replace(seen, name="other", due_at=seconds(90))
        async with inbox.database.writing() as connection:
            for run in (seen, failed, asked, other):
                assert await schedule.add_run(connection, run)
            assert await schedule.newest_runs(connection, until=seconds(99)) == {
                "month": failed,
                "other": other,
            }
            assert await schedule.last_runs(connection, ["month", "other"]) == {"month": asked}
            assert await schedule.failed_runs(connection, ["month"]) == []
            assert await schedule.waiting_runs(connection, ["month", "other"]) == []
            waiting = replace(asked, state="waiting", until=seconds(85), waits_since=seconds(81))
            assert await schedule.change_run(connection, waiting, before=asked)
            assert await schedule.waiting_runs(connection, ["month", "other"]) == [waiting]
            assert await schedule.change_run(connection, asked, before=waiting)
            await schedule.forget_runs(connection, before=seconds(89))
            assert await schedule.newest_runs(connection, until=seconds(99)) == {
                "month": failed,
                "other": other,
            }
            assert await schedule.run_at(connection, "month", seen.due_at) is None
        async with inbox.database.writing() as connection:
            await schedule.change_run(connection, replace(asked, state="failed"), before=asked)
            assert [run.due_at for run in await schedule.failed_runs(connection, ["month"])] == [
                seconds(80)
            ]
            assert await schedule.failed_runs(connection, []) == []
