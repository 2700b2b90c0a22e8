"""Two database nodes and a witness, under load, through HAProxy and through several hosts at once.

Each test breaks one thing, mends it as a supervisor or a person would, and then looks: nothing that
was acknowledged is missing, no money counts twice, the check is clean, the feed was unbroken, and
nobody is asked to do anything.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from app.core.clock import SystemClock
from reconcile.instants import SECOND
from tests.database.builders import opened
from tests.e2e.processes import Process, command, running, serving, token
from tests.faults.load import Load, load
from tests.faults.mounts import mounted
from tests.ha.cluster import NODES, PASSWORD, Cluster, Mode, whole
from tests.ha.tools import tools
from tests.ha.watching import Feed, Probe, silence, watched
from tests.memory import memory
from tests.postgres.conftest import ask, ask_in_loop
from tests.postgres.loading import stored_twice, told_wrongly
from tests.postgres.server import programs
from tests.postgres.test_killed import Promised
from tests.waiting import until

pytestmark = pytest.mark.postgres

REST_S: Final = 0.05
"""Pause of each sender, so that two cores are not the limit."""

DISK_MB: Final = 384
"""Room of a node whose disk is to be full: a new cluster takes 60, its log up to as much again."""

Mend = Callable[[], None]


def led(cluster: Cluster, node: str) -> None:
    """Wait until this node leads."""
    until(lambda: cluster.leader() == node, otherwise=cluster.said)


# --- what is broken; each returns what mends it ---------------------------------------------------


def killed(cluster: Cluster) -> Mend:
    """Stop the leader's machine. It is started again once the other node leads."""
    cluster.kill_node("one")
    led(cluster, "two")
    return lambda: cluster.start_patroni("one")


def switched_over(cluster: Cluster) -> Mend:
    """Move the leader as a person does."""
    cluster.control("switchover", "--leader", "one", "--candidate", "two", "--force")
    led(cluster, "two")
    return lambda: None


def patroni_frozen(cluster: Cluster) -> Mend:
    """Freeze the leader's Patroni, while its PostgreSQL goes on. The watchdog restarts that
    machine, once the other node leads: here the test does."""
    os.kill(cluster.pid("patroni-one"), signal.SIGSTOP)
    led(cluster, "two")

    def mend() -> None:
        cluster.kill_node("one")
        cluster.start_patroni("one")

    return mend


def patroni_frozen_unwatched(cluster: Cluster) -> Mend:
    """Freeze it without a watchdog: both nodes take connections for half a minute."""
    os.kill(cluster.pid("patroni-one"), signal.SIGSTOP)
    led(cluster, "two")
    waits(30)
    return lambda: os.kill(cluster.pid("patroni-one"), signal.SIGCONT)


def postgresql_frozen(cluster: Cluster) -> Mend:
    """Freeze all of the leader's PostgreSQL."""
    cluster.signal("one", signal.SIGSTOP)
    led(cluster, "two")
    return lambda: cluster.signal("one", signal.SIGCONT)


def quorum_lost(cluster: Cluster) -> Mend:
    """End two of three members of etcd for longer than the leader's key lives."""
    gone = ("two", "witness")
    for machine in gone:
        cluster.kill(f"etcd-{machine}")
    waits(25)

    def mend() -> None:
        for machine in gone:
            cluster.start_etcd(machine)

    return mend


def standby_lost(cluster: Cluster) -> Mend:
    """Stop the standby's machine for a while."""
    cluster.kill_node("two")
    waits(20)
    return lambda: cluster.start_patroni("two")


def disk_full(cluster: Cluster) -> Mend:
    """Fill the leader's disk."""
    file = cluster.home["one"] / "filler"
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(65_536))
        except OSError:
            pass
    waits(25)
    return file.unlink


def waits(seconds: float) -> None:
    """Let a fault last."""
    ends = SystemClock().now() + round(seconds * SECOND)
    until(lambda: SystemClock().now() > ends)


# --- the services ---------------------------------------------------------------------------------


