"""A disk that fills up: deliveries are refused while the log can still be folded, stored data can
be read, and deliveries are accepted again once there is space."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from app.database.writer import PAGE_BYTES, LogLength
from tests.e2e.processes import command, running, token
from tests.faults.check import assert_kept
from tests.faults.load import Answer, Connection, Ledger, deliver, load
from tests.faults.mounts import mounted
from tests.faults.plants import (
    INSIST_S,
    INSISTENT,
    KEEPS_LOG,
    SMALL_LOG,
    program,
    script,
    stepping,
)
from tests.faults.service import Service, a_service, starting
from tests.waiting import until

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
DISK_MIB, LOW_WATER_MIB, BALLOON_MIB = 64, 32, 20
FILLER = 20_000
STILL_S = 1.0
"""Seconds without progress after which reading counts as stopped: ten tries."""

REFUSED_MORE = 30
"""Deliveries that are refused under load after the first."""

UNREAD = b"unread deliveries need that space"
"""Message of a service that holds room for unread deliveries, beside the low water."""
UNREACHABLE = 4
BODIES = "SELECT count(body) FROM deliveries"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 64 MiB with 20 MiB in use."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs") as folder:
        (folder / "balloon").write_bytes(bytes(BALLOON_MIB * MIB))
        yield folder


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def filled(service: Service, folder: Path) -> Ledger:
    """Load until deliveries are refused, and still are after everything is read and no room is held
    for it; a held log may keep the rest from being read."""
    ledger = Ledger()
    for number in count():
        ledger.answers += refused_under_load(service, name=f"e{number}")
        wait_until_read(service, folder)
        answers = refused_for_long(service, name=f"again-{number}")
        ledger.answers += answers
        if answers[-1].status == 503:
            return ledger
    raise AssertionError


def refused_for_long(service: Service, *, name: str) -> list[Answer]:
    """Deliver until one is accepted, or the service must have tried to empty its logs."""
    answers: list[Answer] = []
    until_at = time.monotonic() + INSIST_S + 1
    while time.monotonic() < until_at:
        answers += deliver(service.port, f"{name}-{len(answers)}")
        if answers[-1].status != 503:
            break
        time.sleep(0.25)
    return answers


def wait_until_read(service: Service, folder: Path) -> None:
    """Wait until all of it is read, or nothing more is."""
    left, since = unread(folder), time.monotonic()
    while left and time.monotonic() < since + STILL_S:
        time.sleep(0.05)
        if (now := unread(folder)) != left:
            left, since = now, time.monotonic()
    until(lambda: left or UNREAD not in service.process.request("GET", "/readyz")[2])


def refused_under_load(service: Service, *, name: str) -> list[Answer]:
    """Load until deliveries are refused, and some more."""
    with load(service.port, name=name, filler=FILLER) as driver:
        driver.until_it(lambda: 503 in driver.ledger.statuses())
        told = len(driver.ledger.answers)
        driver.until_it(lambda: len(driver.ledger.answers) >= told + REFUSED_MORE)
    return driver.ledger.answers


def unread(folder: Path) -> int:
    """Return how many accepted records are not read yet."""
    with closing(sqlite3.connect(folder / "t.db")) as database:
        database.execute(f"ATTACH '{folder}/t.db.inbox' AS inbox")
        position = "SELECT value FROM counters WHERE name='inbox position'"
        sql = f"SELECT count(*) FROM inbox.inbox WHERE seq > coalesce(({position}), 0)"
        return int(database.execute(sql).fetchone()[0])


def test_a_disk_that_fills_up(small: Path, tmp_path: Path) -> None:
    """They are refused early with 503, and accepted with the first one after. A backup to another
    disk has all that was acknowledged."""
    low_water = {"DISK_LOW_WATER_MB": str(LOW_WATER_MIB)}
    with a_service(small, script=script(INSISTENT), **low_water) as service:
        shop = token(small, **low_water)
        ledger = filled(service, small)
        left = free(small)
        # What the log has grown by must be free beside the low water.
        assert (LOW_WATER_MIB - 8) * MIB < left < (LOW_WATER_MIB + 8) * MIB
        assert ledger.statuses() == {200, 503}
        process = service.process
        status, _, body = process.request("GET", "/readyz")
        assert (status, b"MiB of the database's disk is free" in body) == (503, True)
        figures = process.request("GET", "/metrics")[2].decode()
        assert "tallyhook_store_writable 0.0" in figures
        assert "tallyhook_disk_free_bytes" in figures
        first = ledger.acknowledged[0].event
        assert process.get(f"/api/v1/orders/ORD-{first[:-1]}", shop)["outcome"] == "succeeded"
        assert refused(service) == "5"
        backed_up(small, tmp_path / "elsewhere.db", ledger, **low_water)
        (small / "balloon").unlink()
        (again,) = deliver(service.port, "again")
        assert again.status == 200
        ledger.answers.append(again)
        assert process.request("GET", "/readyz")[0] == 200
        assert service.end(signal.SIGTERM) == 0
    assert_kept(small / "t.db", ledger.deliveries)


def backed_up(folder: Path, target: Path, ledger: Ledger, **more: str) -> None:
    """Back up to another disk, and check for what was acknowledged."""
    assert target.parent.stat().st_dev != folder.stat().st_dev
    done = command(folder, "backup", str(target), **more)
    assert (done.returncode, done.stdout.endswith(b" The backup was checked.\n")) == (0, True), done
    assert_kept(target, ledger.deliveries)


def refused(service: Service) -> str:
    """Return the Retry-After of a delivery that is refused."""
    connection = Connection(service.port)
    try:
        answer = connection.send("refused")
        assert answer.status == 503
        return connection.headers["retry-after"]
    finally:
        connection.close()


@contextmanager
def reader(folder: Path) -> Iterator[None]:
    """Hold a snapshot of the database, as a backup does, so that its log grows."""
    with closing(sqlite3.connect(folder / "t.db", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM deliveries").fetchone()
        yield
        connection.execute("ROLLBACK")


@pytest.mark.parametrize(
    "low_water",
    [
        pytest.param(32, id="room for a moment's deliveries", marks=pytest.mark.soak),
        pytest.param(4, id="a log that has filled the disk", marks=pytest.mark.soak),
    ],
)
def test_a_log_that_was_held_up_gives_its_room_back(small: Path, low_water: int) -> None:
    """Deliveries are refused while the log can still be folded, and accepted once nobody holds it,
    though nothing else is freed: it is emptied, or begun again in its room."""
    more = {"script": script(SMALL_LOG, INSISTENT), "DISK_LOW_WATER_MB": str(low_water)}
    with a_service(small, **more) as service, closing(LogLength(small / "t.db")) as log:
        deliver(service.port, "first")
        until(lambda: unread(small) == 0)
        with reader(small):
            ledger = filled(service, small)
            length = (small / "t.db-wal").stat().st_size
            assert free(small) > length - MIB
            assert length > MIB
            assert refused(service) == "5"
            told = service.process.request("GET", "/readyz")[2]
            assert b"MiB of the database's disk is free" in told
        until(lambda: unread(small) == 0)
        until(lambda: deliver(service.port, "again")[0].status == 200)
        until(lambda: log.pages() * PAGE_BYTES < length / 2)
        assert service.process.request("GET", "/readyz")[0] == 200
        assert service.end(signal.SIGTERM) == 0
    assert_kept(small / "t.db", ledger.deliveries)


@pytest.mark.soak
def test_a_log_that_is_never_folded_is_caught(small: Path) -> None:
    """A service that waits for somebody else to free something goes on refusing."""
    more = {"script": script(SMALL_LOG, INSISTENT, KEEPS_LOG), "DISK_LOW_WATER_MB": "4"}
    with a_service(small, **more) as service:
        deliver(service.port, "first")
        until(lambda: unread(small) == 0)
        with reader(small):
            filled(service, small)
        for _ in range(20):
            time.sleep(0.1)
            assert deliver(service.port, "again")[0].status == 503


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("prune",), id="prune", marks=pytest.mark.soak),
        pytest.param(
            ("erase", "--order", "ORD-e", "--reason", "asked"), id="erase", marks=pytest.mark.soak
        ),
    ],
)
def test_what_lets_bodies_go_writes_too(small: Path, words: tuple[str, ...]) -> None:
    """Below the low water the command is refused and says what to do; with a lower mark it works
    beside the service that still refuses."""
    more = {"DISK_LOW_WATER_MB": str(LOW_WATER_MIB), "RETENTION_DAYS": "30"}
    with a_service(small, **more) as service:
        assert deliver(service.port, "e1")[0].status == 200
        until(lambda: found(small, "SELECT 1 FROM ledgers"), otherwise=lambda: "it is not folded")
        (small / "more").write_bytes(bytes(DISK_MIB // 4 * MIB))
        assert free(small) < LOW_WATER_MIB * MIB
        assert later(small, *words, **more) == (
            UNREACHABLE,
            f"tallyhook: less than {LOW_WATER_MIB} MiB of the database's disk is free; "
            "free some space, or lower TALLYHOOK_DISK_LOW_WATER_MB",
        )
        assert found(small, BODIES) == [(1,)]
        assert later(small, *words, **more | {"DISK_LOW_WATER_MB": "4"})[0] == 0
        assert found(small, BODIES) == [(0,)]
        assert refused(service) == "5"


def found(folder: Path, sql: str) -> list[tuple[int]]:
    with closing(sqlite3.connect(folder / "t.db")) as database:
        return database.execute(sql).fetchall()


def later(folder: Path, *words: str, **more: str) -> tuple[int, str]:
    """Run a command forty days from now; return its exit code and last line."""
    ahead = program(stepping(40 * 24 * 3600, str(folder)))
    with running(folder, *words, script=ahead, stays=False, **more) as process:
        code = process.code()
    return code, bytes(process.log).decode().splitlines()[-1]


@pytest.mark.soak
def test_without_a_low_water_the_disk_is_full(small: Path) -> None:
    """The load fills the disk to the last page, and the space that returns may be too little to
    checkpoint the log. Even so nothing is lost."""
    with a_service(small, script=script(INSISTENT), DISK_LOW_WATER_MB="0") as service:
        ledger = filled(service, small)
        assert free(small) < 8 * MIB
        assert service.end(signal.SIGTERM) == 0
    (small / "balloon").unlink()
    with starting(small) as process:
        process.wait_for_word()
        if process.port:
            process.end()
        else:
            assert process.code() == 4
            assert process.log.endswith(b"\ntallyhook: the disk is full; free some space\n")
    assert_kept(small / "t.db", ledger.deliveries)
