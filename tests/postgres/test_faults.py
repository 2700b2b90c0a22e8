"""Faults of the server and of the way to it: nothing that was acknowledged is ever lost.

Each kind of fault has a control: the same procedure with a protection taken out must lose
something, or the fault was never there.
"""

import asyncio
import functools
import itertools
import json
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from app.access.operators import register_operator
from app.cli import main
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable
from app.database import postgresql, servers
from app.database.facts import database_facts
from app.database.faults import SILENT
from app.database.holders import Holder
from app.database.servers import AWAITS_STANDBY
from app.database.writer import Writer
from app.monitoring import health
from app.monitoring.health import refusal
from app.monitoring.preflight import of_database
from app.orders import refold
from app.receiving import caught_up
from app.receiving.append_store import Appended, KnownEvents
from app.receiving.inbox import Inbox, open_inbox
from reconcile.instants import SECOND
from tests.api.driving import driving, environ
from tests.contexts import settings_of
from tests.database.builders import (
    arrival,
    context,
    fetch,
    keep,
    opened,
    rows,
    said,
    submit,
)
from tests.database.contract_ledgers import paid
from tests.docs.test_runbook import RUNBOOK
from tests.memory import memory
from tests.postgres.conftest import a_database, ask, ask_in_loop, migrate
from tests.postgres.loading import (
    Load,
    assert_kept_once,
    kept,
    stored_twice,
    told_wrongly,
    under_load,
)
from tests.postgres.proxy import Proxy
from tests.postgres.server import ENDINGS, Programs, Server, programs
from tests.reconcile.build import seconds
from tests.waiting import LOOK_S, PATIENCE_S, soon, until

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Programs, Path]]:
    """Yield the programs for servers that may be broken; none loses its power, so no disk is
    needed."""
    with programs(within=memory()) as found:
        yield found


@pytest.fixture(scope="module")
def server(place: tuple[Programs, Path]) -> Iterator[Server]:
    """Run a server of this module's own."""
    found, folder = place
    server = Server(found, folder / "s")
    server.make()
    server.start()
    yield server
    server.stop()


NEW = "newest"


@pytest.fixture(scope="module")
def newest(server: Server) -> str:
    """Make a database of the newest version, which is only copied."""
    ask(server.url("postgres"), f"CREATE DATABASE {NEW}")
    asyncio.run(migrate(server.url(NEW)))
    return NEW


@pytest.fixture
def own_url(server: Server, newest: str) -> Iterator[str]:
    """Copy that database. The test leaves the server running."""
    with a_database(server.url("postgres"), like=newest) as url:
        yield url


async def in_thread(work: Any, *words: Any) -> None:
    await asyncio.to_thread(work, *words)


# --- the server ends ------------------------------------------------------------------------------


async def through_endings(server: Server, url: str, ending: Any, *settings: str) -> Load:
    """Load services while their server ends and comes back; return the load."""
    async with opened(url) as inbox, under_load(inbox) as load:
        for _ in range(2):
            await load.reach(150)
            await in_thread(ending, server)
            await load.reach(0, refusals=10)
            with pytest.raises(StoreUnavailable):
                await refusal(context(inbox))
            await in_thread(server.start, *settings)
            await load.go_on(20)
            await refusal(context(inbox))
        assert inbox.database.writer.poison is None
    return load


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(ending, id=name, marks=() if name == "killed" else pytest.mark.soak)
        for name, ending in ENDINGS.items()
    ],
)
async def test_a_server_that_ends_and_comes_back(server: Server, own_url: str, ending: Any) -> None:
    """Meanwhile everything is refused. Afterwards the same process goes on, and nothing is lost or
    doubled."""
    load = await through_endings(server, own_url, ending)
    await assert_kept_once(own_url, load)
    print(load)