def services(folder: Path, cluster: Cluster, stack: ExitStack) -> dict[str, Process]:
    """Run a receiver and a worker for each address until the stack ends; return the receivers."""
    ask(cluster.url_of("one", "postgres"), f"CREATE USER tallyhook PASSWORD '{PASSWORD}'")
    for name in ("tallyhook", "probe"):
        ask(cluster.url_of("one", "postgres"), f"CREATE DATABASE {name} OWNER tallyhook")
    ask(cluster.url_of("one", "probe"), "CREATE TABLE probes AS SELECT 0 AS number")
    receivers = {}
    for way, url in cluster.urls().items():
        own: dict[str, Any] = {"DATABASE_URL": url, "STANDBYS": "1"}
        done = command(folder, "db", "upgrade", **own)
        assert done.returncode == 0, done.stderr
        receivers[way] = stack.enter_context(serving(folder, "--no-worker", **own))
        worker = stack.enter_context(running(folder, "worker", **own))
        stack.push(partial(_ends_well, receivers[way]))
        stack.push(partial(_ends_well, worker))
    return receivers


def _ends_well(process: Process, *failed: object) -> None:
    """Stop a process in order. It has not ended by itself, and has met nothing unforeseen."""
    if failed == (None, None, None):
        assert process.popen.poll() is None, bytes(process.log[-2_000:])
        assert process.end() == 0
        assert all("Traceback" not in str(line) for line in process.lines)


def goes_on(drivers: Mapping[str, Load], receivers: Mapping[str, Process]) -> None:
    """Wait until each driver has fifty more acknowledgements."""
    for driver in drivers.values():
        wanted = len(driver.ledger.acknowledged) + 50
        until(
            partial(lambda one, count: len(one.ledger.acknowledged) >= count, driver, wanted),
            otherwise=lambda: [
                (each.get("/readyz"), bytes(each.log[-3_000:])) for each in receivers.values()
            ],
        )


# --- what is there afterwards ---------------------------------------------------------------------


async def wrong_in(url: str, promised: Promised, feed: Feed) -> list[str]:
    """Say what is missing, twice or not as the feed told it."""
    found = {row[0] for row in await ask_in_loop(url, "SELECT id FROM deliveries")}
    missing = len(promised.deliveries - found)
    wrong = [f"{missing} acknowledged deliveries are missing"] if missing else []
    async with opened(url) as inbox:
        if twice := await stored_twice(inbox):
            wrong.append(f"stored twice: {twice[:5]}")
        now = SystemClock().now()
        if told := await told_wrongly(inbox, promised.orders, as_of=now):
            wrong.append(f"{len(told)} orders were told wrongly: {told[:5]}")
    revisions = [row[0] for row in await ask_in_loop(url, "SELECT seq FROM revisions ORDER BY seq")]
    if feed.breaks:
        wrong.append(f"the feed was broken: {feed.breaks[:3]}")
    if feed.ids != revisions:
        wrong.append(f"the feed told {len(feed.ids)} of {len(revisions)} revisions, or others")
    return wrong


def asked_of_people(folder: Path, url: str, receivers: Mapping[str, Process]) -> list[str]:
    """Say what the check finds, and what a person is asked to do."""
    wrong = []
    check = command(folder, "db", "check", DATABASE_URL=url)
    if check.returncode:
        wrong.append(f"db check: {check.stdout.decode()[-500:]} {check.stderr.decode()[-500:]}")
    for way, receiver in receivers.items():
        status, _, body = receiver.request("GET", "/readyz")
        if status != 200:
            wrong.append(f"/readyz through {way}: {body.decode()[:500]}")
        elif unsafe := json.loads(body).get("unsafe"):
            wrong.append(f"/readyz through {way} is unsafe: {unsafe}")
    return wrong


