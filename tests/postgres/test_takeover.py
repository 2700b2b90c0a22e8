"""A standby takes over from its primary: the service goes on by itself where nothing is missing.

Each test has two servers of its own, of which the second follows the first.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, StoreUnavailable
from app.database.gaps import accepted_gaps
from app.database.nodes import Nodes
from app.database.servers import server_state
from app.database.takeover import LOOK_S as WATCH_S
from app.database.takeover import NotCompared
from app.monitoring.health import refusal, unsafe
from app.orders.read_feed import read_feed, read_from
from app.privacy.backup import follow_on
from app.privacy.gap import accept_found, follow_takeover
from app.receiving.inbox import Inbox, open_inbox
from tests.contexts import settings_of
from tests.database.builders import arrival, context, fetch, keep, opened, rows, said, submit
from tests.memory import memory
from tests.postgres.conftest import ask_in_loop, migrate
from tests.postgres.loading import assert_kept_once, kept, under_load
from tests.postgres.server import Programs, Server, programs
from tests.waiting import LOOK_S, PATIENCE_S, soon

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

PUBLISHED: Final = "SELECT seq FROM revisions ORDER BY seq"
WENT_ON: Final = "SELECT who, facts FROM audit WHERE action = 'took_over'"


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Programs, Path]]:
    """Yield the programs, and a folder for servers."""
    with programs(within=memory()) as found:
        yield found


async def answered(url: str, question: str) -> None:
    """Wait until a server answers a question with yes."""

    async def yes() -> object:
        return (await ask_in_loop(url, question))[0][0]

    await soon(yes)


class Pair:
    """A primary, the standby that follows it, and the address that names both."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.primary, self.standby = primary, standby
        hosts = f"{primary.folder},{standby.folder}&port=5432,5432"
        self.url = (
            f"postgresql+asyncpg://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
        )
        self.first, self.second = primary.url("postgres"), standby.url("postgres")

    async def configure(self, setting: str, value: str) -> None:
        """Change a setting of the primary, and wait until it is in force."""
        change = f"ALTER SYSTEM SET {setting} = '{value}'"
        await ask_in_loop(self.first, change, "SELECT pg_reload_conf()")
        await answered(self.first, f"SELECT current_setting('{setting}') = '{value}'")

    async def leave(self) -> None:
        """Have the standby leave its primary, with nothing under way reaching it."""
        unfollow = "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"
        await ask_in_loop(self.second, *unfollow)
        await answered(self.first, "SELECT count(*) = 0 FROM pg_stat_replication")

    async def take_over(self) -> None:
        """End the primary as a machine ends, and promote the standby."""
        await asyncio.to_thread(self.primary.kill)
        await asyncio.to_thread(self.standby.promote)


@asynccontextmanager
async def pair(
    place: tuple[Programs, Path], name: str, *, waits: bool = True
) -> AsyncIterator[Pair]:
    """Run both servers, with a database of the newest version.

    waits  whether each commit waits for the standby
    """
    found, folder = place
    primary, standby = Server(found, folder / f"{name}p"), Server(found, folder / f"{name}s")
    servers = Pair(primary, standby)
    await asyncio.to_thread(primary.make)
    await asyncio.to_thread(primary.start)
    try:
        await migrate(servers.first)
        await asyncio.to_thread(lambda: standby.copy_from(primary, name="other"))
        await asyncio.to_thread(standby.start)
        await answered(servers.first, "SELECT count(*) = 1 FROM pg_stat_replication")
        if waits:
            await servers.configure("synchronous_standby_names", "*")
        yield servers
    finally:
        await asyncio.to_thread(primary.stop)
        await asyncio.to_thread(standby.stop)


@asynccontextmanager
async def services(pair: Pair, number: int = 2) -> AsyncIterator[list[Inbox]]:
    """Run services that go on after a takeover, and have each look at the server once."""
    async with AsyncExitStack() as stack:
        inboxes = [await stack.enter_async_context(opened(pair.url)) for _ in range(number)]
        for inbox in inboxes:
            assert inbox.database.watch is not None
            inbox.database.watch.follow = partial(follow_takeover, at=SystemClock().now())
            await inbox.database.watch_server()
        yield inboxes


async def followed(inbox: Inbox, seen: list[int], ending: asyncio.Event) -> None:
    """Read the feed all the time, as a shop does, without ever beginning anew."""
    asked = context(inbox)
    while not ending.is_set():
        with suppress(StoreUnavailable):
            after = seen[-1] if seen else 0
            assert await read_from(asked, after=after) is None
            seen += [each.seq for each in await read_feed(asked, after=after, limit=50, wait_s=0)]
        await asyncio.sleep(LOOK_S)


