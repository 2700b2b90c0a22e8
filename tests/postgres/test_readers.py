"""Several readers on one database: each row is read by one of them, whoever ends or hangs when."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from app.core.process import has_ended, process_name
from app.database.statements import run
from app.receiving import claim_store, reader
from app.receiving.claim_store import (
    Claimant,
    Head,
    claim_rows,
    claim_suspect,
    heads_of_suspects,
)
from app.receiving.inbox import Inbox
from app.receiving.inbox_store import Unread, suspect, take_out
from app.receiving.reader import Reader, ReaderContext, read_some
from tests.database.builders import arrival, change, rows, said, submit
from tests.forking import ROOT
from tests.postgres.test_inbox import reading
from tests.postgres.test_sharing import several
from tests.waiting import PATIENCE_S, soon

pytestmark = pytest.mark.postgres

STORED = "SELECT verdict, count(*) FROM deliveries GROUP BY 1 ORDER BY 1"
CLAIMED = "SELECT taken_by, tries FROM inbox ORDER BY seq"


async def fill(inbox: Inbox, count: int, *, each: int = 1) -> None:
    """Keep so many rows, each of so many deliveries."""
    for row in range(count):
        batch = [arrival(said(f"e{row}-{n}", order=f"O{row}")) for n in range(each)]
        await asyncio.gather(*(submit(inbox, item) for item in batch))


async def claim(context: ReaderContext, *, limit: int = 512) -> list[Unread]:
    """Claim rows, and read nothing of them yet."""
    writer = context.context.database.writer
    return await writer.commit(
        claim_rows, context.claimant, limit=limit, most_bytes=reader.AT_ONCE_BYTES
    )


async def append(context: ReaderContext, claimed: list[Unread]) -> int:
    """Append what was claimed. Return how many deliveries that were."""
    ready = [reader._ready(context, row, row.items or ()) for row in claimed]
    return len(await context.inbox.append(ready))


@pytest.fixture
def short_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims run out at the second look."""
    monkeypatch.setattr(claim_store, "CLAIM_S", 0.0)


async def test_no_row_is_claimed_by_two(url: str) -> None:
    """However many claim at the same instant, each gets the oldest that are left."""
    async with several(url, 4) as stores:
        contexts = [reading(inbox) for inbox in stores]
        await fill(stores[0], 20, each=3)
        claimed = await asyncio.gather(*(claim(each, limit=9) for each in contexts))
        numbers = sorted(row.seq for some in claimed for row in some)
        assert numbers == [row.seq for row in await stores[0].next_rows(limit=36, most_bytes=9**9)]
        again = await claim(contexts[0], limit=9)  # what it has not read yet
        assert [(row.seq, row.tries) for row in again] == [(row.seq, 0) for row in claimed[0]]


async def test_what_is_claimed_is_unread(url: str) -> None:
    """Until it is appended."""
    async with several(url) as (one, other):
        await fill(one, 2, each=2)
        before = await other.backlog_and_end()
        claimed = await claim(reading(one))
        assert await other.backlog_and_end() == before
        assert before[0].records == 4
        assert await append(reading(one), claimed) == 4
        assert (await other.backlog()).oldest is None


async def test_a_claim_that_ran_out_appends_nothing(url: str, short_claims: None) -> None:
    """Whether the one who took it over has appended its rows or has them still in its hands."""
    async with several(url) as (one, other):
        frozen, awake = reading(one), reading(other)
        await fill(one, 2, each=3)
        claimed = await claim(frozen, limit=3)
        taken = await claim(awake, limit=3)
        assert [(row.seq, row.tries) for row in taken] == [(claimed[0].seq, 1)]
        assert await append(frozen, claimed) == 0
        assert await rows(one, STORED) == []
        assert await append(awake, taken) == 3
        assert await append(frozen, claimed) == 0
        assert await read_some(frozen) == 1
        assert await rows(one, STORED) == [("stored", 6)]


async def test_a_claim_in_the_middle_of_its_append_cannot_be_taken_over(
    url: str, short_claims: None
) -> None:
    async with several(url) as (one, other):
        context = reading(one)
        await fill(one, 1)
        claimed, inside, go_on = await claim(context), asyncio.Event(), asyncio.Event()

        async def appending() -> None:
            async with one.database.writing() as connection:
                assert await run(connection, take_out, claimed) == claimed
                inside.set()
                await go_on.wait()

        task = asyncio.create_task(appending())
        await inside.wait()
        assert await claim(reading(other)) == []
        go_on.set()
        await task
        assert await other.next_rows(limit=9, most_bytes=9_999) == []


async def test_a_reader_that_ends_gives_back_what_it_has(url: str) -> None:
    """No try is counted: neither of rows nor of what is read alone."""
    async with several(url) as (one, other):
        await fill(one, 3)
        first, *_ = await claim(reading(other), limit=1)
        await other.database.writer.commit(suspect, [first])
        ending = Reader(reading(one))
        context = ending._reading
        assert len(await claim(context)) == 2
        (head,) = await one.database.on_snapshot(heads_of_suspects)
        assert await one.database.writer.commit(claim_suspect, context.claimant, head) is not None
        ending._began = True
        await ending._end()
        assert await rows(one, CLAIMED) == [(None, 0), (None, 0)]
        assert await rows(one, "SELECT taken_by, tries FROM suspects") == [(None, 0)]


def name_of_one_that_ended() -> str:
    """Return the name of a process that has ended."""
    asks = "from app.core.process import process_name; print(process_name())"
    return subprocess.check_output([sys.executable, "-c", asks], text=True, cwd=ROOT).strip()


