"""A disk that fills up: deliveries are refused while there is still room to fold the log, what is
stored can be read, and they are taken again as soon as there is space. On a real file system."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import token
from tests.faults.check import assert_kept
from tests.faults.load import Connection, Ledger, deliver, load
from tests.faults.mounts import mounted
from tests.faults.service import Service, a_service, starting

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
DISK_MIB, LOW_WATER_MIB, BALLOON_MIB = 64, 32, 20
FILLER = 20_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB, 20 of which somebody else uses."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs") as folder:
        (folder / "balloon").write_bytes(bytes(BALLOON_MIB * MIB))
        yield folder


def free(folder: Path) -> int:
    """Bytes that are free there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def filled(service: Service) -> Ledger:
    """Load until deliveries are refused."""
    with load(service.port, filler=FILLER) as driver:
        driver.until_it(lambda: 503 in driver.ledger.statuses())
        told = len(driver.ledger.answers)
        driver.until_it(lambda: len(driver.ledger.answers) >= told + 100)
    return driver.ledger


def test_a_disk_that_fills_up(small: Path) -> None:
    """Refused early with 503, readable all the while, taken again with the first one after."""
    low_water = {"DISK_LOW_WATER_MB": str(LOW_WATER_MIB)}
    with a_service(small, **low_water) as service:
        shop = token(small, **low_water)
        ledger = filled(service)
        left = free(small)
        assert (LOW_WATER_MIB - 8) * MIB < left < LOW_WATER_MIB * MIB
        assert ledger.statuses() == {200, 503}
        process = service.process
        status, _, body = process.request("GET", "/readyz")
        assert (status, b"less than 32 MiB" in body) == (503, True)
        figures = process.request("GET", "/metrics")[2].decode()
        assert "tallyhook_store_writable 0.0" in figures
        assert "tallyhook_disk_free_bytes" in figures
        first = ledger.acknowledged[0].event
        assert process.get(f"/api/v1/orders/ORD-{first[:-1]}", shop)["outcome"] == "succeeded"
        assert refused(service) == "5"
        (small / "balloon").unlink()
        (again,) = deliver(service.port, "again")
        assert again.status == 200
        ledger.answers.append(again)
        assert process.request("GET", "/readyz")[0] == 200
        assert service.end(signal.SIGTERM) == 0
    assert_kept(small / "t.db", ledger.deliveries)


def refused(service: Service) -> str:
    """The Retry-After of a delivery that is refused."""
    connection = Connection(service.port)
    try:
        answer = connection.send("refused")
        assert answer.status == 503
        return connection.headers["retry-after"]
    finally:
        connection.close()


def test_without_a_low_water_the_disk_is_full(small: Path) -> None:
    """The same load fills the disk to the last page, and the space that comes back is not enough to
    fold the log: that is what the low water is for. Even so nothing is lost."""
    with a_service(small, DISK_LOW_WATER_MB="0") as service:
        ledger = filled(service)
        assert free(small) < 8 * MIB
        assert service.end(signal.SIGTERM) == 0
    (small / "balloon").unlink()
    with starting(small) as process:
        process.wait_for_word()
        assert process.code() == 4
        assert process.log.endswith(b"\ntallyhook: the disk is full; free some space\n")
    assert_kept(small / "t.db", ledger.deliveries)
