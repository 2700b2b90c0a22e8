"""Several named hosts: one that takes connections and confirms nothing is left for the next."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy.exc import DBAPIError

from app.core.errors import StoreUnavailable
from app.database import postgresql
from app.database.hosts import FORMER, Hosts
from app.database.statements import PlainConnection, run_snapshot
from app.receiving.inbox import Inbox
from tests.database.builders import arrival, keep, opened, said, submit
from tests.memory import memory
from tests.postgres.conftest import ask_in_loop, migrate
from tests.postgres.server import PORT, Programs, Server, programs
from tests.waiting import LOOK_S, PATIENCE_S

pytestmark = pytest.mark.postgres


@pytest.fixture
def place() -> Iterator[tuple[Programs, Path]]:
    with programs(within=memory()) as found:
        yield found


@asynccontextmanager
async def pair(place: tuple[Programs, Path]) -> AsyncIterator[tuple[Server, Server, str]]:
    """Run a primary, and a standby that its commits wait for; yield them and a URL that names
    both, the primary first."""
    found, folder = place
    primary, standby = Server(found, folder / "p"), Server(found, folder / "s")
    primary.make()
    await asyncio.to_thread(primary.start)
    try:
        await migrate(primary.url("postgres"))
        await asyncio.to_thread(lambda: standby.copy_from(primary, name="other"))
        await asyncio.to_thread(standby.start)
        await ask_in_loop(
            primary.url("postgres"),
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        )
        hosts = f"{primary.folder},{standby.folder}&port={PORT},{PORT}"
        yield primary, standby, f"postgresql+asyncpg://postgres@/postgres?host={hosts}"
    finally:
        for server in (primary, standby):
            if server.runs:
                server.freeze(signal.SIGCONT)
                server.kill()


async def acknowledged(inbox: Inbox, event: str) -> None:
    """Send an event again and again until it is acknowledged; print how long that took."""
    began = monotonic()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(StoreUnavailable):
                await submit(inbox, arrival(said(event, order="A")))
                return print(f"{event}: acknowledged after {monotonic() - began:.2f} s")
            await asyncio.sleep(LOOK_S)


def _folder(connection: PlainConnection) -> str:
    return str(connection.ask("SELECT current_setting('unix_socket_directories')")[0][0])


async def test_a_primary_that_does_not_know_of_its_successor_is_left(
    place: tuple[Programs, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads leave it, too, and a snapshot of what was there before ends."""
    monkeypatch.setattr(postgresql, "COMMIT_S", PATIENCE_S)
    async with pair(place) as (_, standby, url), opened(url) as inbox:
        await acknowledged(inbox, "e1")
        async with inbox.database.reader.connect() as before:
            assert await run_snapshot(before, _folder) != str(standby.folder)
            await asyncio.to_thread(standby.promote)
            await acknowledged(inbox, "e2")
            with pytest.raises(DBAPIError):
                await run_snapshot(before, _folder)
        assert await inbox.database.on_snapshot(_folder) == str(standby.folder)
        kept = await ask_in_loop(standby.url("postgres"), "SELECT count(*) FROM inbox")
        assert kept[0][0] >= 2


async def test_a_frozen_primary_is_left(place: tuple[Programs, Path]) -> None:
    """No start waits for it. Thawed, it is a former primary, and nothing is written there, even
    where the new one is gone."""
    async with pair(place) as (primary, standby, url), opened(url) as inbox:
        await acknowledged(inbox, "e1")
        primary.freeze()
        sending = asyncio.create_task(acknowledged(inbox, "e2"))
        await asyncio.to_thread(standby.promote)
        await sending
        async with opened(url) as other:
            await acknowledged(other, "e3")
        primary.freeze(signal.SIGCONT)
        alone = "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"
        await ask_in_loop(primary.url("postgres"), *alone)
        await asyncio.to_thread(standby.kill)
        with suppress(StoreUnavailable):  # over the connection that has ended
            await keep(inbox, arrival(said("e4", order="A")))
        with pytest.raises(StoreUnavailable) as refused:
            await keep(inbox, arrival(said("e4", order="A")))
        assert str(refused.value) == FORMER


async def test_a_commit_that_nobody_confirms_is_given_up(
    place: tuple[Programs, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been made. The other hosts come first from then on."""
    monkeypatch.setattr(postgresql, "COMMIT_S", 0.5)
    async with pair(place) as (primary, standby, url):
        async with opened(url) as inbox:
            await acknowledged(inbox, "e1")
            standby.freeze()
            with pytest.raises(StoreUnavailable, match="connection to the database was lost"):
                await keep(inbox, arrival(said("e2", order="A")))
            standby.freeze(signal.SIGCONT)
            await acknowledged(inbox, "e2")
        hosts, folders = Hosts(), [str(primary.folder), str(standby.folder)]
        connect = partial(hosts.connect, writes=False, host=folders, port=[PORT, PORT])
        for folder in (*folders, *folders):
            one = await connect(user="postgres", target_session_attrs="any")
            assert one.address[0] == folder
            hosts.leave(one, reason="commit_unconfirmed")
