"""Holders: who may write beside whom, and how one process takes another's place."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection

from app.config.settings import Settings
from app.core.clock import SetClock, SystemClock
from app.core.errors import StorePoisoned, StoreUnavailable, UsageError
from app.core.process import process_name
from app.database import holders, postgresql
from app.database.holders import HOLD, Holder
from app.database.postgresql import Purpose
from app.database.statements import PlainConnection, run, statement
from app.monitoring import health
from app.monitoring.health import refusal
from app.receiving.inbox import Inbox, open_inbox
from reconcile.instants import HOUR, Instant
from tests.api.driving import of_order
from tests.database.builders import (
    arrival,
    change,
    context,
    keep,
    opened,
    rolled_back,
    rows,
    said,
    submit,
)
from tests.e2e.processes import serving
from tests.postgres.conftest import ask, ask_in_loop
from tests.postgres.proxy import Proxy
from tests.waiting import PATIENCE_S, soon

pytestmark = pytest.mark.postgres

BEAT_S = 0.5

SILENT = f"UPDATE holders SET until = until - {2 * HOLD}"
"""Statement that makes every holder silent for more than a minute."""

ASLEEP = "SELECT pg_sleep(60)"
SLEEPERS = f"SELECT pid FROM pg_stat_activity WHERE query = '{ASLEEP}' AND state = 'active'"


@asynccontextmanager
async def opened_for(url: str, purpose: Purpose) -> AsyncIterator[Inbox]:
    async with open_inbox(
        Settings(database_url=url, environment="sandbox"), purpose=purpose
    ) as inbox:
        yield inbox


@pytest.fixture
async def own_url(url: str) -> str:
    """Return a database that has been opened once."""
    async with opened_for(url, "writing"):
        return url


def holder_of(inbox: Inbox) -> Holder:
    holder = inbox.database.writer.holder
    assert holder is not None
    return holder


async def write(inbox: Inbox, name: str) -> None:
    await change(inbox, statement("INSERT INTO meta VALUES ('{name}', '')", name=name))


async def written(url: str) -> list[str]:
    found = await ask_in_loop(url, "SELECT name FROM meta WHERE value = '' ORDER BY name")
    return [each[0] for each in found]


# --- who is there beside whom ---------------------------------------------------------------------


@pytest.mark.parametrize("purpose", ["serving", "working", "folding", "writing"])
async def test_nobody_is_alone_beside_a_process_that_writes(own_url: str, purpose: Purpose) -> None:
    """Either is told which process is in its way, and until when at most."""
    who = rf"process {os.getpid()} on .*; if that machine is lost, wait until 20"
    async with opened_for(own_url, purpose):
        with pytest.raises(UsageError, match=rf"stop all of them first \({who}"):
            async with opened_for(own_url, "alone"):
                pass
    async with opened_for(own_url, "alone") as alone:
        with pytest.raises(StoreUnavailable, match=rf"rebuilds this database.*\({who}"):
            async with opened_for(own_url, purpose):
                pass
        await write(alone, "ada")
    async with opened_for(own_url, purpose) as inbox:
        await write(inbox, "bea")
    assert await ask_in_loop(own_url, "SELECT * FROM holders") == []


async def test_processes_of_this_machine_are_found_by_their_ids(own_url: str) -> None:
    """Processes of other machines are left out, even with the same id."""
    elsewhere = f"elsewhere:1:{os.getpid()}:7/0"
    row = f"INSERT INTO holders VALUES ('{elsewhere}', 'serving', 'there', 1, 0, 'tx_1')"
    async with opened_for(own_url, "writing") as one, opened_for(own_url, "serving"):
        await ask_in_loop(own_url, row)
        async with one.database.reading() as connection:
            assert await run(connection, holders.processes_here) == [os.getpid()]
    async with opened_for(own_url, "reading") as inbox, inbox.database.reading() as connection:
        assert await run(connection, holders.processes_here) == []


async def test_of_several_that_want_to_be_alone_at_once_one_is(own_url: str) -> None:
    for _ in range(5):
        there = asyncio.Event()

        async def be_alone(there: asyncio.Event = there) -> None:
            async with opened_for(own_url, "alone"):
                await there.wait()

        wanting = [asyncio.create_task(be_alone()) for _ in range(3)]
        refused, _ = await asyncio.wait(wanting, return_when=asyncio.FIRST_COMPLETED)
        while len(refused) < 2:
            refused, _ = await asyncio.wait(wanting, timeout=0.05)
        there.set()
        ended = await asyncio.gather(*wanting, return_exceptions=True)
        assert sorted(type(each).__name__ for each in ended) == ["NoneType"] + ["UsageError"] * 2


async def test_a_process_of_this_machine_that_has_ended_is_waited_for_by_nobody(
    own_url: str,
) -> None:
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    place, _, _ = process_name().rsplit(":", 2)
    until = SystemClock().now() + HOLD
    row = "INSERT INTO holders VALUES ('{}:{}:7/0', '{}', 'here', 1, {}, 'tx_1')"
    # Its number may be given anew: to this process, which was started at another time.
    for pid in (ended.pid, os.getpid()):
        pairs: list[tuple[str, Purpose]] = [("serving", "alone"), ("alone", "serving")]
        for kind, asked in pairs:
            await ask_in_loop(own_url, row.format(place, pid, kind, until))
            async with opened_for(own_url, asked):
                found = await ask_in_loop(own_url, "SELECT kind FROM holders")
                assert [each[0] for each in found] == [asked]


async def test_only_the_row_of_one_that_was_taken_over_goes_with_age(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other is watched first, however old it is by our clock."""
    monkeypatch.setattr(holders, "BEAT_S", BEAT_S)
    row = "INSERT INTO holders VALUES ('elsewhere:1:7/0', '{}', 'there', 1, {}, 'tx_1')"
    long_ago = SystemClock().now() - holders.KEPT - HOLD
    kept = "SELECT epoch, kind FROM holders"
    await ask_in_loop(own_url, row.format("serving", long_ago))
    async with opened_for(own_url, "alone"):
        pass
    assert [tuple(each) for each in await ask_in_loop(own_url, kept)] == [(2, "ended")]
    await ask_in_loop(own_url, f"UPDATE holders SET until = {long_ago}")
    async with opened_for(own_url, "alone"):
        pass
    assert await ask_in_loop(own_url, kept) == []


