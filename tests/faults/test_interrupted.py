"""A service that is stopped, loses a part of itself, or has its clock set: acknowledged deliveries
are there, and it never goes on as half a service."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.core.clock import SystemClock
from reconcile.instants import MINUTE
from tests.api.driving import environ
from tests.docs.test_runbook import steps
from tests.e2e.processes import command
from tests.faults.check import assert_kept
from tests.faults.injecting import base, copied
from tests.faults.load import CONNECTIONS, Connection, load
from tests.faults.plants import (
    FAILING_JOURNAL,
    FAILING_WORKER,
    STEPWISE_FOLD,
    WATCHFUL,
    program,
    script,
    stepping,
)
from tests.faults.service import Service, a_service
from tests.waiting import until

pytestmark = pytest.mark.slow

UNREACHABLE = 4
NO_ALLOWANCE = {"REJECTIONS_PER_MINUTE_PER_ADDRESS": "1000000"}
"""Rate limit that no refused delivery uses up."""


def test_stopped_and_resumed(tmp_path: Path) -> None:
    """After a pause of the whole process the same connections are answered again."""
    with a_service(tmp_path) as service, load(service.port) as driver:
        driver.until(50)
        service.signal(signal.SIGSTOP)
        until(service.stands_still)
        told = len(driver.ledger.answers)
        time.sleep(1)
        # Each connection may still have found the answer that it was waiting for.
        assert len(driver.ledger.answers) <= told + CONNECTIONS
        told = len(driver.ledger.answers)
        service.signal(signal.SIGCONT)
        driver.until(told + 50)
        driver.stop()
        assert driver.ledger.statuses() == {200}
        assert len(driver.ledger.acknowledged) >= told + 50
        assert service.end(signal.SIGTERM) == 0
    assert_kept(tmp_path / "t.db", driver.ledger.deliveries)


def test_a_receiver_ends_with_its_part(tmp_path: Path) -> None:
    """The process ends with an error that names the part, and nothing acknowledged is lost."""
    with a_service(tmp_path, script=script(FAILING_JOURNAL)) as service:
        with load(service.port) as driver:
            driver.until(100_000)
        assert service.process.code() == UNREACHABLE
        last = bytes(service.process.log).splitlines()[-1]
    assert last == b"tallyhook: the queue of the inbox failed; see the log, then start again"
    assert len(driver.ledger.acknowledged) >= 20
    assert driver.ledger.statuses() <= {200, 503}
    assert_kept(tmp_path / "t.db", driver.ledger.deliveries)


def test_a_worker_ends_with_its_part_and_is_started_again(tmp_path: Path) -> None:
    """Deliveries are accepted meanwhile; readiness says that nothing is read, and the next start
    reads all of it."""
    with a_service(tmp_path, script=script(FAILING_WORKER), restarts="3") as service:
        with load(service.port, rest_s=0.1) as driver:
            driver.until(50)
            # A reader that has not begun yet is none that runs, either.
            until(lambda: b"a child process has ended" in service.process.log)
            until(lambda: b"has not been running" in service.process.request("GET", "/readyz")[2])
            assert len(driver.ledger.acknowledged) >= 50
        assert driver.ledger.statuses() == {200}
        assert service.end(signal.SIGTERM) == 0
    with a_service(tmp_path):
        until(lambda: _unread(tmp_path / "t.db") == 0)
    assert_kept(tmp_path / "t.db", driver.ledger.deliveries)


def _unread(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"ATTACH '{path}.inbox' AS inbox")
        counted = database.execute(
            "SELECT count(*) FROM inbox.inbox WHERE seq > "
            "(SELECT value FROM counters WHERE name='inbox position')"
        )
        return int(counted.fetchone()[0])


@pytest.mark.parametrize(
    ("pauses_s", "lives"),
    [
        ((0.1, 0.3), 2),
        pytest.param((0.0, 0.3), 4, marks=pytest.mark.soak),
        pytest.param((0.5, 0.0), 4, marks=pytest.mark.soak),
        pytest.param((0.1, 2.0), 4, marks=pytest.mark.soak),
    ],
)
def test_either_process_is_killed_first(
    tmp_path: Path, pauses_s: tuple[float, float], lives: int
) -> None:
    """Acknowledged deliveries are there, read once, and no reader is left behind."""
    promised = set[str]()
    for life in range(lives):
        with (
            a_service(tmp_path, restarts="1") as service,
            load(service.port, name=f"life-{life}") as driver,
        ):
            driver.until(60)
            time.sleep(pauses_s[0])
            os.kill(service.worker(), signal.SIGKILL)
            driver.until(len(driver.ledger.acknowledged) + 30)
            time.sleep(pauses_s[1])
            child = service.worker()
            assert service.end(signal.SIGKILL) == -signal.SIGKILL
        until(lambda child=child: not Path(f"/proc/{child}").exists())
        promised |= driver.ledger.deliveries
        assert_kept(tmp_path / "t.db", promised)
    with a_service(tmp_path) as service:
        until(lambda: _unread(tmp_path / "t.db") == 0)
        assert service.end(signal.SIGTERM) == 0
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        stored = {row[0] for row in database.execute("SELECT id FROM deliveries")}
    assert promised <= stored
    assert_kept(tmp_path / "t.db", promised)


def test_told_to_stop_under_load(tmp_path: Path) -> None:
    """Requests under way are finished or refused, and the process ends in order."""
    with a_service(tmp_path) as service, load(service.port) as driver:
        driver.until(200)
        assert service.end(signal.SIGTERM) == 0
    assert driver.ledger.statuses() <= {200, 503}
    assert len(driver.ledger.acknowledged) >= 200
    assert_kept(tmp_path / "t.db", driver.ledger.deliveries)
    assert not (tmp_path / "t.db-wal").exists()


@pytest.mark.soak
def test_killed_in_a_long_rebuild(tmp_path: Path) -> None:
    """The service that starts afterwards serves, the ledgers can be rebuilt, and `db check` finds
    nothing."""
    source = base(tmp_path / "source", killed=True)
    folder = copied(source, tmp_path / "case")
    orders = _orders(source / "t.db")
    for folds in (1, orders // 2, orders):
        _killed_in_a_rebuild(folder, folds)
    with a_service(folder) as service, load(service.port) as driver:
        driver.until(50)
        assert service.end(signal.SIGKILL) == -signal.SIGKILL
    assert len(driver.ledger.acknowledged) >= 50
    assert command(folder, "refold", "--all", "--jobs", "1").returncode == 0
    assert command(folder, "db", "check").returncode == 0
    assert_kept(folder / "t.db", driver.ledger.deliveries)


def _killed_in_a_rebuild(folder: Path, folds: int) -> None:
    """Let a rebuild come as far as its n-th fold, and kill it."""
    command_line = ("refold", "--all", "--jobs", "1")
    words, pipe = [sys.executable, "-c", program(STEPWISE_FOLD), *command_line], subprocess.PIPE
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), **environ(folder)}
    rebuild = subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, bufsize=0)
    with rebuild:
        assert rebuild.stdin is not None
        assert rebuild.stdout is not None
        for number in range(folds):
            if number:
                rebuild.stdin.write(b"\n")
            assert rebuild.stdout.readline() == b"folding\n"
        rebuild.kill()
        assert rebuild.wait() == -signal.SIGKILL


def _orders(path: Path) -> int:
    """Return how many there are to fold."""
    with closing(sqlite3.connect(path)) as database:
        counted = database.execute("SELECT count(DISTINCT order_key) FROM events").fetchone()[0]
    assert counted > 2
    return int(counted)


@pytest.mark.parametrize("minutes", [pytest.param(-15, marks=pytest.mark.soak), 15])
def test_a_clock_that_is_set(tmp_path: Path, minutes: int) -> None:
    """Deliveries signed at the true time are refused as too old or too new, readiness says so, and
    they are accepted once the clock is right: what comes again, and the rest by the runbook's
    steps."""
    step = tmp_path / "step"
    plant = stepping(minutes * 60, str(step))
    with a_service(tmp_path, script=script(plant, WATCHFUL), **NO_ALLOWANCE) as service:
        connection = Connection(service.port)
        told = [connection.send("e-1")]
        step.touch()
        assert connection.send("e-2").status == 401
        off = SystemClock().now() + minutes * MINUTE
        told.append(connection.send("e-3", at=off))
        with load(service.port) as driver:
            driver.until_it(lambda: len(driver.ledger.answers) >= 50)
        assert len(driver.ledger.answers) >= 50
        assert driver.ledger.statuses() == {401}
        until(lambda: _says_that_a_clock_is_off(service))
        step.unlink()
        told += [connection.send(f"e-{number}") for number in (1, 2, 3)]
        connection.close()
        until(lambda: _is_quiet(service))
        *looking, again = steps("Alarms", "clock")
        for words in looking:
            assert command(tmp_path, *words).returncode == 0
        said = command(tmp_path, *again).stderr
        assert re.match(rb"Judged (\d+) deliveries again: \1 accepted, 0 still refused", said), said
        assert service.end(signal.SIGTERM) == 0
    verdicts = [answer.verdict for answer in told]
    assert verdicts == ["accepted"] * 5
    assert_kept(tmp_path / "t.db", [answer.delivery for answer in told])


def _is_quiet(service: Service) -> bool:
    """Return whether it is ready, without an alarm about the clock."""
    status, _, body = service.process.request("GET", "/readyz")
    return status == 200 and "clock" not in json.loads(body)


def _says_that_a_clock_is_off(service: Service) -> bool:
    """Return whether the alarm is raised, and the service ready: refusals decide nothing."""
    status, _, body = service.process.request("GET", "/readyz")
    told = json.loads(body)
    assert (status == 503) == bool(told["reasons"])
    return "clock" in told and status == 200
