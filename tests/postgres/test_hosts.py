"""Several named hosts: one that takes connections and confirms nothing is left for the next."""

import asyncio
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from app.core.errors import StoreUnavailable
from app.database import hosts, postgresql
from app.database.database import Database
from app.database.hosts import FORMER, Connection, Hosts
from app.database.statements import PlainConnection, run_snapshot
from app.receiving.inbox import Inbox
from tests.contexts import settings_of
from tests.database.builders import arrival, keep, opened, said, submit
from tests.postgres.conftest import ask_in_loop
from tests.postgres.loading import kept
from tests.postgres.server import PORT, Programs
from tests.postgres.test_takeover import pair, place, services
from tests.waiting import PATIENCE_S, soon

__all__ = ("place",)

pytestmark = pytest.mark.postgres


def _folder(connection: PlainConnection) -> str:
    return str(connection.ask("SELECT current_setting('unix_socket_directories')")[0][0])


@pytest.mark.parametrize(
    ("commit_s", "watch_s"),
    [
        pytest.param(PATIENCE_S, 1.0, id="as another server writes"),
        pytest.param(0.5, PATIENCE_S, id="as a commit is not confirmed", marks=pytest.mark.soak),
    ],
)
async def test_a_primary_that_does_not_know_of_its_successor_is_left(
    place: tuple[Programs, Path], monkeypatch: pytest.MonkeyPatch, commit_s: float, watch_s: float
) -> None:
    """Reads leave it, too, and a snapshot of what was there before ends."""
    monkeypatch.setattr(postgresql, "COMMIT_S", commit_s)
    monkeypatch.setattr(hosts, "WATCH_S", watch_s)
    monkeypatch.setattr(hosts, "LOOK_S", PATIENCE_S)
    async with pair(place, f"s{commit_s:.0f}") as servers, services(servers, 1) as (inbox,):
        standby = servers.standby
        await kept(inbox, "e1", by=submit)
        async with inbox.database.reader.connect() as before:
            assert await run_snapshot(before, _folder) != str(standby.folder)
            await asyncio.to_thread(standby.promote)
            await kept(inbox, "e2", by=submit)
            with pytest.raises(DBAPIError):
                await run_snapshot(before, _folder)
        assert await inbox.database.on_snapshot(_folder) == str(standby.folder)
        rows = await ask_in_loop(standby.url("postgres"), "SELECT count(*) FROM inbox")
        assert rows[0][0] >= 2


@pytest.mark.costly
async def test_a_frozen_primary_is_left(place: tuple[Programs, Path]) -> None:
    """No start waits for it. Thawed, it is a former primary, and nothing is written there, even
    where the new one is gone."""
    async with pair(place, "f") as servers, services(servers, 1) as (inbox,):
        primary, standby = servers.primary, servers.standby
        await kept(inbox, "e1", by=submit)
        primary.freeze()
        sending = asyncio.create_task(kept(inbox, "e2", by=submit))
        await asyncio.to_thread(standby.promote)
        await sending
        async with opened(servers.url) as other:
            await kept(other, "e3", by=submit)
        primary.freeze(signal.SIGCONT)
        alone = "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"
        await ask_in_loop(primary.url("postgres"), *alone)
        await asyncio.to_thread(standby.kill)
        with suppress(StoreUnavailable):  # over the connection that has ended
            await keep(inbox, arrival(said("e4", order="A")))
        with pytest.raises(StoreUnavailable) as refused:
            await keep(inbox, arrival(said("e4", order="A")))
        assert str(refused.value) == FORMER


@pytest.mark.costly
async def test_a_process_that_only_reads_follows_a_takeover(
    place: tuple[Programs, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "LOOK_S", 0.1)
    async with pair(place, "r") as servers:
        primary, standby = servers.primary, servers.standby
        database = Database(settings_of(servers.url))
        assert await database.on_snapshot(_folder) == str(primary.folder)
        await asyncio.to_thread(standby.promote)

        async def followed() -> bool:
            return await database.on_snapshot(_folder) == str(standby.folder)

        await soon(followed)
        await database.close()


async def test_a_writer_whose_server_was_left_between_two_commits_connects_anew(
    inbox: Inbox,
) -> None:
    """Another task leaves it, such as one that asks all hosts whether a standby took over."""
    await kept(inbox, "e1", by=submit)
    connection = inbox.writer.writer._connection
    assert connection is not None
    left = (await connection.get_raw_connection()).driver_connection
    assert isinstance(left, Connection)
    left.hosts.leave(left, reason="another_writes")
    await submit(inbox, arrival(said("e2", order="A")))


@pytest.mark.costly
async def test_a_host_that_is_a_standby_leads_on_to_the_next(
    place: tuple[Programs, Path],
) -> None:
    """It is tried first where the primary was left later, as when no standby confirms commits."""
    async with pair(place, "n") as servers:
        folders = [str(each.folder) for each in (servers.standby, servers.primary)]
        found = await Hosts().connect(writes=True, host=folders, port=PORT, user="postgres")
        assert found.address[0] == folders[1]
        found.terminate()


async def test_a_commit_that_nobody_confirms_is_given_up(
    place: tuple[Programs, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been made. The other hosts come first from then on."""
    monkeypatch.setattr(postgresql, "COMMIT_S", 0.5)
    async with pair(place, "c") as servers:
        primary, standby = servers.primary, servers.standby
        async with opened(servers.url) as inbox:
            await kept(inbox, "e1", by=submit)
            standby.freeze()
            with pytest.raises(StoreUnavailable, match="connection to the database was lost"):
                await keep(inbox, arrival(said("e2", order="A")))
            standby.freeze(signal.SIGCONT)
            await kept(inbox, "e2", by=submit)
        named, folders = Hosts(), [str(primary.folder), str(standby.folder)]
        connect = partial(named.connect, writes=False, host=folders, port=[PORT, PORT])
        for folder in (*folders, *folders):
            one = await connect(user="postgres", target_session_attrs="any")
            assert one.address[0] == folder
            named.leave(one, reason="commit_unconfirmed")