async def test_a_holder_that_commits_nothing_renews_its_row(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all that it begins is rolled back, and after a renewal that failed in any way."""
    monkeypatch.setattr(holders, "BEAT_S", 0.02)
    async with opened_for(own_url, "alone") as inbox:
        monkeypatch.setattr(inbox.database.writer, "commit", unlucky(inbox.database.writer.commit))
        seen = set[str]()
        async with asyncio.timeout(PATIENCE_S):
            while len(seen) < 3:
                async with rolled_back(inbox):
                    pass
                seen.add((await ask_in_loop(own_url, "SELECT newest FROM holders"))[0][0])
                await asyncio.sleep(0.01)


def unlucky(commit: Any) -> Any:
    """Return the same function, which fails the first time."""
    failed = list[bool]()

    async def tried(function: Any) -> None:
        if not failed:
            failed.append(True)
            raise RuntimeError
        await commit(function)

    return tried


# --- what is given up -----------------------------------------------------------------------------


async def test_after_a_cancelled_transaction_a_holder_comes_back_with_all_checks(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_for(own_url, "serving") as inbox:
        writer = inbox.database.writer
        asleep = asyncio.create_task(writer.commit(lambda plain: plain.ask(ASLEEP)))
        await soon(lambda: ask_in_loop(own_url, SLEEPERS))
        asleep.cancel()
        await asyncio.wait([asleep])
        entered = list[Holder]()
        enter = postgresql.enter

        async def noted(connection: AsyncConnection, holder: Holder) -> None:
            entered.append(holder)
            await enter(connection, holder)

        monkeypatch.setattr(postgresql, "enter", noted)
        await writer.touch()
        assert entered == [writer.holder]


async def test_a_look_that_takes_too_long_cancels_no_commit(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER_S", 0.05)
    async with opened_for(own_url, "serving") as inbox:

        def slow(plain: PlainConnection) -> None:
            plain.ask("SELECT pg_sleep(0.5)")
            plain.ask("INSERT INTO meta VALUES ('ada', '')")

        with pytest.raises(StoreUnavailable, match="does not answer"):
            await health.bounded(inbox.database.writer.commit(slow))
        await write(inbox, "bea")
        assert await written(own_url) == ["ada", "bea"]


# --- taking over ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["committed", "frozen"])
async def test_a_takeover_waits_for_the_transaction_under_way(
    own_url: str, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Where it is committed its process lives, and is not taken over; where it is frozen, the
    server ends it, and nothing of it is written."""
    monkeypatch.setattr(holders, "BEAT_S", BEAT_S)
    monkeypatch.setattr(postgresql, "IDLE_MS", 1_500)
    goes_on = asyncio.Event()

    async def write_slowly(inbox: Inbox) -> None:
        async with inbox.database.writing() as connection:
            await connection.exec_driver_sql("INSERT INTO meta VALUES ('slow', '')")
            while not goes_on.is_set():
                if ending == "committed":
                    await connection.exec_driver_sql("SELECT 1")
                await asyncio.sleep(0.05)

    async def take_over() -> None:
        async with opened_for(own_url, "alone") as alone:
            await write(alone, "new")

    async with opened_for(own_url, "writing") as old:
        await ask_in_loop(own_url, SILENT)
        writing = asyncio.create_task(write_slowly(old))
        taking = asyncio.create_task(take_over())
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'transactionid'"
        # On a busy machine the frozen one is ended before the other comes to wait for it.
        await soon(lambda: taking.done() or ask_in_loop(own_url, waits))
        if ending == "committed":
            goes_on.set()
            await writing
            with pytest.raises(UsageError, match="stop all of them first"):
                await taking
            await write(old, "still")
            assert await written(own_url) == ["slow", "still"]
            return
        await taking
        goes_on.set()
        with pytest.raises(StoreUnavailable):
            await writing
        with pytest.raises(StorePoisoned, match="another one took its place"):
            await write(old, "late")
        assert old.database.poison
        assert await written(own_url) == ["new"]


async def test_one_that_was_taken_over_keeps_no_delivery(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither over the connection that it has, nor over a new one; and it ends."""
    monkeypatch.setattr(holders, "BEAT_S", BEAT_S)
    silent = "UPDATE holders SET epoch = epoch + 1, kind = 'ended'"
    ways = (silent, False), (silent, True), ("DELETE FROM holders", True)
    for count, (way, over_new) in enumerate(ways, 1):
        async with opened(own_url) as inbox:
            told: list[str] = []
            inbox.database.on_poison = told.append
            await submit(inbox, arrival(said("e1", order="A")))
            await ask_in_loop(own_url, way)
            if over_new:
                await inbox.writer.writer._give_up_connection()
            with pytest.raises(StorePoisoned, match="another one took its place"):
                await submit(inbox, arrival(said("e2", order="A")))
            assert len(told) == 1
            assert "start it again" in told[0]
        assert (await ask_in_loop(own_url, "SELECT sum(count) FROM inbox"))[0][0] == count


def test_a_frozen_service_that_is_taken_over_writes_nothing_once_it_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "BEAT_S", BEAT_S)

    async def take_over() -> None:
        async with opened_for(url, "alone") as alone:
            await write(alone, "ada")

    with serving(tmp_path, "--no-worker", DATABASE_URL=url) as process:
        assert send(process, "A")[0] == 200
        process.popen.send_signal(signal.SIGSTOP)
        ask(url, SILENT)
        asyncio.run(take_over())
        process.popen.send_signal(signal.SIGCONT)
        assert send(process, "B")[0] in (0, 503)
        assert process.code() == 4
        assert b"another one took its place" in process.log
    assert ask(url, "SELECT sum(count) FROM inbox")[0][0] == 1


def send(process: Any, name: str) -> tuple[int, Any]:
    try:
        return tuple(process.send(of_order(name, f"evt-{name}"), at=SystemClock().now()))
    except OSError:
        return 0, None


@pytest.mark.parametrize("off", [-HOUR, HOUR])
async def test_a_wrong_clock_costs_time_and_no_process_its_place(
    own_url: str, monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    """One whose clock is an hour behind looks silent, and is heard of while it is watched. One
    whose clock was ahead is not waited for until then, once its machine is lost."""
    monkeypatch.setattr(holders, "BEAT_S", BEAT_S)
    now = SystemClock().now()
    async with opened_for(own_url, "writing") as other:
        holder_of(other).clock = SetClock(Instant(now + off))
        await write(other, "ada")
        assert abs((await until_of(own_url)) - (now + off + HOLD)) < HOUR // 60
        with pytest.raises(UsageError, match=r"stop all of them first \(.*, writing\)"):
            async with opened_for(own_url, "alone"):
                pass
        await write(other, "bea")
        beating = other.database.writer._beating
        assert beating is not None
        beating.cancel()
        async with opened_for(own_url, "alone") as alone:
            await write(alone, "cem")
        with pytest.raises(StorePoisoned):
            await write(other, "dan")
    assert await written(own_url) == ["ada", "bea", "cem"]


async def until_of(url: str) -> int:
    ((found,),) = await ask_in_loop(url, "SELECT until FROM holders")
    return int(found)


# --- a connection that is not ours ----------------------------------------------------------------


async def test_a_connection_without_its_mark_writes_nothing(own_url: str) -> None:
    """As behind a pooler that gives each transaction another connection to the server."""
    async with opened(own_url) as inbox:
        await keep(inbox, arrival(said("e0", order="A")))
        await submit(inbox, arrival(said("e1", order="A")))
        for writer in (inbox.database.writer, inbox.writer.writer):
            assert writer._connection is not None
            await writer._connection.exec_driver_sql("SET tallyhook.session = 'of another'")
            await writer._connection.commit()
        for act in (write(inbox, "ada"), submit(inbox, arrival(said("e2", order="A")))):
            with pytest.raises(StoreUnavailable, match="changes the server"):
                await act
        assert "pool_mode" in str(await refusal(context(inbox))), "/readyz says it"
        assert await rows(inbox, "SELECT sum(count) FROM inbox") == [(1,)]
    assert await written(own_url) == []


async def test_a_vacuum_leaves_the_limits_as_they_were(own_url: str) -> None:
    async with opened(own_url) as inbox:
        await inbox.database.writer.tidy(["phones"])
        async with inbox.database.writing() as connection:
            found = await connection.exec_driver_sql("SHOW statement_timeout")
            assert found.scalar_one() == f"{postgresql.STATEMENT_MS // 1_000}s"


# --- the newest transaction -----------------------------------------------------------------------


async def test_the_row_has_the_mark_of_the_newest_transaction(own_url: str) -> None:
    """One that was rolled back leaves none."""
    async with opened_for(own_url, "writing") as inbox:
        seen = []
        for name in ("ada", "bea"):
            await write(inbox, name)
            ((newest,),) = await ask_in_loop(own_url, "SELECT newest FROM holders")
            assert holder_of(inbox).newest == (newest,)
            seen.append(newest)
            with pytest.raises(ZeroDivisionError):
                async with inbox.database.writing():
                    raise ZeroDivisionError
            assert holder_of(inbox).newest == (newest,)
        assert len(set(seen)) == 2


@pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "before its answer"])
async def test_a_commit_in_doubt_leaves_two_marks_of_which_the_row_has_one(
    server_url: str, url: str, arrives: bool
) -> None:
    """After the next commit the newest is known again."""
    with Proxy(Path(str(make_url(server_url).query["host"]))) as proxy:
        async with opened(proxy.url(url)) as inbox:
            await submit(inbox, arrival(said("e1", order="A")))
            holder = inbox.writer.writer.holder
            assert holder is not None
            (before,) = holder.newest
            item = arrival(said("e2", order="A"))
            proxy.cut_at(item.digest.encode(), arrives=arrives)
            with pytest.raises(StoreUnavailable):
                await submit(inbox, item)
            asked = f"SELECT newest FROM holders WHERE holder = '{holder.id}'"
            ((found,),) = await ask_in_loop(url, asked)
            assert holder.newest[0] == before
            assert holder.newest.index(found) == arrives
            await submit(inbox, item)
            ((found,),) = await ask_in_loop(url, asked)
            assert holder.newest == (found,)


async def test_a_first_commit_that_fails_is_no_gap(server_url: str, url: str) -> None:
    with Proxy(Path(str(make_url(server_url).query["host"]))) as proxy:
        async with opened(proxy.url(url)) as inbox:
            item = arrival(said("e1", order="A"))
            proxy.cut_at(item.digest.encode(), arrives=False)
            with pytest.raises(StoreUnavailable):
                await submit(inbox, item)
            await submit(inbox, item)
            asked = "SELECT 1 FROM meta WHERE name = 'gap'"
            assert await ask_in_loop(url, asked) == []


async def test_a_commit_that_another_database_of_this_name_lacks_is_a_gap(own_url: str) -> None:
    """As after a restore under a running process, which goes on only where nothing is missing."""
    async with opened_for(own_url, "serving") as inbox:
        holder, watch, writer = holder_of(inbox), inbox.database.watch, inbox.database.writer
        await write(inbox, "ada")
        assert watch is not None
        before = watch.servers[holder]._replace(tables="1/1")
        for is_missing in (False, True):
            watch.servers[holder] = before
            if is_missing:
                holder.begin()
                holder.committed()
            await writer.disconnect()
            if not is_missing:
                await write(inbox, "bea")
                continue
            with pytest.raises(StoreUnavailable, match="is not the one used before"):
                await write(inbox, "cem")
