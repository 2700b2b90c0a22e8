"""Power cuts and I/O errors of a real block device under a real file system: acknowledged
deliveries are there afterwards, and the database is whole."""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.block import Disk, a_disk
from tests.faults.check import Found, look
from tests.faults.load import Connection, Ledger, Load, load
from tests.faults.plants import GOES_ON, NORMAL, SMALL_LOG, script
from tests.faults.service import Service, a_service, starting
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

CUTS = 2
"""Rounds of one power cut each."""

FAILURES = 1
"""Rounds of a failure and a power cut each."""

CAUGHT_WITHIN = 12
"""Cuts in which a control must have lost something."""

ACKS = 60
FAILING_S = 0.25
"""Seconds for which the disk fails, at least."""

GOING_ON_S = 2.0
"""Seconds after which a service that should have ended, and has not, is told to."""

STARTS = 5
"""Starts of a service after a failure until it serves. A start fails on an earlier error that it
finds, or on a file system that the kernel made read-only."""

UNREACHABLE = 4
ROOM = {"DISK_LOW_WATER_MB": "1"}


def cut(disk: Disk, service: Service, driver: Load, number: int) -> None:
    """Cut the power at some moment of a load, before the process is killed, and restore it."""
    time.sleep(random.Random(number).random() * 0.05)
    with disk.told("cut"):
        time.sleep(0.05)
        service.signal(signal.SIGKILL)
        driver.stop()
        service.process.code()
        disk.take_away()
    disk.attach()


def served_until_cut(disk: Disk, number: int, *plants: str) -> set[str]:
    """Serve under load until the power is cut; return the acknowledged deliveries."""
    with (
        a_service(disk.folder, script=script(SMALL_LOG, *plants), **ROOM) as service,
        load(service.port, name=f"cut{number}") as driver,
    ):
        driver.until(ACKS)
        cut(disk, service, driver, number)
    assert len(driver.ledger.acknowledged) >= ACKS
    return driver.ledger.deliveries


@dataclass(frozen=True, slots=True)
class Failed:
    """Results of a service whose disk failed for a while.

    code          its exit code; UNREACHABLE if it ended because of the error
    acknowledged  delivery ids
    statuses      every status of an answer
    unpromised    events that it refused or did not answer
    """

    code: int
    acknowledged: set[str]
    statuses: set[int]
    unpromised: list[str]


def served_until_it_fails(
    disk: Disk, number: int, *plants: str, ending_s: float = PATIENCE_S
) -> Failed:
    """Serve under load while the disk fails, until a delivery is refused or nobody answers: the
    service ends by itself, or is told to where it did not notice. The disk stays mounted."""
    with (
        a_service(disk.folder, script=script(SMALL_LOG, *plants), **ROOM) as service,
        load(service.port, name=f"io{number}") as driver,
    ):
        driver.until(ACKS)
        with disk.told("failing"):
            time.sleep(FAILING_S)
            driver.until_it(lambda: 503 in driver.ledger.statuses())
        driver.stop()
        with suppress(subprocess.TimeoutExpired):  # it may be about to end
            service.process.popen.wait(ending_s)
        by_itself = service.ended
        code = service.process.code() if by_itself else service.end(signal.SIGTERM)
        assert not by_itself or code == UNREACHABLE, service.process.log
    assert len(driver.ledger.acknowledged) >= ACKS
    ledger = driver.ledger
    return Failed(code, ledger.deliveries, ledger.statuses(), driver.unpromised)


@contextmanager
def restarted(disk: Disk, *plants: str) -> Iterator[Service]:
    """Run a service on the disk as the failure has left it, page cache included; only a read-only
    file system is checked and mounted again.

    It keeps its log: a fold would write the disk's lost data once more, out of the cache.
    """
    for _ in range(STARTS):
        with starting(disk.folder, script=script(*plants), **ROOM) as process:
            process.wait_for_word()
            if process.port:
                yield Service(process, traced=False)
                return
            assert process.code() == UNREACHABLE, process.log
        if b"read-only" in process.log:
            disk.take_away()
            disk.attach()
    pytest.fail(f"it does not serve: {process.log!r}")


