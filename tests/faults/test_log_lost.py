"""The database's write-ahead log is removed, cut off, emptied or replaced, while it is served or
stopped: no acknowledged delivery is lost, and what else may be lost is named and accepted."""

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, UsageError
from app.privacy.gap import accept_found
from tests.e2e.processes import command
from tests.faults.check import assert_kept, look
from tests.faults.injecting import DATABASE, INBOX, LOG, start
from tests.faults.load import deliver, load
from tests.faults.plants import DELETES_EARLY, NEVER_QUIET, script
from tests.faults.service import Service, a_service
from tests.waiting import until

pytestmark = pytest.mark.slow

EVENTS = [f"e-{number}" for number in range(12)]


def removed(log: Path) -> None:
    log.unlink()


def cut_off(log: Path) -> None:
    os.truncate(log, log.stat().st_size // 2)


def emptied(log: Path) -> None:
    os.truncate(log, 0)


def replaced(log: Path) -> None:
    """Put other bytes in its place."""
    other = log.with_name("other")
    other.write_bytes(b"\0" * 8_192)
    other.replace(log)


FAULTS = (
    removed,
    cut_off,
    pytest.param(emptied, marks=pytest.mark.soak),
    pytest.param(replaced, marks=pytest.mark.soak),
)

Fault = Callable[[Path], None]


def asked(path: Path, sql: str) -> Any:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(sql).fetchone()[0]


def noted(folder: Path) -> bool:
    """Return whether all was read, and the inbox has noted the last commit."""
    last = "SELECT value FROM counters WHERE name='last commit'"
    read = asked(folder / DATABASE, "SELECT count(*) FROM deliveries") >= len(EVENTS)
    return bool(read and asked(folder / DATABASE, last) == asked(folder / INBOX, last))


def killed(service: Service) -> None:
    """End all of its processes at one moment: one that is left would checkpoint the log."""
    worker = service.worker()
    os.kill(worker, signal.SIGSTOP)
    service.signal(signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    service.process.code()
    until(lambda: not Path(f"/proc/{worker}").exists())


def settings(folder: Path) -> Settings:
    return Settings(database_url=f"sqlite+aiosqlite:///{folder}/{DATABASE}", environment="sandbox")


def served(folder: Path, *plants: str, act: Callable[[Service], object]) -> set[str]:
    """Serve until all was read and noted, act, and return the acknowledged deliveries."""
    with a_service(folder, script=script(NEVER_QUIET, *plants)) as service:
        told = {each.delivery for each in deliver(service.port, *EVENTS)}
        until(lambda: noted(folder))
        told |= {each.delivery for each in deliver(service.port, "later")}
        until(lambda: noted(folder))
        act(service)
    return told


def gap_is_named_and_accepted(folder: Path, told: set[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"no acknowledged delivery is lost.*--accept-gap"):
        asyncio.run(start(folder))
    checked = command(folder, "db", "check")
    assert (checked.returncode, b"no acknowledged delivery is lost" in checked.stdout) == (1, True)
    found = asyncio.run(accept_found(settings(folder), reason="a test", clock=SystemClock()))
    assert (found.kind, found.deliveries) == ("database", 0)
    assert found.since < found.until
    asyncio.run(start(folder))
    assert_kept(folder / DATABASE, told)
    assert asked(folder / DATABASE, "SELECT reason FROM gaps") == "a test"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_log_that_is_lost_while_it_is_served(tmp_path: Path, fault: Fault) -> None:
    """The service ends before it reports anything more."""

    def act(service: Service) -> None:
        fault(tmp_path / LOG)
        assert service.process.code() == 4

    gap_is_named_and_accepted(tmp_path, served(tmp_path, act=act))


@pytest.mark.parametrize("new", [True, False])
def test_a_log_that_is_lost_before_its_commits_were_noted(tmp_path: Path, new: bool) -> None:
    """The service notes the loss itself, of a new database too: nothing of it was folded yet."""
    url = {"DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/{DATABASE}"} if new else {}
    with a_service(tmp_path, script=script(NEVER_QUIET), **url) as service:
        told = {each.delivery for each in deliver(service.port, *EVENTS)}
        removed(tmp_path / LOG)
        assert service.process.code() == 4
    gap_is_named_and_accepted(tmp_path, told)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_log_that_is_lost_after_a_kill(tmp_path: Path, fault: Fault) -> None:
    told = served(tmp_path, act=killed)
    fault(tmp_path / LOG)
    gap_is_named_and_accepted(tmp_path, told)


def lost_under_load(folder: Path, file: str, *, rounds: int, acks: int) -> str:
    """Remove a file while deliveries come, round after round; each start goes on as it asks to."""
    told: set[str] = set()
    for number in range(rounds):
        with a_service(folder) as service, load(service.port, name=f"r{number}") as driver:
            driver.until(acks)
            (folder / file).unlink()
            assert service.process.code() == 4
        told |= driver.ledger.deliveries
        try:
            asyncio.run(start(folder))
        except ConfigurationError:
            asyncio.run(accept_found(settings(folder), reason="a test", clock=SystemClock()))
            asyncio.run(start(folder))
    assert_kept(folder / DATABASE, told)
    assert len(told) >= rounds * acks
    gaps = asked(folder / DATABASE, "SELECT count(*) FROM gaps")
    return (
        f"{file} removed {rounds} times: {len(told):,} acknowledgements, 0 lost, {gaps} gaps named"
    )


@pytest.mark.soak
@pytest.mark.parametrize("file", [LOG, f"{DATABASE}-shm"])
def test_ten_thousand_acknowledgements_with_a_file_removed_under_load(
    tmp_path: Path, file: str
) -> None:
    print(lost_under_load(tmp_path, file, rounds=5, acks=2_000))


def test_both_logs_lost_after_a_restart_are_named(tmp_path: Path) -> None:
    """That the inbox is written again stands in the log that is lost, and in the lock's file."""
    with a_service(tmp_path) as service:
        deliver(service.port, "before")
        assert service.end(signal.SIGTERM) == 0
    with a_service(tmp_path, script=script(NEVER_QUIET)) as service:
        deliver(service.port, *EVENTS)
        killed(service)
    removed(tmp_path / LOG)
    (tmp_path / f"{INBOX}-wal").unlink()
    with pytest.raises(ConfigurationError, match="deliveries are lost is unknown"):
        asyncio.run(start(tmp_path))


def test_a_log_that_is_whole_after_a_kill_is_no_gap(tmp_path: Path) -> None:
    told = served(tmp_path, act=killed)
    asyncio.run(start(tmp_path))
    assert_kept(tmp_path / DATABASE, told)
    with pytest.raises(UsageError, match="nothing is missing"):
        asyncio.run(accept_found(settings(tmp_path), reason="none", clock=SystemClock()))


def older_log(folder: Path) -> set[str]:
    """Stop a service cleanly, and put the log beside its file that it had before it folded."""

    def act(service: Service) -> None:
        shutil.copy(folder / LOG, folder / "older")
        service.end(signal.SIGTERM)

    told = served(folder, act=act)
    assert not (folder / LOG).exists()
    (folder / "older").rename(folder / LOG)
    return told


@pytest.mark.parametrize("fault", [emptied, lambda log: None], ids=["empty", "old"])
def test_an_older_log_beside_a_database_that_was_stopped_is_refused(
    tmp_path: Path, fault: Fault
) -> None:
    """It would undo the newest commits. Without it nothing is missing."""
    told = older_log(tmp_path)
    fault(tmp_path / LOG)
    if (tmp_path / LOG).stat().st_size:
        with pytest.raises(ConfigurationError, match=r"is older than t\.db.*move that log away"):
            asyncio.run(start(tmp_path))
        (tmp_path / LOG).unlink()
    asyncio.run(start(tmp_path))
    assert_kept(tmp_path / DATABASE, told)


def test_rows_that_are_deleted_early_are_lost_with_the_log(tmp_path: Path) -> None:
    """A control."""
    told = served(tmp_path, DELETES_EARLY, act=killed)
    removed(tmp_path / LOG)
    assert look(tmp_path / DATABASE).lost(told)