async def test_the_service_goes_on_by_itself_where_nothing_is_missing(
    place: tuple[Programs, Path],
) -> None:
    """No acknowledged delivery is lost, published numbers jump once, and a shop that reads the feed
    all the time gets each of them."""
    seen, ending = list[int](), asyncio.Event()
    async with pair(place, "w") as servers:
        async with services(servers) as (one, other):
            reading = asyncio.create_task(followed(one, seen, ending))
            async with under_load(one, other) as load:
                await load.reach(100)
                await servers.take_over()
                await load.reach(100)
            numbers = [row[0] for row in await ask_in_loop(servers.second, PUBLISHED)]
            await soon(lambda: seen and seen[-1] == numbers[-1])
            ending.set()
            await reading
        assert seen == numbers
        jumps = [later for number, later in pairwise(numbers) if later > number + 1]
        ((who, facts),) = await ask_in_loop(servers.second, WENT_ON)
        assert (who, json.loads(facts)["first"]) == ("tallyhook", *jumps)
        await assert_kept_once(servers.second, load)
        print(load)


async def refused(inbox: Inbox, name: str, *, says: str = "standby") -> str:
    """Return why the inbox takes no delivery."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with pytest.raises(StoreUnavailable) as caught:
                await keep(inbox, arrival(said(name, order="A")))
            if says in str(caught.value):
                return str(caught.value)
            await asyncio.sleep(LOOK_S)


async def restored(pair: Pair) -> None:
    """Do what `db restored --accept-gap` does."""
    settings = settings_of(pair.second)
    await accept_found(settings, reason="a test", clock=SystemClock(), follow=False)
    async with open_inbox(settings, purpose="alone") as inbox:
        await follow_on(inbox.database, at=SystemClock().now(), replaced=None)


async def test_what_a_running_process_misses_is_a_gap_until_it_is_accepted(
    place: tuple[Programs, Path],
) -> None:
    """Before that, nothing is written by any process, old or new, and nothing is read by an old
    one. The standby was called unsafe before it took over."""
    async with pair(place, "l", waits=False) as servers:
        async with services(servers) as (one, other):
            (unsafe,) = (await fetch(one, server_state)).unsafe()
            assert "asynchronous" in unsafe
            await keep(other, arrival(said("e0", order="A")))
            await servers.leave()
            async with opened(servers.url) as late:  # the standby has not even that it began
                await keep(late, arrival(said("e1", order="A")))
                await servers.take_over()
                lacks = await refused(late, "e2")
            assert "a standby took over that lacks commits of a running process" in lacks
            assert "how many acknowledged deliveries are lost is unknown" in lacks
            assert "`tallyhook db restored --accept-gap --reason TEXT`" in lacks
            for inbox in (one, other):
                assert await refused(inbox, "e2") == lacks, "though it misses nothing itself"
            for inbox in (one, other):
                with pytest.raises(StoreUnavailable) as caught:
                    await refusal(context(inbox))
                assert str(caught.value) == lacks
            with pytest.raises(StoreUnavailable, match="lacks commits of a running process"):
                await rows(one, "SELECT 1")
        await ask_in_loop(servers.second, "DELETE FROM holders")  # as their processes end
        with pytest.raises(StoreUnavailable, match="lacks commits of a running process"):
            async with open_inbox(settings_of(servers.second), purpose="writing"):
                pass
        with pytest.raises(ConfigurationError, match="continue with `tallyhook db restored"):
            async with open_inbox(settings_of(servers.second), purpose="alone"):
                pass
        await restored(servers)
        async with opened(servers.second) as new:
            (gap,) = await new.database.on_snapshot(accepted_gaps)
            assert gap.sentence() in lacks
            trail = await rows(new, "SELECT action FROM audit ORDER BY number")
            assert trail == [("gap_accepted",), ("restored",)]
            await kept(new, "e2")


@pytest.mark.costly
async def test_a_standby_that_not_every_commit_waited_for_is_a_gap(
    place: tuple[Programs, Path],
) -> None:
    """Although nothing of the running process is missing: another one that has ended may have
    committed later."""
    async with pair(place, "o") as servers, services(servers, 1) as (one,):
        await servers.configure("synchronous_standby_names", "")
        await one.database.watch_server()
        await servers.take_over()
        assert "not every commit had waited for it" in await refused(one, "e2")


@pytest.mark.costly
async def test_a_process_that_begins_after_a_takeover_concludes_nothing(
    place: tuple[Programs, Path],
) -> None:
    """The one that ran before may have ended with commits that are lost. It waits for another that
    knows; else a person decides."""
    async with pair(place, "b") as servers, services(servers, 1) as (one,):
        async with services(servers, 1) as (ended,):
            await keep(ended, arrival(said("e1", order="A")))
        await servers.take_over()
        with pytest.raises(NotCompared):
            async with open_inbox(settings_of(servers.second), purpose="writing"):
                pass
        watch = one.database.watch
        assert watch is not None
        for waits, ago_s in ((None, 0), (True, 3 * WATCH_S)):  # nothing was seen, or long ago
            watch.waits, watch.looked_at = waits, watch.looked_at - ago_s
            with pytest.raises(NotCompared):
                await one.database.watch_server()
            assert "is being compared" in await refused(one, "e2")
        watch.waits = True  # as if it knew
        await one.database.watch_server()
        await kept(one, "e2")
        async with open_inbox(settings_of(servers.second), purpose="writing") as new:
            assert await rows(new, "SELECT count(*) FROM deliveries") == [(2,)]


@pytest.mark.costly
async def test_where_all_processes_had_ended_a_person_decides(
    place: tuple[Programs, Path],
) -> None:
    async with pair(place, "a") as servers:
        async with services(servers, 1) as (ended,):
            await keep(ended, arrival(said("e1", order="A")))
        await servers.take_over()
        with pytest.raises(ConfigurationError, match="no process that ran before has confirmed"):
            async with open_inbox(settings_of(servers.second), purpose="alone"):
                pass
        await restored(servers)


@pytest.mark.costly
async def test_one_writer_of_a_process_does_not_go_on_where_the_other_misses_a_commit(
    place: tuple[Programs, Path],
) -> None:
    async with pair(place, "t") as servers, services(servers, 1) as (one,):
        await kept(one, "e1")
        await submit(one, arrival(said("e2", order="A")))
        misses = one.writer.writer.holder
        assert misses is not None
        misses.begin()
        misses.committed()
        await servers.take_over()
        assert "lacks commits of a running process" in await refused(one, "e3")


@pytest.mark.costly
async def test_one_process_that_misses_a_commit_stops_all_others(
    place: tuple[Programs, Path],
) -> None:
    """Also when another one has gone on. A commit whose outcome is unknown may be there or not:
    nobody was told that it was made."""
    async with pair(place, "m") as servers, services(servers) as (one, other):
        may_miss, misses = one.database.writer.holder, other.database.writer.holder
        assert may_miss is not None
        assert misses is not None
        may_miss.begin()
        may_miss.committing()
        misses.begin()
        misses.committed()
        await servers.take_over()
        await kept(one, "e1")
        assert "lacks commits of a running process" in await refused(other, "e2")
        assert one.database.watch is not None
        with pytest.raises(StoreUnavailable, match="lacks commits of a running process"):
            await one.database.watch_server()
        assert "lacks commits of a running process" in str(await refusal(context(one)))
        (moved,) = await unsafe(context(one), Nodes(None, {}, {}))
        what, _, do = moved.partition("; ")
        assert "lacks commits of a running process" in what
        assert do.endswith("`tallyhook db restored --accept-gap --reason TEXT`")
        with pytest.raises(StoreUnavailable, match="lacks commits of a running process"):
            await submit(one, arrival(said("e3", order="A")))
        assert "lacks commits of a running process" in await refused(one, "e2")


@pytest.mark.costly
async def test_a_standby_promoted_after_another_lacks_what_was_committed_on_that(
    place: tuple[Programs, Path],
) -> None:
    """Both left one primary, each for a timeline of the same number: no name tells them apart."""
    found, folder = place
    async with pair(place, "x") as servers, services(servers, 1) as (one,):
        third, alone = Server(found, folder / "xt"), "synchronous_standby_names="
        await asyncio.to_thread(lambda: third.copy_from(servers.primary, name="third"))
        try:
            await asyncio.to_thread(lambda: third.start(alone))
            await servers.take_over()
            await kept(one, "e1")
            await asyncio.to_thread(servers.standby.kill)
            await asyncio.to_thread(third.promote)
        finally:
            await asyncio.to_thread(third.stop)
        shutil.rmtree(servers.standby.data)
        third.data.rename(servers.standby.data)  # to the address of the one that is gone
        await asyncio.to_thread(lambda: servers.standby.start(alone))
        assert "lacks commits of a running process" in await refused(one, "e2", says="lacks")
