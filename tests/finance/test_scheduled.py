"""The schedule: one run for each due time, whole deliveries, and reported failures."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
from app.evidence.keys import write_key
from app.evidence.seal import CheckpointSigner, note_holds, read_checkpoint, seal_all
from app.finance.schedule_process import DIED, STOPPED, Scheduler
from app.finance.scheduled import (
    FIRST_PAUSE,
    LEASE,
    WAITING_PAUSE,
    claim,
    claimed_run,
    due_now,
    schedule_document,
)
from app.finance.scheduled_store import KEPT, ScheduledRun, newest_runs
from app.finance.scheduled_work import (
    NOT_READ,
    FolderWay,
    MailWay,
    ReportParcel,
    Schedule,
    run_claimed,
    run_now,
    schedule_of,
)
from app.monitoring.watchdog import Watched, alarms
from app.orders.set_aside import HOLDING
from app.receiving import caught_up
from app.receiving.inbox import Inbox
from app.receiving.reader import ReaderContext, read_some
from app.sealing.log_store import begin_log
from reconcile.instants import (
    DAY,
    MINUTE,
    NO_TIME,
    TICK,
    Duration,
    Instant,
    format_instant,
    parse_instant,
)
from tests.contexts import with_settings
from tests.database.builders import arrival, opened, rows, submit
from tests.database.builders import context as context_of
from tests.rows import for_each
from tests.waiting import soon

MONTH, NIGHTLY = schedule_entries(
    "month | 0 6 12 * * | reconcile month csv json folder; nightly | 30 2 * * * | reconcile"
)
SETTING = "month | 0 6 12 * * | reconcile"
NAIROBI = ZoneInfo("Africa/Nairobi")
FIRST_LOOK = parse_instant("2026-11-11T00:00:00Z")
DUE = parse_instant("2026-11-12T03:00:00Z")
"""Six in the morning in Nairobi."""

ALL = parse_instant("2099-01-01T00:00:00Z")

FILES = ["month-2026-10.csv", "month-2026-10.json"]


@dataclass
class Shop:
    """A shop in Nairobi, and the folder that reports go to."""

    context: AppContext
    folder: Path

    def at(self, at: int) -> AppContext:
        return replace(self.context, clock=SetClock(Instant(at)))

    def schedule(self, *entries: ScheduleEntry) -> Schedule:
        """Return a schedule that delivers into the folder."""
        self.folder.mkdir(exist_ok=True)
        return Schedule(entries=entries or (MONTH,), ways={"folder": FolderWay(folder=self.folder)})

    async def due(self, after: Duration = NO_TIME, entry: ScheduleEntry = MONTH) -> AppContext:
        """Return the context at the due time, or after it, of an entry watched since before."""
        await due_now(self.context, [entry])
        return self.at(DUE + after)

    async def delivered(self) -> list[str]:
        """Return what the trail says was delivered."""
        async with self.context.database.reading() as connection:
            found = await audit_entries(connection, action="report_delivered", limit=99)
        assert {each.who for each in found} <= {"tallyhook"}
        return [each.subject for each in found]

    async def newest(self) -> tuple[str, str | None, int | None, int]:
        """Return state, problem, next try and number of tries of the newest run."""
        async with self.context.database.reading() as connection:
            found = (await newest_runs(connection, until=ALL))["month"]
        return found.state, found.problem, found.until, found.tries


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        found = context_of(inbox)
        context = with_settings(found, timezone="Africa/Nairobi", merchant="Salt & Sons")
        yield Shop(replace(context, clock=SetClock(FIRST_LOOK)), tmp_path / "out")


async def run_entry(
    context: AppContext, schedule: Schedule, name: str = "month", *, due_at: Instant = DUE
) -> ScheduledRun:
    """Do what a worker and its process do of one due time."""
    claimed = await claim(context, schedule.entry(name), due_at=due_at, asked=False)
    assert claimed is not None
    return await run_claimed(context, schedule, claimed)


# --- what is due ----------------------------------------------------------------------------------


async def test_an_entry_is_done_at_its_times_from_when_it_was_first_seen(shop: Shop) -> None:
    schedule = shop.schedule()
    assert await due_now(shop.context, [MONTH]) == []
    assert await due_now(shop.at(DUE - MINUTE), [MONTH]) == []
    now = shop.at(DUE)
    assert await due_now(now, [MONTH]) == [(MONTH, DUE)]
    done = await run_entry(now, schedule)
    assert (done.state, done.late, done.reconciled, done.tries) == ("done", False, 1, 1)
    assert await due_now(now, [MONTH]) == []
    assert await claim(now, MONTH, due_at=DUE, asked=False) is None
    assert sorted(each.name for each in shop.folder.iterdir()) == FILES
    report = json.loads((shop.folder / FILES[1]).read_bytes())
    assert report["from"] == "2026-09-30T21:00:00Z"
    assert (report["to"], report["merchant"]) == ("2026-10-31T21:00:00Z", "Salt & Sons")
    assert sorted(await shop.delivered()) == FILES


async def test_what_was_missed_is_done_once_and_reported_as_late(shop: Shop) -> None:
    now = await shop.due(75 * DAY)
    ((entry, due_at),) = await due_now(now, [MONTH])
    assert format_instant(due_at) == "2027-01-12T03:00:00Z"
    done = await run_entry(now, shop.schedule(), entry.name, due_at=due_at)
    assert done.late
    assert (shop.folder / "month-2026-12.json").exists()
    assert await due_now(now, [MONTH]) == []


async def test_an_entry_with_another_time_is_watched_from_then_on(shop: Shop) -> None:
    await due_now(shop.context, [NIGHTLY])
    changed = replace(NIGHTLY, cron="0 1 * * *")
    now = shop.at(FIRST_LOOK + 12 * 60 * MINUTE)
    assert await due_now(now, [changed]) == []
    assert await due_now(shop.at(FIRST_LOOK + DAY), [changed]) != []


async def test_a_time_of_a_clock_that_was_ahead_holds_no_later_one_up(shop: Shop) -> None:
    schedule = shop.schedule(MONTH, NIGHTLY)
    assert await due_now(shop.context, [MONTH]) == []
    ahead = shop.at(DUE + 400 * DAY)
    for entry, due_at in await due_now(ahead, [MONTH, NIGHTLY]):
        await run_entry(ahead, schedule, entry.name, due_at=due_at)
    now = await shop.due()
    assert await due_now(now, [MONTH, NIGHTLY]) == [(MONTH, DUE)]
    await run_entry(now, schedule)
    assert await due_now(now, [MONTH, NIGHTLY]) == []
    found = await due_now(shop.at(DUE + DAY), [MONTH, NIGHTLY])
    assert [entry for entry, _ in found] == [NIGHTLY]


async def test_what_a_clock_that_was_ahead_did_is_done_again_when_it_is_due(shop: Shop) -> None:
    """And a lease or a pause that it gave holds nothing up."""
    schedule = shop.schedule()
    before = await shop.due(-DAY)
    await run_entry(shop.at(DUE), schedule)
    assert await due_now(before, [MONTH]) == []
    assert await due_now(shop.at(DUE), [MONTH]) == [(MONTH, DUE)]
    assert await claim(shop.at(DUE + DAY), MONTH, due_at=DUE, asked=False) is not None
    assert await due_now(shop.at(DUE + MINUTE), [MONTH]) == [(MONTH, DUE)]
    assert await claim(shop.at(DUE + MINUTE), MONTH, due_at=DUE, asked=False) is not None


async def test_of_two_workers_one_does_it(shop: Shop) -> None:
    now, schedule = await shop.due(), shop.schedule()
    both = [claim(now, MONTH, due_at=DUE, asked=False) for _ in range(2)]
    (one,) = filter(None, await asyncio.gather(*both))
    assert (await run_claimed(now, schedule, one)).state == "done"
    assert len(await shop.delivered()) == 2


async def test_an_entry_that_is_still_done_is_not_begun_again(shop: Shop) -> None:
    (hourly,) = schedule_entries("hourly | 0 * * * * | reconcile")
    await due_now(shop.context, [hourly])
    due, hour = Instant(FIRST_LOOK + 60 * MINUTE), 60 * MINUTE
    begun = shop.at(due + 45 * MINUTE)
    assert await due_now(begun, [hourly]) == [(hourly, due)]
    assert await claim(begun, hourly, due_at=due, asked=False) is not None
    assert await due_now(shop.at(due + hour), [hourly]) == []
    after = shop.at(due + 45 * MINUTE + LEASE)
    assert await due_now(after, [hourly]) == [(hourly, Instant(due + hour))]


async def test_a_day_is_the_merchants(shop: Shop) -> None:
    (daily,) = schedule_entries("daily | 30 0 * * * | day json folder")
    schedule = shop.schedule(daily)
    await due_now(shop.context, [daily])
    due = parse_instant("2026-11-11T21:30:00Z")
    await run_entry(shop.at(due), schedule, "daily", due_at=due)
    report = json.loads((shop.folder / "daily-2026-11-11.json").read_bytes())
    assert (report["from"], report["to"]) == ("2026-11-10T21:00:00Z", "2026-11-11T21:00:00Z")


# --- killed, and failing --------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


async def test_killed_between_delivery_and_note_it_is_delivered_again_and_noted(shop: Shop) -> None:
    now, folder = await shop.due(), shop.folder
    schedule = shop.schedule()

    class Dying:
        async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
            await schedule.ways["folder"].deliver(parcel, files)
            raise Killed

    with pytest.raises(Killed):
        await run_entry(now, replace(schedule, ways={"folder": Dying()}))
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert sorted(before) == FILES
    assert await shop.delivered() == []
    early = shop.at(DUE + LEASE - MINUTE)
    assert await due_now(early, [MONTH]) == []
    assert await claim(early, MONTH, due_at=DUE, asked=False) is None
    again = shop.at(DUE + LEASE)
    assert await due_now(again, [MONTH]) == [(MONTH, DUE)]
    done = await run_entry(again, schedule)
    assert (done.state, done.tries, done.reconciled, done.late) == ("done", 2, 1, True)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before
    assert sorted(await shop.delivered()) == FILES


async def test_who_has_lost_the_lease_writes_nothing_down(shop: Shop) -> None:
    """A process that was suspended for longer than its lease, while another did its work."""
    now, schedule = await shop.due(), shop.schedule()

    class Suspended:
        async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
            other = shop.at(DUE + LEASE)
            done = await run_entry(other, schedule)
            assert done.state == "done"

    slow = replace(schedule, ways={"folder": Suspended()})
    await run_entry(now, slow)
    assert await shop.newest() == ("done", None, None, 2)
    assert len(await shop.delivered()) == 2


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/dev/full").exists(), reason="no /dev/full")
async def test_a_folder_that_takes_nothing_is_an_alarm_until_it_does(shop: Shop) -> None:
    now, folder = await shop.due(), shop.folder
    schedule = shop.schedule()
    folder.rmdir()
    failed = await run_entry(now, schedule)
    assert failed.state == "failed"
    assert "TALLYHOOK_REPORTS__FOLDER cannot be written (No such file" in (failed.problem or "")
    watched = Watched(with_settings(now, schedule="month | 0 6 12 * * | reconcile"))
    alarm = (await alarms(watched))["schedule"]
    assert alarm.sentence.startswith("1 scheduled run failed (month: the folder")
    another = with_settings(now, schedule="another | 0 6 12 * * | reconcile")
    assert "schedule" not in await alarms(Watched(another))
    assert await due_now(shop.at(DUE + FIRST_PAUSE - MINUTE), [MONTH]) == []
    folder.mkdir()
    again = shop.at(DUE + FIRST_PAUSE)
    assert await due_now(again, [MONTH]) == [(MONTH, DUE)]
    done = await run_entry(again, schedule)
    assert (done.state, done.problem, done.reconciled) == ("done", None, 1)
    assert "schedule" not in await alarms(watched)


async def test_a_full_folder_holds_no_half_file(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, folder = await shop.due(), shop.folder
    schedule = shop.schedule()
    (folder / FILES[0]).write_text("earlier")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.core.private_files.os.fsync", full)
    failed = await run_entry(now, schedule)
    assert "No space left on device" in (failed.problem or "")
    assert {each.name: each.read_text() for each in folder.iterdir()} == {FILES[0]: "earlier"}


async def test_a_checkpoint_leaves_by_the_same_ways(shop: Shop) -> None:
    (entry,) = schedule_entries("log | 0 6 12 * * | checkpoint folder")
    schedule = shop.schedule(entry)
    await due_now(shop.context, [entry])
    now = shop.at(DUE)
    failed = await run_entry(now, schedule, "log", due_at=DUE)
    assert failed.state == "failed"
    assert "nothing is sealed yet" in str(failed.problem)
    signer = CheckpointSigner(
        origin="tallyhook.sandbox/x", key=write_key(shop.folder.with_name("key"), secret=b"k" * 32)
    )
    public = signer.key.public
    async with now.database.writing() as connection:
        await begin_log(connection, origin=signer.origin, public=public.raw.hex(), now=DUE)
    await seal_something(now, signer)
    again = shop.at(DUE + FIRST_PAUSE)
    done = await run_entry(again, schedule, "log", due_at=DUE)
    assert done.state == "done"
    (first,) = (each.file for each in done.delivered)
    note = (shop.folder / first).read_text()
    assert note_holds(note, name=signer.origin, public=public)
    found = read_checkpoint(note)
    assert first == f"log-checkpoint-2026-11-12-1-{found.head.hex()[:8]}.txt"
    assert await shop.delivered() == [first]
    await seal_something(again, signer)
    more = await run_now(shop.at(DUE + DAY // 2), schedule, "log", by=None)
    (second,) = (each.file for each in more.delivered)
    assert (shop.folder / first).read_text() == note  # no later one takes its place
    assert second != first
    left = await rows(shop.context, "SELECT size, head, way FROM log_departures ORDER BY size")
    assert left[0] == (found.size, found.head, "folder")
    assert [way for _, _, way in left] == ["folder"] * 2


async def seal_something(context: AppContext, signer: CheckpointSigner) -> None:
    """Add an entry to the trail, and seal it."""
    at = context.clock.now()
    async with context.database.writing() as connection:
        await note_in_trail(connection, SERVICE, action="schedule_run", subject="x", at=at)
    await seal_all(context, signer)


async def test_a_fault_of_ours_is_reported_without_its_words(shop: Shop) -> None:
    class Faulty:
        async def deliver(self, parcel: ReportParcel, files: Sequence[str]) -> None:
            raise RuntimeError("secret 0722000000")

    now = await shop.due()
    schedule = Schedule(entries=(MONTH,), ways={"folder": Faulty()})
    failed = await run_entry(now, schedule)
    assert failed.problem == "an error in Tallyhook: its log shows where"


# --- people, settings, the worker -----------------------------------------------------------------


async def test_a_person_has_an_entry_done_and_its_own_time_still_comes(shop: Shop) -> None:
    now, schedule = await shop.due(-MINUTE), shop.schedule()
    done = await run_now(now, schedule, "month", by=None)
    assert (done.state, done.asked) == ("done", True)
    assert await due_now(shop.at(DUE), [MONTH]) == [(MONTH, DUE)]
    (entry,) = await schedule_document(now, [MONTH])
    assert entry["next"] == format_instant(DUE)
    assert entry["last"] is not None
    assert entry["last"]["state"] == "done"
    assert [each["file"] for each in entry["last"]["delivered"]] == FILES
    with pytest.raises(NotFoundError, match="no entry 'weekly'"):
        await run_now(now, schedule, "weekly", by=None)


async def test_who_may_not_reconcile_may_have_no_entry_done(shop: Shop) -> None:
    await register_operator(shop.context, name="Ada", role="admin", by=None)
    await register_operator(shop.context, name="Sam", role="support", by="Ada")
    with pytest.raises(UsageError, match="the role support, but the role must be admin or finance"):
        await run_now(shop.context, shop.schedule(), "month", by="Sam")
    assert await rows(shop.context, "SELECT * FROM scheduled_runs") == []


async def stopped(
    context: AppContext, before: Callable[[ScheduledRun], Awaitable[None]] | None = None
) -> None:
    """Let a scheduler begin an entry, and be stopped meanwhile."""

    async def stops(claimed: ScheduledRun) -> int:
        if before is not None:
            await before(claimed)
        scheduler.stop()
        return -15

    scheduler = Scheduler(context, (MONTH,), begin=stops)
    await scheduler.look()


async def test_the_worker_has_done_what_is_due_and_notes_who_dies(shop: Shop) -> None:
    begun: list[tuple[str, Instant]] = []
    now = await shop.due()

    async def dies(claimed: ScheduledRun) -> int:
        begun.append((claimed.name, claimed.due_at))
        return 1

    await Scheduler(now, (MONTH,), begin=dies).look()
    assert begun == [("month", DUE)]
    assert await shop.newest() == ("failed", DIED, DUE + FIRST_PAUSE, 1)
    await Scheduler(now, (MONTH,), begin=dies).look()
    assert len(begun) == 1
    await stopped(shop.at(DUE + FIRST_PAUSE))
    assert await shop.newest() == ("failed", STOPPED, DUE + FIRST_PAUSE, 2)


@pytest.mark.parametrize("stopped", [pytest.param(False, marks=pytest.mark.costly), True])
async def test_a_process_of_its_own_does_the_work_and_ends_with_the_worker(
    shop: Shop, stopped: bool
) -> None:
    entries = schedule_entries(SETTING)
    now = with_settings(await shop.due(entry=entries[0]), schedule=SETTING)
    scheduler = Scheduler(now, entries)
    working = asyncio.create_task(scheduler.run())
    await soon(lambda: scheduler._process is not None)
    if not stopped:
        assert scheduler._process is not None
        await scheduler._process.wait()
    scheduler.stop()
    await working
    state, problem, _, tries = await shop.newest()
    assert (state, problem, tries) == (("failed", STOPPED, 1) if stopped else ("done", None, 1))


async def test_who_is_stopped_leaves_the_work_of_another_alone(shop: Shop) -> None:
    now = await shop.due()
    over = shop.at(DUE + LEASE)
    others: list[ScheduledRun] = []

    async def taken_over(claimed: ScheduledRun) -> None:
        taken = await claim(over, MONTH, due_at=DUE, asked=False)
        assert taken is not None
        others.append(taken)
        assert await claimed_run(now, "month", due_at=DUE, tries=claimed.tries) is None

    await stopped(now, taken_over)
    (other,) = others
    assert await claimed_run(over, "month", due_at=DUE, tries=other.tries) == other
    done = await run_claimed(over, shop.schedule(), other)
    assert done.state == "done"


async def test_rows_of_long_ago_go_with_each_new_time(shop: Shop) -> None:
    schedule = shop.schedule()
    now = await shop.due()
    await run_entry(now, schedule)
    much_later = Instant(DUE + KEPT + 40 * DAY)
    for at in (Instant(DUE + 30 * DAY), much_later):
        await run_entry(shop.at(at), schedule, "month", due_at=at)
    kept = await rows(shop.context, "SELECT due_at FROM scheduled_runs")
    assert [row[0] for row in kept] == [much_later]


async def test_what_a_person_asked_for_is_not_said_to_be_tried_again(shop: Shop) -> None:
    (entry,) = schedule_entries("log | 0 6 12 * * | checkpoint folder")
    await run_now(shop.context, shop.schedule(entry), "log", by=None)
    scheduled = with_settings(shop.context, schedule="log | 0 6 12 * * | checkpoint folder")
    raised = await alarms(Watched(scheduled))
    assert "not tried again automatically" in raised["schedule"].sentence


async def test_who_is_stopped_is_followed_at_once(shop: Shop) -> None:
    now = await shop.due()
    await stopped(now)
    assert await shop.newest() == ("failed", STOPPED, DUE, 1)
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


async def test_settings_become_ways_and_their_secrets_are_not_shown(shop: Shop) -> None:
    client = outgoing_client(timeout_s=5)
    settings = load_settings(GIVEN)
    schedule = schedule_of(replace(shop.context, settings=settings), client)
    assert set(schedule.ways) == {"folder", "mail", "post"}
    mail = schedule.ways["mail"]
    assert isinstance(mail, MailWay)
    assert (mail.server.host, mail.server.port, len(mail.to)) == ("smtp.example", 587, 2)
    assert "hunter2" not in repr(schedule) + repr(settings)
    assert SECRET not in repr(schedule) + repr(settings)


@for_each(
    ("changed", "said"),
    [
        ({"TALLYHOOK_REPORTS__FOLDER": None}, "TALLYHOOK_SCHEDULE: month: uses folder"),
        ({"TALLYHOOK_REPORTS__MAIL_TO": None}, "MAIL_TO: is missing"),
        ({"TALLYHOOK_REPORTS__MAIL_TO": "nobody"}, "MAIL_TO: must be an address"),
        ({"TALLYHOOK_REPORTS__MAIL_SERVER": "smtp:0"}, "MAIL_SERVER: must be a host"),
        ({"TALLYHOOK_REPORTS__MAIL_PASSWORD": None}, "MAIL_USER: must be set together with"),
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


# --- unread deliveries ----------------------------------------------------------------------------


async def test_what_is_due_waits_until_all_is_read_and_is_an_alarm_after_an_hour(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count as a try, and nothing is reconciled, reported or delivered meanwhile."""
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.0)
    now, schedule, inbox = await shop.due(), shop.schedule(), shop.context.inbox
    assert isinstance(inbox, Inbox)
    await submit(inbox, arrival(None, received_at=Instant(DUE - MINUTE)))
    waiting = await run_entry(now, schedule)
    assert (waiting.state, waiting.problem, waiting.tries) == ("waiting", NOT_READ, 0)
    assert await due_now(shop.at(DUE + WAITING_PAUSE - TICK), [MONTH]) == []
    for minutes, alarmed in ((1, False), (59, False), (60, True)):
        later = with_settings(shop.at(DUE + minutes * MINUTE), schedule=SETTING)
        assert await due_now(later, [MONTH]) == [(MONTH, DUE)]
        assert (await run_entry(later, schedule)).waits_since == DUE
        found = await alarms(Watched(later))
        assert ("schedule_waits" in found, "schedule" in found) == (alarmed, False)
    assert await rows(shop.context, "SELECT count(*) FROM runs") == [(0,)]
    assert await shop.delivered() == []
    read = ReaderContext(now, inbox, {}, "sandbox", HOLDING)
    assert await read_some(read) == 1
    last = shop.at(DUE + 61 * MINUTE)
    done = await run_entry(last, schedule)
    assert (done.state, done.tries, done.waits_since, done.problem) == ("done", 1, None, None)
    assert "schedule_waits" not in await alarms(Watched(with_settings(last, schedule=SETTING)))


async def test_work_that_is_due_again_while_it_waits_has_waited_since_the_first_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.0)
    inbox, schedule = shop.context.inbox, shop.schedule(NIGHTLY)
    assert isinstance(inbox, Inbox)
    await due_now(shop.context, [NIGHTLY])
    await submit(inbox, arrival(None, received_at=FIRST_LOOK))
    since = []
    for day in (1, 2, 3):
        now = shop.at(FIRST_LOOK + day * DAY)
        ((entry, due_at),) = await due_now(now, [NIGHTLY])
        since.append((await run_entry(now, schedule, entry.name, due_at=due_at)).waits_since)
    assert since == [FIRST_LOOK + DAY] * 3


async def test_what_a_person_asks_for_over_unread_deliveries_fails_and_is_not_tried_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.0)
    inbox = shop.context.inbox
    assert isinstance(inbox, Inbox)
    await submit(inbox, arrival(None, received_at=FIRST_LOOK))
    done = await run_now(shop.at(DUE), shop.schedule(), "month", by=None)
    assert (done.state, done.problem, done.until) == ("failed", NOT_READ, None)
