"""Power cuts and I/O errors of a real block device under a real file system: what the service has
acknowledged is there afterwards, and the database is whole."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.block import Disk, a_disk
from tests.faults.check import Found, look
from tests.faults.load import load
from tests.faults.plants import GOES_ON, NORMAL, SMALL_LOG, script
from tests.faults.service import a_service

pytestmark = pytest.mark.slow

CUTS = 14
"""Rounds of one power cut each."""

FAILURES = 13
"""Rounds of a failure and a power cut each: forty of both in all."""

ACKS = 60
FAILING_S = 0.25
"""Seconds for which the disk fails, at least."""

ENDING_S = 2.0
"""Seconds in which a service that has met an error may end before it is told to."""

UNREACHABLE = 4
ROOM = {"DISK_LOW_WATER_MB": "1"}


def served_until_cut(disk: Disk, number: int, *plants: str) -> set[str]:
    """Serve under load until the power goes; it goes before the process is killed. What was
    acknowledged."""
    with (
        a_service(disk.folder, script=script(SMALL_LOG, *plants), **ROOM) as service,
        load(service.port, name=f"cut{number}") as driver,
    ):
        driver.until(ACKS)
        time.sleep(random.Random(number).random() * 0.05)
        with disk.told("cut"):
            time.sleep(0.05)
            service.signal(signal.SIGKILL)
            driver.stop()
            service.process.code()
            disk.take_away()
    disk.attach()
    return driver.ledger.deliveries


@dataclass(frozen=True, slots=True)
class Failed:
    """What became of a service whose disk failed for a while.

    code          its exit code; UNREACHABLE where it ended by itself because of the error
    acknowledged  delivery ids
    statuses      every status it answered with
    """

    code: int
    acknowledged: set[str]
    statuses: set[int]


def served_until_it_fails(disk: Disk, number: int, *plants: str) -> Failed:
    """Serve under load while the disk fails, until a delivery is refused or nobody answers: the
    service ends by itself, or is told to where it did not notice."""
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
            service.process.popen.wait(ENDING_S)
        by_itself = service.ended
        code = service.process.code() if by_itself else service.end(signal.SIGTERM)
        assert not by_itself or code == UNREACHABLE, service.process.log
    disk.take_away()
    disk.attach()
    return Failed(code, driver.ledger.deliveries, driver.ledger.statuses())


def found(disk: Disk, place: Path) -> Found:
    """What is on the disk, looked at in a copy so that the service finds it as it is."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(disk.folder, place, ignore=shutil.ignore_patterns("lost+found", "*-shm"))
    return look(place / "t.db")


def cut_again_and_again(folder: Path, *, rounds: int) -> None:
    """A random half of what the disk had not flushed is lost at each cut."""
    acknowledged: set[str] = set()
    with a_disk(folder / "disk") as disk:
        for number in range(rounds):
            acknowledged |= served_until_cut(disk, number)
            assert_whole(found(disk, folder / "copy"), acknowledged, number)
    print(f"{rounds} power cuts, {len(acknowledged):,} acknowledgements, none lost")


def assert_whole(left: Found, acknowledged: set[str], number: int) -> None:
    """Nothing is damaged, half there, or lost."""
    assert (left.corrupt, left.halves) == ((), ()), number
    assert left.lost(acknowledged) == set(), number


def failing_again_and_again(folder: Path, *, rounds: int) -> None:
    """A quarter of a second of I/O errors, a restart, and a power cut, again and again. Services
    end because of the errors, so they were met."""
    acknowledged: set[str] = set()
    ended = 0
    with a_disk(folder / "disk") as disk:
        for number in range(rounds):
            failed = served_until_it_fails(disk, number)
            ended += failed.code == UNREACHABLE
            acknowledged |= failed.acknowledged
            acknowledged |= served_until_cut(disk, number)
            assert_whole(found(disk, folder / "copy"), acknowledged, number)
    print(f"{rounds} failures and cuts, {len(acknowledged):,} acknowledgements, none lost")
    print(f"{ended} services ended because of the error")
    assert ended > 0, "no service met an I/O error"


def test_power_cuts(tmp_path: Path) -> None:
    """The power is cut under load."""
    cut_again_and_again(tmp_path, rounds=CUTS)


def test_io_errors_and_power_cuts(tmp_path: Path) -> None:
    """The disk fails under load, then the power is cut."""
    failing_again_and_again(tmp_path, rounds=FAILURES)


@pytest.mark.soak
@pytest.mark.parametrize("disk", range(10))
def test_five_hundred_power_cuts(tmp_path: Path, disk: int) -> None:
    """The long form of both, on ten disks, for one has room for so many rounds only."""
    (tmp_path / "cut").mkdir()
    (tmp_path / "failing").mkdir()
    cut_again_and_again(tmp_path / "cut", rounds=40)
    failing_again_and_again(tmp_path / "failing", rounds=10)


def test_a_service_that_goes_on_after_an_io_error_is_caught(tmp_path: Path) -> None:
    """One that takes the error for trouble that passes refuses what it cannot store, but is not
    counted among those that ended because of it."""
    with a_disk(tmp_path / "disk") as disk:
        failed = served_until_it_fails(disk, 0, GOES_ON)
    assert 503 in failed.statuses
    assert failed.code != UNREACHABLE


def test_a_log_that_is_synced_too_rarely_is_caught(tmp_path: Path) -> None:
    """The same cuts find a service that syncs its log at folds only; most of them do."""
    acknowledged: set[str] = set()
    with a_disk(tmp_path / "disk") as disk:
        for number in range(2 * CUTS):
            acknowledged |= served_until_cut(disk, number, NORMAL)
            if found(disk, tmp_path / "copy").lost(acknowledged):
                return
    pytest.fail("nothing was lost in twice as many cuts")