def played(
    cluster: Cluster, folder: Path, fault: Callable[[Cluster], Mend], name: str
) -> list[str]:
    """Break and mend under load; print what it cost and return what is wrong."""
    with ExitStack() as running_services:
        receivers = services(folder, cluster, running_services)
        probe = Probe(
            {node: cluster.url_of(node, "probe").replace("+asyncpg", "") for node in NODES}
        )
        through = cluster.urls()["haproxy"]
        feed = Feed([each.port for each in receivers.values()], token(folder, DATABASE_URL=through))
        with watched(probe, feed):
            with ExitStack() as stack:
                drivers = {
                    way: stack.enter_context(load(receiver.port, name=way, rest_s=REST_S))
                    for way, receiver in receivers.items()
                }
                goes_on(drivers, receivers)
                began = SystemClock().now()
                mend = fault(cluster)
                mended = SystemClock().now()
                mend()
                until(cluster.is_whole, otherwise=cluster.said)
                goes_on(drivers, receivers)
            promised = Promised()
            for way, driver in drivers.items():
                promised.add(driver, receivers[way].port)
            leader = cluster.leader()
            assert leader is not None, cluster.said()
            url = cluster.url_of(leader, "tallyhook")
            waiting = "SELECT count(*) FROM order_due WHERE due_at IS NOT NULL"
            until(lambda: ask(url, waiting)[0][0] == 0)
            newest = ask(url, "SELECT max(seq) FROM revisions")[0][0]
            until(lambda: newest in feed.ids, otherwise=lambda: feed.breaks)
            wrong = asked_of_people(folder, through, receivers)
        wrong += asyncio.run(wrong_in(url, promised, feed))
        engine = silence(probe.commits, since=began)
        print(
            f"\n{name}: {len(promised.deliveries):,} acknowledged, {promised.refused:,} refused, "
            f"{promised.kept} of them kept; feed {len(feed.ids):,}; mended after "
            f"{(mended - began) / SECOND:.1f} s; the engine was silent for {engine.lasted_s:.1f} s"
        )
        for way, driver in drivers.items():
            times = [answer.at for answer in driver.ledger.acknowledged]
            first = min((at for at in times if at >= engine.until), default=engine.until)
            print(
                f"  {way}: silent for {silence(times, since=began).lasted_s:.1f} s; first "
                f"acknowledged {(first - engine.until) / SECOND:.2f} s after the engine's silence"
            )
        print(f"  wrong: {wrong}")
    return wrong


CELLS: Final[list[tuple[Callable[[Cluster], Mend], Mode]]] = [
    (killed, "strict"),
    (killed, "loose"),
    (switched_over, "strict"),
    (patroni_frozen, "strict"),
    (patroni_frozen_unwatched, "strict"),
    (patroni_frozen_unwatched, "loose"),
    (postgresql_frozen, "strict"),
    (postgresql_frozen, "loose"),
    (quorum_lost, "strict"),
    (standby_lost, "strict"),
    (standby_lost, "loose"),
    (disk_full, "strict"),
    (disk_full, "loose"),
]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("fault", "mode"),
    [pytest.param(fault, mode, id=f"{fault.__name__}-{mode}") for fault, mode in CELLS],
)
def test_nothing_is_lost_and_nobody_is_needed(
    fault: Callable[[Cluster], Mend], mode: Mode, tmp_path: Path
) -> None:
    with programs(within=memory()) as (found, folder), ExitStack() as stack:
        cluster = Cluster(tools(), found, folder, mode)
        if fault is disk_full:
            small = ("-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=777", "tmpfs")
            stack.enter_context(mounted(cluster.home["one"], *small))
        stack.enter_context(whole(cluster))
        assert played(cluster, tmp_path, fault, f"{fault.__name__} ({mode})") == []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_control_an_asynchronous_standby_loses_and_each_receiver_says_so(tmp_path: Path) -> None:
    """The leader is killed while the standby stands still, so that it lacks what was acknowledged
    meanwhile. Nothing goes on until a person has accepted that."""
    with (
        programs(within=memory()) as (found, folder),
        whole(Cluster(tools(), found, folder, "asynchronous")) as cluster,
        ExitStack() as stack,
    ):
        receivers = services(tmp_path, cluster, stack)
        with load(receivers["hosts"].port, rest_s=REST_S) as driver:
            goes_on({"hosts": driver}, receivers)
            cluster.signal("two", signal.SIGSTOP)
            goes_on({"hosts": driver}, receivers)
            cluster.kill_node("one")
            cluster.signal("two", signal.SIGCONT)
            led(cluster, "two")
        rows = ask(cluster.url_of("two", "tallyhook"), "SELECT id FROM deliveries")
        assert driver.ledger.deliveries - {row[0] for row in rows}
        for receiver in receivers.values():
            until(lambda one=receiver: "`tallyhook db restored" in str(one.get("/readyz")))