@pytest.mark.soak
async def test_a_server_that_does_not_wait_for_its_disk_is_caught(
    server: Server, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with synchronous_commit off, killing the server loses acknowledged
    deliveries."""
    monkeypatch.setattr(servers, "check_server", lambda cursor: None)
    careless = ("synchronous_commit=off", "wal_writer_delay=10s")
    await in_thread(server.stop)
    await in_thread(server.start, *careless)
    try:
        load = await through_endings(server, own_url, ENDINGS["killed"], *careless)
    finally:
        await in_thread(server.stop)
        await in_thread(server.start)
    assert await load.lost(own_url)


async def test_events_stored_twice_are_caught(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: receivers take every delivery for new, and the server lets them."""
    monkeypatch.setattr(KnownEvents, "judge", lambda *_: "stored")
    async with opened(own_url) as inbox:
        await ask_in_loop(own_url, "ALTER TABLE events DROP CONSTRAINT pk_events")
        for _ in range(2):
            await keep(inbox, arrival(paid("A")))
        assert await stored_twice(inbox) == ["paid-A"]


async def test_published_twice_is_caught(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: workers do not ask what was published before."""
    monkeypatch.setattr(refold, "last_positions", lambda *_: {})
    async with opened(own_url) as inbox:
        for _ in range(2):
            await keep(inbox, arrival(paid("A")))
            await refold.refold_due(context(inbox, at=1), limit=1)
        assert await told_wrongly(inbox, {"A"}, as_of=seconds(60)) == ["A"]


async def test_senders_do_not_wait_for_a_server_that_stands_still(
    server: Server, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused in time, and send again later."""
    monkeypatch.setattr(postgresql, "ANSWER_S", 1)
    async with opened(own_url) as inbox:
        server.freeze()
        try:
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(StoreUnavailable):
                    await keep(inbox, arrival(said("e1", order="A")))
        finally:
            server.freeze(signal.SIGCONT)
        assert await kept(inbox, "e1") in (["stored"], ["duplicate"])


async def test_readiness_does_not_wait_for_a_server_that_stands_still(
    server: Server, own_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER_S", 0.5)
    async with driving(tmp_path, with_worker=False, DATABASE_URL=own_url) as driver:
        server.freeze()
        try:
            async with asyncio.timeout(PATIENCE_S):
                ready = await driver.client.get("/readyz")
                figures = await driver.client.get("/metrics")
        finally:
            server.freeze(signal.SIGCONT)
        assert (ready.status_code, ready.json()["reasons"]) == (503, [SILENT])
        assert "tallyhook_store_writable 0" in figures.text
        monkeypatch.setattr(health, "ANSWER_S", PATIENCE_S)  # a busy machine takes longer, too
        await soon(driver.ready)


@pytest.mark.costly
@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace on this machine")
@pytest.mark.slow
async def test_an_io_error_of_the_servers_log_loses_nothing(
    place: tuple[Programs, Path],
) -> None:
    """The server stops by itself and starts again; the service goes on."""
    found, folder = place
    server, trace = Server(found, folder / "e"), folder / "e.trace"
    trace.touch()
    trace.chmod(0o666)
    await in_thread(server.make)
    inject = "inject=fdatasync:error=EIO:when=40"
    words = f"strace -f -qq --seccomp-bpf -o {trace} -e trace=fdatasync -e {inject}".split()
    await in_thread(server.start)
    url = server.url("postgres")
    await migrate(url)
    await in_thread(server.stop)
    await in_thread(lambda: server.start(around=words))
    try:
        async with opened(url) as inbox, under_load(inbox) as load:
            # The 40th sync of each connection fails, so that the one after the first fails, too.
            await soon(lambda: trace.read_text().count("(INJECTED)") >= 2)
            await load.reach(20)
            assert inbox.database.writer.poison is None
        # The connections that check would meet the next planted error.
        await in_thread(server.stop)
        await in_thread(server.start)
        await assert_kept_once(url, load)
        print(load)
    finally:
        await in_thread(server.stop)
    assert "PANIC" in server.log.read_text()


# --- the way to it is cut -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "arrives"),
    [
        pytest.param(b"evt_new", False, id="a statement, before it arrives"),
        pytest.param(b"evt_new", True, id="a statement, before its answer", marks=pytest.mark.soak),
        pytest.param(b"COMMIT", False, id="the commit, before it arrives", marks=pytest.mark.soak),
        pytest.param(b"COMMIT", True, id="the commit, before its answer"),
    ],
)
async def test_a_delivery_whose_connection_is_cut_is_not_acknowledged(
    server: Server, own_url: str, word: bytes, arrives: bool
) -> None:
    """Whether or not the server has committed; it is when it is sent again."""
    item = arrival(said("evt_new", order="A", payment="p"))
    with Proxy(server.folder) as proxy:
        async with opened(proxy.url(own_url)) as inbox:
            proxy.cut_at(word, arrives=arrives)
            with pytest.raises(StoreUnavailable):
                await keep(inbox, item)
            assert proxy.cuts == 1
            again = await keep(inbox, arrival(item.event))
            assert again == ["duplicate" if arrives and word == b"COMMIT" else "stored"]
            kept = await rows(inbox, "SELECT count(*) FROM deliveries WHERE verdict = 'stored'")
            assert kept == [(1,)]


async def test_a_commit_that_is_believed_is_caught(
    server: Server, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a broken connection is taken for a commit."""
    commit = Writer.commit

    async def believing(writer: Writer, function: Any, ready: Any, **words: Any) -> Any:
        try:
            return await commit(writer, function, ready, **words)
        except StoreUnavailable:
            return Appended([each for row in ready for each in row.arrivals], ["stored"], {})

    monkeypatch.setattr(Writer, "commit", believing)
    with Proxy(server.folder) as proxy:
        async with opened(proxy.url(own_url)) as inbox:
            proxy.cut_at(b"evt_new", arrives=False)
            assert await keep(inbox, arrival(said("evt_new", order="A"))) == ["stored"]
            assert await ask_in_loop(own_url, "SELECT id FROM deliveries") == []


async def cut_while_kept(server: Server, url: str, *, arrives: bool) -> None:
    """Cut the connection while the inbox's row of a delivery is written; raise what its sender is
    told. The row may be there or not."""
    item = arrival(said("evt_new", order="A"))
    with Proxy(server.folder) as proxy:
        async with opened(proxy.url(url)) as inbox:
            await submit(inbox, arrival(said("evt_first", order="A")))  # it knows its place now
            proxy.cut_at(item.digest.encode(), arrives=arrives)
            try:
                await submit(inbox, item)
            finally:
                assert proxy.cuts == 1
                found = await ask_in_loop(url, "SELECT count(*) FROM inbox")
                assert found[0][0] == 1 + arrives
                await submit(inbox, arrival(item.event))  # sent again, over another connection


@pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "before its answer"])
async def test_a_connection_cut_while_a_delivery_is_kept(
    server: Server, own_url: str, arrives: bool
) -> None:
    """Its row is one statement that commits itself. It is not acknowledged before it is sent
    again."""
    with pytest.raises(StoreUnavailable, match="connection to the database was lost"):
        await cut_while_kept(server, own_url, arrives=arrives)
    assert (await ask_in_loop(own_url, "SELECT count(*) FROM inbox"))[0][0] == 2 + arrives


async def test_a_row_that_is_believed_is_caught(
    server: Server, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a broken connection is taken for a kept row."""
    commit = Writer.commit_statement

    async def believing(writer: Writer, sql: str, values: Any) -> None:
        with suppress(StoreUnavailable):
            await commit(writer, sql, values)

    monkeypatch.setattr(Writer, "commit_statement", believing)
    await cut_while_kept(server, own_url, arrives=False)


# --- a standby takes over -------------------------------------------------------------------------

REPORT = ("report", "period", "--from", "2020-01-01", "--to", "2026-12-31", "--format", "json")


async def musts(inbox: Inbox) -> str:
    """Return what `doctor` demands to be changed about the server."""
    checks = of_database(await fetch(inbox, database_facts))
    return " ".join(each.sentence for each in checks if each.state == "must")


@pytest.mark.costly
async def test_a_standby_that_lags_behind_is_no_ground_for_a_report(
    place: tuple[Programs, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It reports only as of an instant that it has, like its primary; what else it answers says how
    far it may be behind."""
    monkeypatch.setattr(caught_up, "COPY_LATE", 2 * SECOND)
    found, folder = place
    primary, standby = Server(found, folder / "lp"), Server(found, folder / "ls")
    own = standby.url("postgres")
    for name, value in environ(tmp_path, DATABASE_URL=own).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    async def told(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main.run, words)
        return code, *capsys.readouterr()

    await in_thread(primary.make)
    await in_thread(primary.start)
    try:
        await migrate(primary.url("postgres"))
        await in_thread(lambda: standby.copy_from(primary, name="other"))
        await in_thread(standby.start)
        async with (
            opened(primary.url("postgres")) as inbox,
            open_inbox(settings_of(own), purpose="reading") as copy,
        ):
            asked = copy.context(clock=SystemClock())

            async def commit_now_and_then() -> None:
                while True:
                    await ask_in_loop(primary.url("postgres"), "SELECT txid_current()")
                    await asyncio.sleep(LOOK_S)

            committing = asyncio.create_task(commit_now_and_then())
            await keep(inbox, arrival(said("e1", order="A")))
            code, before, _ = await told(*REPORT)
            report = json.loads(before)
            assert (code, report["control"][0]["count"]) == (0, 1)
            await ask_in_loop(own, "SELECT pg_wal_replay_pause()")
            await keep(inbox, arrival(said("e2", order="B")))
            # It lags for less than what a primary without deliveries takes between two commits.
            code, shown, refusal = await told(*REPORT)
            assert (code, shown) == (4, "")
            assert "this standby lags behind its primary" in refusal
            assert (await told(*REPORT, "--as-of", report["as_of"]))[:2] == (0, before)
            await soon(lambda: caught_up.behind_s(asked, patience="none"))
            assert "may not have been read yet" in (await told("orders", "list"))[2]
            await ask_in_loop(own, "SELECT pg_wal_replay_resume()")
            code, after, _ = await told(*REPORT)
            assert (code, json.loads(after)["control"][0]["count"]) == (0, 2)
            committing.cancel()
    finally:
        await in_thread(standby.stop)
        await in_thread(primary.stop)


async def keep_on(inbox: Inbox) -> None:
    """Keep event after event until the server follows a new setting."""
    for number in itertools.count():
        await keep(inbox, arrival(said(f"w{number}", order="A")))


async def take_on(inbox: Inbox) -> None:
    """Take request after request, as the receiver does."""
    for number in itertools.count():
        await submit(inbox, arrival(said(f"t{number}", order="A")))


async def act_on(inbox: Inbox) -> None:
    """Do act after act of a person."""
    for number in itertools.count():
        by = "ada 0" if number else None
        await register_operator(context(inbox), name=f"ada {number}", role="admin", by=by)


@pytest.mark.parametrize("going_on", [keep_on, take_on, act_on])
async def test_a_commit_that_stopped_waiting_for_its_standby_is_not_acknowledged(
    server: Server, own_url: str, going_on: Callable[[Inbox], Awaitable[None]]
) -> None:
    """Neither of a delivery, nor of what was read of one, nor of a person's act."""
    async with opened(own_url) as inbox:
        # Over connections that are there already: a new one would be refused.
        await keep(inbox, arrival(said("e0", order="A")))
        await submit(inbox, arrival(said("t", order="A")))
        wait_for = "ALTER SYSTEM SET synchronous_standby_names='nobody'"
        await ask_in_loop(own_url, wait_for, "SELECT pg_reload_conf()")
        try:
            waiting = asyncio.ensure_future(going_on(inbox))
            await until_it_waits(own_url)
            with pytest.raises(StoreUnavailable, match="standby"):
                await waiting
        finally:
            await in_thread(configured, server, "synchronous_standby_names", "")
        assert (await keep(inbox, arrival(said("e1", order="A"))))[0] == "stored"


async def test_a_row_is_never_kept_inside_a_transaction(own_url: str) -> None:
    """It would be acknowledged, and wait for a COMMIT that nobody sends."""
    async with opened(own_url) as inbox, inbox.database.writing() as connection:
        await connection.execute(text("SELECT 1"))
        with pytest.raises(AssertionError):
            await postgresql.run_statement(connection, "SELECT 1", (), holder=Holder("serving"))


@pytest.mark.parametrize("names", ["nobody", "FIRST 1 (nobody)", "ANY 2 (nobody, else)"])
async def test_no_commit_begins_without_the_standby_it_would_wait_for(
    server: Server, own_url: str, names: str
) -> None:
    """A start says so, too."""
    configure = functools.partial(configured, server, "synchronous_standby_names")
    async with opened(own_url) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
        await in_thread(configure, f"'{names}'")
        try:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"
            name = make_url(own_url).database
            await ask_in_loop(server.url("postgres"), ended.format(name))
            for told in (None, AWAITS_STANDBY):
                with pytest.raises(StoreUnavailable) as refused:
                    await keep(inbox, arrival(said("e2", order="A")))
                assert told in (None, str(refused.value))
            with suppress(StoreUnavailable):  # over the connection that was ended
                await refusal(context(inbox))
            assert await refusal(context(inbox)) == AWAITS_STANDBY
            assert (await fetch(inbox, database_facts)).awaits
            with pytest.raises(StoreUnavailable, match="waits for a standby"):
                await migrate(own_url)
        finally:
            await in_thread(configure, "")
        assert (await keep(inbox, arrival(said("e2", order="A"))))[0] == "stored"


async def until_it_waits(url: str) -> None:
    """Wait until a commit waits for a standby, then break its wait off."""
    sql = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await ask_in_loop(url, sql):
                return
            await asyncio.sleep(LOOK_S)


@pytest.mark.costly
async def test_a_warning_about_numbers_refuses_nothing(
    place: tuple[Programs, Path],
) -> None:
    """The server warns at each statement, millions of transactions before the end."""
    found, folder = place
    server, warning = Server(found, folder / "n"), "must be vacuumed within"
    await in_thread(server.make)
    await in_thread(server.start)
    try:
        url = server.url("postgres")
        await migrate(url)
        await in_thread(server.stop)
        await in_thread(server.use_up_numbers)
        await in_thread(server.start, "autovacuum_naptime=1d")  # which gives no numbers back
        async with opened(url) as inbox:
            before = server.log.read_text().count(warning)
            await submit(inbox, arrival(said("e1", order="A")))
            assert server.log.read_text().count(warning) > before
    finally:
        await in_thread(server.stop)


async def test_the_runbooks_statements_show_the_standbys_and_let_commits_go_on(
    server: Server, own_url: str
) -> None:
    """With one copy, as the page has them and in its order."""
    written = re.findall("`((?:SELECT|SHOW|ALTER SYSTEM) [^`]+)`", RUNBOOK.read_text())
    assert "ALTER SYSTEM SET synchronous_standby_names = ''" in written
    async with opened(own_url) as inbox:

        async def is_kept() -> bool:
            with suppress(StoreUnavailable):
                return bool(await keep(inbox, arrival(said("e1", order="A"))))
            return False

        await in_thread(configured, server, "synchronous_standby_names", "'nobody'")
        try:
            assert not await is_kept()
            await ask_in_loop(own_url, *written)
            await soon(is_kept)
        finally:
            await in_thread(configured, server, "synchronous_standby_names", "")


# --- a server that is not to be trusted -----------------------------------------------------------


def configured(server: Server, name: str, value: str) -> None:
    change = f"SET {name}={value}" if value else f"RESET {name}"
    url = server.url("postgres")
    ask(url, f"ALTER SYSTEM {change}", "SELECT pg_reload_conf()")
    shown = value.strip("'") or ("" if name.endswith("_names") else "on")
    until(lambda: ask(url, f"SHOW {name}")[0][0] == shown)


@pytest.mark.parametrize(
    "name",
    [
        "synchronous_commit",
        pytest.param("fsync", marks=pytest.mark.soak),
        pytest.param("full_page_writes", marks=pytest.mark.soak),
    ],
)
async def test_a_server_that_may_lose_is_refused(server: Server, own_url: str, name: str) -> None:
    """A service that meets it after a lost connection ends."""
    async with opened(own_url) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
        await in_thread(configured, server, name, "off")
        try:
            with pytest.raises(ConfigurationError, match=f"has {name}=off"):
                async with open_inbox(settings_of(own_url)):
                    pass
            await ask_in_loop(
                own_url,
                f"SELECT pg_terminate_backend(pid, {PATIENCE_S * 1000:.0f}) FROM pg_stat_activity "
                "WHERE application_name = 'tallyhook serving'",
            )
            # The first may still meet the end of its connection.
            with pytest.raises((StoreUnavailable, StorePoisoned)):
                await keep(inbox, arrival(said("e2", order="A")))
            with pytest.raises(StorePoisoned, match=name):
                await keep(inbox, arrival(said("e2", order="A")))
        finally:
            await in_thread(configured, server, name, "")


@pytest.mark.parametrize(
    "asked_for",
    [pytest.param(False, marks=pytest.mark.costly), True],
    ids=["any server", "one that writes"],
)
async def test_a_service_goes_on_unready_while_its_server_takes_no_writes(
    server: Server, own_url: str, asked_for: bool
) -> None:
    """None starts on it."""
    own, name = server.url("postgres"), str(make_url(own_url).database)
    url = own_url + ("&target_session_attrs=read-write" if asked_for else "")
    change = f'ALTER DATABASE "{name}" SET default_transaction_read_only'
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"
    told = "matches its target_session_attrs" if asked_for else "the server takes no writes"
    async with opened(url) as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
        await ask_in_loop(own, f"{change} = on", ended.format(name))
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await keep(inbox, arrival(said("e2", order="A")))
        if asked_for:  # nor are its questions answered
            with pytest.raises(StoreUnavailable, match=told):
                await refusal(context(inbox))
        else:
            assert str(await refusal(context(inbox))).startswith(told)
            with pytest.raises(StoreUnavailable, match=told):
                async with open_inbox(settings_of(url)):
                    pass
            assert "default_transaction_read_only is on" in await musts(inbox)
        await ask_in_loop(own, f"{change} = off", ended.format(name))
        with suppress(StoreUnavailable):  # over the connection that was ended
            await refusal(context(inbox))
        await keep(inbox, arrival(said("e2", order="A")))
        assert await refusal(context(inbox)) is None
        assert inbox.database.writer.poison is None