def delivered_again_until_cut(
    disk: Disk, number: int, events: Sequence[str], *plants: str
) -> Ledger:
    """Restart, deliver again what was not acknowledged, and serve until the power is cut; return
    all answers, which promise duplicates too."""
    ledger = Ledger()
    with restarted(disk, *plants) as service:
        connection = Connection(service.port)
        with suppress(OSError):  # it ended
            for event in events:
                ledger.answers.append(connection.send(event))
        connection.close()
        with load(service.port, name=f"cut{number}") as driver:
            cut(disk, service, driver, number)
    ledger.answers += driver.ledger.answers
    return ledger


def found(disk: Disk, place: Path) -> Found:
    """Check a copy of the disk, so that the service finds the original as it is."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(disk.folder, place, ignore=shutil.ignore_patterns("lost+found", "*-shm"))
    return look(place / "t.db")


def cut_again_and_again(folder: Path, *, rounds: int) -> None:
    """Lose a random half of the unflushed data at each cut."""
    acknowledged: set[str] = set()
    with a_disk(folder / "disk") as disk:
        for number in range(rounds):
            acknowledged |= served_until_cut(disk, number)
            assert_whole(found(disk, folder / "copy"), acknowledged, number)
    print(f"{rounds} power cuts, {len(acknowledged):,} acknowledgements, none lost")


def assert_whole(left: Found, acknowledged: set[str], number: int) -> None:
    assert (left.corrupt, left.halves) == ((), ()), number
    assert left.lost(acknowledged) == set(), number


def failing_again_and_again(folder: Path, *, rounds: int) -> None:
    """Let I/O errors, a restart on the same mount, and a power cut alternate: every service ends
    because of the errors, and the next one accepts what was refused."""
    acknowledged: set[str] = set()
    again = 0
    with a_disk(folder / "disk") as disk:
        for number in range(rounds):
            failed = served_until_it_fails(disk, number)
            assert failed.code == UNREACHABLE, number
            ledger = delivered_again_until_cut(disk, number, failed.unpromised)
            promised = {answer.event for answer in ledger.acknowledged}
            assert promised >= set(failed.unpromised), number
            again += len(failed.unpromised)
            acknowledged |= failed.acknowledged | ledger.deliveries
            assert_whole(found(disk, folder / "copy"), acknowledged, number)
    print(f"{rounds} failures and cuts, {len(acknowledged):,} acknowledgements, none lost")
    print(f"{again} events delivered again after a failure")
    assert again >= rounds


def test_power_cuts(tmp_path: Path) -> None:
    cut_again_and_again(tmp_path, rounds=CUTS)


def test_io_errors_and_power_cuts(tmp_path: Path) -> None:
    failing_again_and_again(tmp_path, rounds=FAILURES)


@pytest.mark.soak
@pytest.mark.parametrize("disk", range(10))
def test_five_hundred_power_cuts(tmp_path: Path, disk: int) -> None:
    """One disk has room for a tenth of the rounds."""
    (tmp_path / "cut").mkdir()
    (tmp_path / "failing").mkdir()
    cut_again_and_again(tmp_path / "cut", rounds=40)
    failing_again_and_again(tmp_path / "failing", rounds=10)


@pytest.mark.soak
def test_a_service_that_goes_on_after_an_io_error_is_caught(tmp_path: Path) -> None:
    """It refuses what it cannot store, but does not count as ended by the error."""
    with a_disk(tmp_path / "disk") as disk:
        failed = served_until_it_fails(disk, 0, GOES_ON, ending_s=GOING_ON_S)
    assert 503 in failed.statuses
    assert failed.code != UNREACHABLE


@pytest.mark.soak
def test_a_log_that_is_synced_too_rarely_is_caught(tmp_path: Path) -> None:
    """Most cuts find such a service."""
    acknowledged: set[str] = set()
    with a_disk(tmp_path / "disk") as disk:
        for number in range(CAUGHT_WITHIN):
            acknowledged |= served_until_cut(disk, number, NORMAL)
            if found(disk, tmp_path / "copy").lost(acknowledged):
                return
    pytest.fail("nothing was lost in six times as many cuts")
