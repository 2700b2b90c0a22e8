"""What the schedule does: once for each due time, delivered whole, reported where it fails."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import SERVICE, note_in_trail, register_operator
from app.config.load import load_settings
from app.context.context import AppContext
from app.core.clock import SetClock
from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.http import outgoing_client
from app.core.schedule import ScheduleEntry, schedule_entries
from app.database.engine import Connection
from app.evidence.keys import write_key
from app.evidence.seal import CheckpointSigner, note_holds, read_checkpoint, seal_all
from app.finance.schedule_process import DIED, STOPPED, Scheduler
from app.finance.scheduled import (
    FIRST_PAUSE,
    LEASE,
    claim,
    claimed_run,
    due_now,
    schedule_document,
)
from app.finance.scheduled_store import KEPT, ScheduledRun, newest_runs
from app.finance.scheduled_work import (
    Delivers,
    FolderWay,
    MailWay,
    ReportParcel,
    Schedule,
    run_claimed,
    run_now,
    schedule_of,
)
from app.monitoring.watchdog import Watched, alarms
from app.sealing.log_store import begin_log
from reconcile.instants import (
    DAY,
    MINUTE,
    NO_TIME,
    Duration,
    Instant,
    format_instant,
    parse_instant,
)
from tests.contexts import with_settings
from tests.database.builders import context as context_of
from tests.database.builders import opened, rows

MONTH, NIGHTLY = schedule_entries(
    "month | 0 6 12 * * | reconcile month csv json folder; nightly | 30 2 * * * | reconcile"
)
NAIROBI = ZoneInfo("Africa/Nairobi")
FIRST_LOOK = parse_instant("2026-11-11T00:00:00Z")
DUE = parse_instant("2026-11-12T03:00:00Z")
"""Six in the morning in Nairobi."""

ALL = parse_instant("2099-01-01T00:00:00Z")

FILES = ["month-2026-10.csv", "month-2026-10.json"]


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        found = context_of(inbox)
        found = with_settings(found, timezone="Africa/Nairobi", merchant="Salt & Sons")
        yield replace(found, clock=SetClock(FIRST_LOOK))


def later(context: AppContext, at: Instant) -> AppContext:
    """The same at another instant."""
    return replace(context, clock=SetClock(at))


def with_folder(folder: Path, *entries: ScheduleEntry) -> Schedule:
    """These entries, delivered into a folder."""
    folder.mkdir(exist_ok=True)
    return Schedule(entries=entries or (MONTH,), ways={"folder": FolderWay(folder=folder)})


async def run_entry(
    context: AppContext, schedule: Schedule, name: str, *, due_at: Instant
) -> ScheduledRun | None:
    """What a worker and its process do of one time; None where another has it, or has done it."""
    claimed = await claim(context, schedule.entry(name), due_at=due_at, asked=False)
    return None if claimed is None else await run_claimed(context, schedule, claimed)


async def delivered(context: AppContext) -> list[str]:
    """Of what the trail says that it was delivered."""
    async with context.database.reading() as connection:
        found = await audit_entries(connection, action="report_delivered", limit=99)
    assert {each.who for each in found} <= {"tallyhook"}
    return [each.subject for each in found]


async def at_due(context: AppContext, after: Duration = NO_TIME) -> AppContext:
    """The context at the due time, or after it, of an entry that has been watched since before."""
    await due_now(context, [MONTH])
    return later(context, Instant(DUE + after))


# --- what is due ----------------------------------------------------------------------------------


async def test_an_entry_is_done_at_its_times_from_when_it_was_first_seen(
    context: AppContext, tmp_path: Path
) -> None:
    schedule = with_folder(tmp_path / "out")
    assert await due_now(context, [MONTH]) == []
    assert await due_now(later(context, Instant(DUE - MINUTE)), [MONTH]) == []
    now = later(context, DUE)
    assert await due_now(now, [MONTH]) == [(MONTH, DUE)]
    done = await run_entry(now, schedule, "month", due_at=DUE)
    assert done is not None
    assert (done.state, done.late, done.reconciled, done.tries) == ("done", False, 1, 1)
    assert await due_now(now, [MONTH]) == []
    assert await run_entry(now, schedule, "month", due_at=DUE) is None
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == FILES
    report = json.loads((tmp_path / "out" / FILES[1]).read_bytes())
    assert report["from"] == "2026-09-30T21:00:00Z"
    assert (report["to"], report["merchant"]) == ("2026-10-31T21:00:00Z", "Salt & Sons")
    assert sorted(await delivered(now)) == FILES


async def test_what_was_missed_is_done_once_and_reported_as_late(
    context: AppContext, tmp_path: Path
) -> None:
    """Down for two months and a half: the newest month is made up, and no other."""
    now = await at_due(context, 75 * DAY)
    ((entry, due_at),) = await due_now(now, [MONTH])
    assert format_instant(due_at) == "2027-01-12T03:00:00Z"
    done = await run_entry(now, with_folder(tmp_path / "out"), entry.name, due_at=due_at)
    assert done is not None
    assert done.late
    assert (tmp_path / "out" / "month-2026-12.json").exists()
    assert await due_now(now, [MONTH]) == []


async def test_an_entry_with_another_time_is_watched_from_then_on(context: AppContext) -> None:
    await due_now(context, [NIGHTLY])
    changed = replace(NIGHTLY, cron="0 1 * * *")
    now = later(context, Instant(FIRST_LOOK + 12 * 60 * MINUTE))
    assert await due_now(now, [changed]) == []
    assert await due_now(later(now, Instant(FIRST_LOOK + DAY)), [changed]) != []


async def test_a_time_of_a_clock_that_was_ahead_holds_no_later_one_up(
    context: AppContext, tmp_path: Path
) -> None:
    """Once the clock is set right, what is due by it is done, whether the entry had been watched
    before or was seen first by the wrong clock; and each time once."""
    schedule = with_folder(tmp_path / "out", MONTH, NIGHTLY)
    assert await due_now(context, [MONTH]) == []
    ahead = later(context, Instant(DUE + 400 * DAY))
    for entry, due_at in await due_now(ahead, [MONTH, NIGHTLY]):
        assert await run_entry(ahead, schedule, entry.name, due_at=due_at) is not None
    now = await at_due(context)
    assert await due_now(now, [MONTH, NIGHTLY]) == [(MONTH, DUE)]
    assert await run_entry(now, schedule, "month", due_at=DUE) is not None
    assert await due_now(now, [MONTH, NIGHTLY]) == []
    found = await due_now(later(context, Instant(DUE + DAY)), [MONTH, NIGHTLY])
    assert [entry for entry, _ in found] == [NIGHTLY]


async def test_of_two_workers_one_does_it(context: AppContext, tmp_path: Path) -> None:
    now, schedule = await at_due(context), with_folder(tmp_path / "out")
    both = await asyncio.gather(*(run_entry(now, schedule, "month", due_at=DUE) for _ in range(2)))
    assert [done.state for done in both if done is not None] == ["done"]
    assert len(await delivered(now)) == 2


async def test_an_entry_that_is_still_done_is_not_begun_again(context: AppContext) -> None:
    """What began late may be at work when its next time comes: that one waits for its end."""
    (hourly,) = schedule_entries("hourly | 0 * * * * | reconcile")
    await due_now(context, [hourly])
    due, hour = Instant(FIRST_LOOK + 60 * MINUTE), 60 * MINUTE
    begun = later(context, Instant(due + 45 * MINUTE))
    assert await due_now(begun, [hourly]) == [(hourly, due)]
    assert await claim(begun, hourly, due_at=due, asked=False) is not None
    assert await due_now(later(context, Instant(due + hour)), [hourly]) == []
    after = later(context, Instant(due + 45 * MINUTE + LEASE))
    assert await due_now(after, [hourly]) == [(hourly, Instant(due + hour))]


async def test_a_day_is_the_merchants(context: AppContext, tmp_path: Path) -> None:
    (daily,) = schedule_entries("daily | 30 0 * * * | day json folder")
    schedule = with_folder(tmp_path / "out", daily)
    await due_now(context, [daily])
    due = parse_instant("2026-11-11T21:30:00Z")
    assert await run_entry(later(context, due), schedule, "daily", due_at=due)
    report = json.loads((tmp_path / "out" / "daily-2026-11-11.json").read_bytes())
    assert (report["from"], report["to"]) == ("2026-11-10T21:00:00Z", "2026-11-11T21:00:00Z")


# --- killed, and failing --------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Dying:
    """Delivers, and dies before anybody can write it down."""

    way: Delivers
    dies: bool = True

    async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
        await self.way.deliver(parcel, files)
        if self.dies:
            raise Killed


async def test_killed_between_delivery_and_note_it_is_delivered_again_and_noted_once(
    context: AppContext, tmp_path: Path
) -> None:
    """Not before the lease has ended, then with the same names, bytes and reconciliation."""
    now, folder = await at_due(context), tmp_path / "out"
    schedule = with_folder(folder)
    dying = Dying(schedule.ways["folder"])
    with pytest.raises(Killed):
        await run_entry(now, replace(schedule, ways={"folder": dying}), "month", due_at=DUE)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert sorted(before) == FILES
    assert await delivered(now) == []
    early = later(now, Instant(DUE + LEASE - MINUTE))
    assert await due_now(early, [MONTH]) == []
    assert await run_entry(early, schedule, "month", due_at=DUE) is None
    again = later(now, Instant(DUE + LEASE))
    assert await due_now(again, [MONTH]) == [(MONTH, DUE)]
    done = await run_entry(again, schedule, "month", due_at=DUE)
    assert done is not None
    assert (done.state, done.tries, done.reconciled, done.late) == ("done", 2, 1, True)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before
    assert sorted(await delivered(again)) == FILES


async def test_who_has_lost_the_lease_writes_nothing_down(
    context: AppContext, tmp_path: Path
) -> None:
    """A process that was suspended for longer than its lease, while another did its work."""
    now, schedule = await at_due(context), with_folder(tmp_path / "out")

    class Suspended:
        async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
            other = later(now, Instant(DUE + LEASE))
            done = await run_entry(other, schedule, "month", due_at=DUE)
            assert done is not None
            assert done.state == "done"

    slow = replace(schedule, ways={"folder": Suspended()})
    await run_entry(now, slow, "month", due_at=DUE)
    async with now.database.reading() as connection:
        kept = (await newest_runs(connection, until=ALL))["month"]
    assert (kept.state, kept.tries) == ("done", 2)
    assert len(await delivered(now)) == 2


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/dev/full").exists(), reason="no /dev/full")
async def test_a_folder_that_takes_nothing_is_an_alarm_until_it_does(
    context: AppContext, tmp_path: Path
) -> None:
    now, folder = await at_due(context), tmp_path / "missing"
    schedule = Schedule(entries=(MONTH,), ways={"folder": FolderWay(folder=folder)})
    failed = await run_entry(now, schedule, "month", due_at=DUE)
    assert failed is not None
    assert failed.state == "failed"
    assert "TALLYHOOK_REPORTS__FOLDER takes no file (No such file" in (failed.problem or "")
    watched = Watched(with_settings(now, schedule="month | 0 6 12 * * | reconcile"))
    alarm = (await alarms(watched))["schedule"]
    assert alarm.sentence.startswith("1 scheduled run came to nothing (month: the folder")
    another = with_settings(now, schedule="another | 0 6 12 * * | reconcile")
    assert "schedule" not in await alarms(Watched(another))
    assert await due_now(later(now, Instant(DUE + FIRST_PAUSE - MINUTE)), [MONTH]) == []
    folder.mkdir()
    again = later(now, Instant(DUE + FIRST_PAUSE))
    assert await due_now(again, [MONTH]) == [(MONTH, DUE)]
    done = await run_entry(again, schedule, "month", due_at=DUE)
    assert done is not None
    assert (done.state, done.problem, done.reconciled) == ("done", None, 1)
    assert "schedule" not in await alarms(watched)


async def test_a_full_folder_holds_no_half_file(
    context: AppContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the month before stays what it is."""
    now, folder = await at_due(context), tmp_path / "out"
    schedule = with_folder(folder)
    (folder / FILES[0]).write_text("earlier")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.core.private_files.os.fsync", full)
    failed = await run_entry(now, schedule, "month", due_at=DUE)
    assert failed is not None
    assert "No space left on device" in (failed.problem or "")
    assert {each.name: each.read_text() for each in folder.iterdir()} == {FILES[0]: "earlier"}