async def test_what_a_process_had_that_has_ended_is_free_at_once(url: str) -> None:
    """On this machine; whether a process of another one has ended nobody here can know."""
    ended = await asyncio.to_thread(name_of_one_that_ended)
    elsewhere = f"another:{ended.partition(':')[2]}"
    assert (has_ended(ended), has_ended(elsewhere)) == (True, False)
    assert not has_ended(process_name())
    async with several(url) as (one, other):
        await fill(one, 3)
        for number, name in enumerate((ended, elsewhere, process_name()), start=1):
            await change(one, f"UPDATE inbox SET taken_by='{name} x 1' WHERE seq={number} + "
                              "(SELECT min(seq) FROM inbox) - 1")  # fmt: skip
        assert [row.tries for row in await claim(reading(other))] == [1]


def test_only_who_looks_all_the_time_sees_a_claim_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slept, or a server that was away, is held against nobody's rows."""
    now = [100.0]
    monkeypatch.setattr(claim_store, "monotonic", lambda: now[0])
    looking, head = Claimant(), Head(1, 1, 1, "another:1:1:1 x 1")

    def free_after(*seconds: float) -> bool:
        for pause in seconds:
            now[0] += pause
            found = looking.free([head])
        return bool(found)

    just_short = [1] * (int(claim_store.CLAIM_S) - 1)
    assert not free_after(0, *just_short)
    assert not free_after(3.5, *just_short)  # it begins anew
    assert free_after(1)
    assert not looking.free([head._replace(taken_by="another:1:1:1 x 2")])
    assert looking.free([head._replace(taken_by="")])
    assert Claimant(alone=True).free([head])


def test_a_dead_claim_runs_out_however_many_others_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are not seen any more are forgotten."""
    now, looking, dead = 100, Claimant(), Head(1, 1, 1, "another:1:1:1 x 1")
    monkeypatch.setattr(claim_store, "monotonic", lambda: float(now))
    for now in range(100, 100 + int(claim_store.CLAIM_S)):
        others = [Head(2 + n, 1, 1, f"another:2:2:2 x {now} {n}") for n in range(200)]
        assert not looking.free([dead, *others])
        assert len(looking._seen) <= claim_store.MOST_SEEN + 200
    now += 1
    assert looking.free([dead]) == [dead]


# --- readers that are killed or frozen ------------------------------------------------------------

READER: Final = """
import asyncio, os, signal, sys
from app.orders.set_aside import HOLDING
from app.receiving import inbox, reader
from tests.contexts import settings_of
from tests.database.builders import SOURCES, context

url, module, name, after, ending = sys.argv[1:]
module = {"reader": reader, "inbox": inbox}[module]
function = getattr(module, name)

def ends(*args, **words):
    found = function(*args, **words) if after else None
    os.kill(os.getpid(), signal.Signals[ending])
    return found if after else function(*args, **words)

setattr(module, name, ends)

async def main():
    async with inbox.open_inbox(settings_of(url), purpose="working") as store:
        reads = reader.ReaderContext(context(store), store, SOURCES, "sandbox", HOLDING)
        one = reader.Reader(reads)
        one.stop(drain=True)
        await one.run()

asyncio.run(main())
"""
"""A reader that is killed or frozen in the middle, and else ends once all is read."""

KEPT: Final = "SELECT count(*) FROM deliveries"
"""Bodies of the builders are unreadable to another process."""

PHASES: Final = {
    "before a claim is committed": ("reader", "claim_rows", "after"),
    "before decoding": ("reader", "_ready", ""),
    "before an append is committed": ("inbox", "append_ready", "after"),
    "after an append is committed": ("reader", "_log_read", ""),
}
"""The function in which a reader ends, and whether at its end."""


def started(url: str, *planted: str) -> subprocess.Popen[bytes]:
    """Start a reader that ends or freezes as planted."""
    return subprocess.Popen([sys.executable, "-c", READER, url, *planted], cwd=ROOT)


async def read_all(inbox: Inbox) -> None:
    """Read with another reader until nothing is free."""
    other = Reader(reading(inbox))
    while await other._round():
        pass


@pytest.mark.parametrize(
    "phase",
    [pytest.param(e, marks=() if "decoding" in e else pytest.mark.soak) for e in PHASES],
)
async def test_a_killed_reader_loses_and_doubles_nothing(url: str, phase: str) -> None:
    """What it had is read again at once, with the rest; nothing is read alone, or set aside."""
    async with several(url) as (one, other):
        await fill(one, 4, each=2)
        killed = started(url, *PHASES[phase], "SIGKILL")
        assert await asyncio.to_thread(killed.wait, PATIENCE_S) == -signal.SIGKILL
        await read_all(other)
        assert await rows(one, KEPT) == [(8,)]
        assert await rows(one, CLAIMED) == await rows(one, "SELECT seq FROM suspects") == []


@pytest.mark.soak
async def test_a_frozen_reader_appends_nothing_of_what_was_taken_over(
    url: str, short_claims: None
) -> None:
    """After it was thawed, it reads on."""
    async with several(url) as (one, other):
        await fill(one, 4, each=2)
        frozen = started(url, "reader", "_ready", "", "SIGSTOP")
        stat = Path(f"/proc/{frozen.pid}/stat")
        await soon(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        await read_all(other)
        assert await rows(one, STORED) == [("stored", 8)]
        late = arrival(said("late", order="A"))
        await submit(one, late)
        frozen.send_signal(signal.SIGCONT)
        while frozen.poll() is None:
            frozen.send_signal(signal.SIGCONT)  # it freezes at each row
            await asyncio.sleep(0.05)
        assert frozen.returncode == 0
        assert await rows(one, STORED) == [("stored", 8), ("unreadable", 1)]
