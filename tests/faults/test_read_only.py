"""A file system that the kernel makes read-only while it is served, as after an I/O error: the
service ends and says why, and nothing acknowledged is lost."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.check import assert_kept
from tests.faults.load import Ledger, deliver, load
from tests.faults.mounts import mounted, ran
from tests.faults.plants import GOES_ON, script
from tests.faults.service import a_service, starting
from tests.faults.test_failing_calls import UNREACHABLE
from tests.waiting import until

pytestmark = pytest.mark.slow

SIZE = 64 * 1024 * 1024
ACKS = 60
ROOM = {"DISK_LOW_WATER_MB": "1"}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return an ext4 file system in a file."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it mounts a file system that fails")
    missing = [tool for tool in ("mkfs.ext4", "e2fsck") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install e2fsprogs")
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(SIZE)
    ran("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(path))
    return path


@contextmanager
def attached(image: Path, folder: Path) -> Iterator[Path]:
    """Mount it there, or skip if that is not allowed."""
    with mounted(folder, "-o", "loop,errors=remount-ro", str(image)):
        yield folder


def becomes_read_only(folder: Path) -> None:
    """Tell the kernel that it has found an error in this file system."""
    device = os.stat(folder).st_dev
    name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    switch = Path(f"/sys/fs/ext4/{name}/trigger_fs_error")
    if not switch.exists():
        pytest.skip("this kernel's ext4 cannot be told that it has found an error")
    switch.write_text("1")


def served_until_read_only(folder: Path) -> Ledger:
    """Serve until the file system is read-only: the service ends by itself, and acknowledges
    nothing from then on.

    Nothing is under way at the switch: before it becomes read-only, ext4 has been seen to confirm a
    sync and then drop it.
    """
    with a_service(folder, **ROOM) as service:
        with load(service.port) as before:
            before.until(ACKS)
        becomes_read_only(folder)
        with load(service.port, name="later") as after:
            after.until(1)
        assert service.process.code() == UNREACHABLE
    assert b"became read-only" in service.process.log.splitlines()[-1]
    assert b"Traceback" not in service.process.log
    assert len(before.ledger.acknowledged) >= ACKS
    assert after.ledger.statuses() <= {503}
    return before.ledger


def test_a_file_system_that_becomes_read_only(image: Path, tmp_path: Path) -> None:
    """The service does not start on it, and starts once it has been checked and mounted."""
    with attached(image, tmp_path / "failing") as folder:
        ledger = served_until_read_only(folder)
        with starting(folder, **ROOM) as process:
            process.wait_for_word()
            assert process.code() == UNREACHABLE
        assert b"its file system is read-only" in process.log.splitlines()[-1]
    subprocess.run(["e2fsck", "-fy", str(image)], capture_output=True, check=False, timeout=30)
    with attached(image, tmp_path / "mended") as folder:
        with a_service(folder, **ROOM) as service:
            ledger.answers += deliver(service.port, "again")
        assert ledger.answers[-1].status == 200
        assert_kept(folder / "t.db", ledger.deliveries)


@pytest.mark.soak
def test_a_service_that_goes_on_is_caught(image: Path, tmp_path: Path) -> None:
    """A service that takes it for a passing fault refuses, but lives on."""
    with (
        attached(image, tmp_path / "failing") as folder,
        a_service(folder, script=script(GOES_ON), **ROOM) as service,
        load(service.port) as driver,
    ):
        driver.until(ACKS)
        becomes_read_only(folder)  # under load: what comes of the file is not looked at
        until(lambda: 503 in driver.ledger.statuses())
        deliver(service.port, "later")
        assert not service.ended