async def test_a_checkpoint_leaves_by_the_same_ways(context: AppContext, tmp_path: Path) -> None:
    """The newest head as of the claim, once; while there is none that is said, and tried again."""
    (entry,) = schedule_entries("log | 0 6 12 * * | checkpoint folder")
    schedule = with_folder(tmp_path / "out", entry)
    await due_now(context, [entry])
    now = later(context, DUE)
    failed = await run_entry(now, schedule, "log", due_at=DUE)
    assert failed is not None
    assert failed.state == "failed"
    assert "nothing is sealed yet" in str(failed.problem)
    signer = CheckpointSigner(
        origin="tallyhook.sandbox/x", key=write_key(tmp_path / "key", secret=b"k" * 32)
    )
    async with now.database.writing() as connection:
        await begin_log(
            connection, origin=signer.origin, public=signer.key.public.raw.hex(), now=DUE
        )
        await register(connection, now)
    await seal_all(now, signer)
    again = later(context, Instant(DUE + FIRST_PAUSE))
    done = await run_entry(again, schedule, "log", due_at=DUE)
    assert done is not None
    assert done.state == "done"
    (first,) = (each.file for each in done.delivered)
    note = (tmp_path / "out" / first).read_text()
    assert note_holds(note, name=signer.origin, public=signer.key.public)
    found = read_checkpoint(note)
    assert first == f"log-checkpoint-2026-11-12-1-{found.head.hex()[:8]}.txt"
    assert await delivered(context) == [first]
    async with again.database.writing() as connection:
        await register(connection, again)
    await seal_all(again, signer)
    more = await run_now(later(context, Instant(DUE + DAY // 2)), schedule, "log", by=None)
    (second,) = (each.file for each in more.delivered)
    assert (tmp_path / "out" / first).read_text() == note  # no later one takes its place
    assert second != first
    left = await rows(context, "SELECT size, head, way FROM log_departures ORDER BY size")
    assert left[0] == (found.size, found.head, "folder")
    assert [way for _, _, way in left] == ["folder"] * 2


async def register(connection: Connection, context: AppContext) -> None:
    """Something that is sealed: an entry of the trail."""
    await note_in_trail(
        connection, SERVICE, action="schedule_run", subject="x", at=context.clock.now()
    )


async def test_a_fault_of_ours_is_reported_without_its_words(
    context: AppContext, tmp_path: Path
) -> None:
    class Faulty:
        async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
            raise RuntimeError("secret 0722000000")

    now = await at_due(context)
    schedule = Schedule(entries=(MONTH,), ways={"folder": Faulty()})
    failed = await run_entry(now, schedule, "month", due_at=DUE)
    assert failed is not None
    assert failed.problem == "a fault of Tallyhook's: its log names the place"


# --- people, settings, the worker -----------------------------------------------------------------


async def test_a_person_has_an_entry_done_and_its_own_time_still_comes(
    context: AppContext, tmp_path: Path
) -> None:
    now, schedule = await at_due(context, -MINUTE), with_folder(tmp_path / "out")
    done = await run_now(now, schedule, "month", by=None)
    assert (done.state, done.asked) == ("done", True)
    assert await due_now(later(now, DUE), [MONTH]) == [(MONTH, DUE)]
    (entry,) = await schedule_document(now, [MONTH])
    assert entry["next"] == format_instant(DUE)
    assert entry["last"]["state"] == "done"
    assert [each["file"] for each in entry["last"]["delivered"]] == FILES
    with pytest.raises(NotFoundError, match="no entry 'weekly'"):
        await run_now(now, schedule, "weekly", by=None)


async def test_who_may_not_reconcile_may_have_no_entry_done(
    context: AppContext, tmp_path: Path
) -> None:
    await register_operator(context, name="Ada", role="admin", by=None)
    await register_operator(context, name="Sam", role="support", by="Ada")
    with pytest.raises(UsageError, match="Sam has the role support; this takes admin or finance"):
        await run_now(context, with_folder(tmp_path / "out"), "month", by="Sam")
    assert await rows(context, "SELECT * FROM scheduled_runs") == []


async def test_the_worker_has_done_what_is_due_and_notes_who_dies(context: AppContext) -> None:
    """Its process ends with an error: failed, and tried after a pause; stopped: tried at once."""
    begun: list[tuple[str, Instant]] = []
    now = await at_due(context)

    async def dies(claimed: ScheduledRun) -> int:
        begun.append((claimed.name, claimed.due_at))
        return 1

    await Scheduler(now, (MONTH,), begin=dies).look()
    assert begun == [("month", DUE)]
    assert await newest(now) == ("failed", DIED, DUE + FIRST_PAUSE)
    await Scheduler(now, (MONTH,), begin=dies).look()
    assert len(begun) == 1
    again = later(now, Instant(DUE + FIRST_PAUSE))
    scheduler: Scheduler

    async def stops(claimed: ScheduledRun) -> int:
        scheduler.stop()
        return -15

    scheduler = Scheduler(again, (MONTH,), begin=stops)
    await scheduler.look()
    assert await newest(again) == ("failed", STOPPED, DUE + FIRST_PAUSE)


async def test_who_is_stopped_leaves_the_work_of_another_alone(
    context: AppContext, tmp_path: Path
) -> None:
    """A try that has taken the work over is neither failed by the one before it, nor begun by that
    one's process."""
    now = await at_due(context)
    over = later(now, Instant(DUE + LEASE))
    scheduler: Scheduler
    others: list[ScheduledRun] = []

    async def stops(claimed: ScheduledRun) -> int:
        taken = await claim(over, MONTH, due_at=DUE, asked=False)
        assert taken is not None
        others.append(taken)
        assert await claimed_run(now, "month", due_at=DUE, tries=claimed.tries) is None
        scheduler.stop()
        return -15

    scheduler = Scheduler(now, (MONTH,), begin=stops)
    await scheduler.look()
    (other,) = others
    assert await claimed_run(over, "month", due_at=DUE, tries=other.tries) == other
    done = await run_claimed(over, with_folder(tmp_path / "out"), other)
    assert done.state == "done"


async def test_rows_of_long_ago_go_with_each_new_time(context: AppContext, tmp_path: Path) -> None:
    schedule = with_folder(tmp_path / "out")
    now = await at_due(context)
    assert await run_entry(now, schedule, "month", due_at=DUE) is not None
    much_later = Instant(DUE + KEPT + 40 * DAY)
    for at in (Instant(DUE + 30 * DAY), much_later):
        assert await run_entry(later(context, at), schedule, "month", due_at=at) is not None
    kept = await rows(context, "SELECT due_at FROM scheduled_runs")
    assert [row[0] for row in kept] == [much_later]


async def test_what_a_person_asked_for_is_not_said_to_be_tried_again(
    context: AppContext, tmp_path: Path
) -> None:
    (entry,) = schedule_entries("log | 0 6 12 * * | checkpoint folder")
    await run_now(context, with_folder(tmp_path / "out", entry), "log", by=None)
    scheduled = with_settings(context, schedule="log | 0 6 12 * * | checkpoint folder")
    raised = await alarms(Watched(scheduled))
    assert "not tried again by itself" in raised["schedule"].sentence


async def newest(context: AppContext) -> tuple[str, str | None, int | None]:
    """State, problem and next try of the newest run."""
    async with context.database.reading() as connection:
        found: ScheduledRun = (await newest_runs(connection, until=ALL))["month"]
    return found.state, found.problem, found.until


async def test_who_is_stopped_is_followed_at_once(context: AppContext) -> None:
    now = await at_due(context)
    scheduler: Scheduler

    async def stops(claimed: ScheduledRun) -> int:
        scheduler.stop()
        return -15

    scheduler = Scheduler(now, (MONTH,), begin=stops)
    await scheduler.look()
    assert await newest(now) == ("failed", STOPPED, DUE)
    assert await due_now(now, [MONTH]) == [(MONTH, DUE)]


SECRET = "whsec_cmVwb3J0cy1zZWNyZXQtb2YtMzAtYnl0ZXMtIQ=="
GIVEN = {
    "TALLYHOOK_ENVIRONMENT": "live",
    "TALLYHOOK_SCHEDULE": "month | 0 6 12 * * | month pdf folder mail post",
    "TALLYHOOK_REPORTS__FOLDER": "/srv/reports",
    "TALLYHOOK_REPORTS__MAIL_SERVER": "smtp.example",
    "TALLYHOOK_REPORTS__MAIL_FROM": "reports@shop.example",
    "TALLYHOOK_REPORTS__MAIL_TO": "cfo@shop.example, finance@shop.example",
    "TALLYHOOK_REPORTS__MAIL_USER": "tallyhook",
    "TALLYHOOK_REPORTS__MAIL_PASSWORD": "hunter2-hunter2",
    "TALLYHOOK_REPORTS__URL": "https://shop.example/reports",
    "TALLYHOOK_REPORTS__SECRET": SECRET,
}


async def test_settings_become_ways_and_their_secrets_are_not_shown(
    context: AppContext,
) -> None:
    client = outgoing_client(timeout_s=5)
    settings = load_settings(GIVEN)
    schedule = schedule_of(replace(context, settings=settings), client)
    assert set(schedule.ways) == {"folder", "mail", "post"}
    mail = schedule.ways["mail"]
    assert isinstance(mail, MailWay)
    assert (mail.server.host, mail.server.port, len(mail.to)) == ("smtp.example", 587, 2)
    assert "hunter2" not in repr(schedule) + repr(settings)
    assert SECRET not in repr(schedule) + repr(settings)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"TALLYHOOK_REPORTS__FOLDER": None}, "TALLYHOOK_SCHEDULE: month: folder is named"),
        ({"TALLYHOOK_REPORTS__MAIL_TO": None}, "MAIL_TO: is missing"),
        ({"TALLYHOOK_REPORTS__MAIL_TO": "nobody"}, "MAIL_TO: must be an address"),
        ({"TALLYHOOK_REPORTS__MAIL_SERVER": "smtp:0"}, "MAIL_SERVER: must be a host"),
        ({"TALLYHOOK_REPORTS__MAIL_PASSWORD": None}, "MAIL_USER: goes with a password"),
        ({"TALLYHOOK_REPORTS__URL": "http://shop.example/"}, "URL: sends reports unencrypted"),
        ({"TALLYHOOK_REPORTS__SECRET": None}, "SECRET: is missing"),
        ({"TALLYHOOK_SCHEDULE": "month | 0 6 * * | reconcile"}, "SCHEDULE: month: the time must"),
        ({"TALLYHOOK_MERCHANT": "x" * 81}, "TALLYHOOK_MERCHANT: must be"),
    ],
)
def test_what_is_missing_or_wrong_stops_the_start(
    changed: dict[str, str | None], said: str
) -> None:
    given = {name: value for name, value in {**GIVEN, **changed}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=said):
        load_settings(given)
