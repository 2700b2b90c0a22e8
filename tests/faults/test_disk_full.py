"""A disk that fills up: deliveries are refused while there is still room to fold the log, what is
stored can be read, and they are taken again as soon as there is space. On a real file system."""

from __future__ import annotations

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
"""For which nothing more has been read where something keeps it from being: ten tries."""

REFUSED_MORE = 30
"""Deliveries that are refused under load after the first."""

UNREAD = b"which what is accepted and not read yet will need"
"""What the service says while it holds room for that, beside the low water."""
UNREACHABLE = 4
BODIES = "SELECT count(body) FROM deliveries"


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


def filled(service: Service, folder: Path) -> Ledger:
    """Load until deliveries are refused, and still are once what was accepted has been read, and
    the service has noticed: until then it holds room for it. Where a held log keeps it from being
    read, once no more of it is."""
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
    """One delivery after another until one is accepted, or the service must have tried to empty
    its logs: it does so once in a while, and what that frees is given away again."""
    answers: list[Answer] = []
    until_at = time.monotonic() + INSIST_S + 1
    while time.monotonic() < until_at:
        answers += deliver(service.port, f"{name}-{len(answers)}")
        if answers[-1].status != 503:
            break
        time.sleep(0.25)
    return answers


def wait_until_read(service: Service, folder: Path) -> None:
    """Until all of it has been read, or nothing more of it is."""
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
    """Records that are accepted and not read yet."""
    with closing(sqlite3.connect(folder / "t.db")) as database:
        database.execute(f"ATTACH '{folder}/t.db.inbox' AS inbox")
        position = "SELECT value FROM counters WHERE name='inbox position'"
        sql = f"SELECT count(*) FROM inbox.inbox WHERE seq > coalesce(({position}), 0)"
        return int(database.execute(sql).fetchone()[0])


def test_a_disk_that_fills_up(small: Path, tmp_path: Path) -> None:
    """Refused early with 503, readable all the while, taken again with the first one after. A
    backup to another disk has all that was acknowledged."""
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
    """Copy the database to another disk than its own, and look for what was promised."""
    assert target.parent.stat().st_dev != folder.stat().st_dev
    done = command(folder, "backup", str(target), **more)
    assert (done.returncode, done.stdout.endswith(b" Checked.\n")) == (0, True), done
    assert_kept(target, ledger.deliveries)


def refused(service: Service) -> str:
    """The Retry-After of a delivery that is refused."""
    connection = Connection(service.port)
    try:
        answer = connection.send("refused")
        assert answer.status == 503
        return connection.headers["retry-after"]
    finally:
        connection.close()


@contextmanager
def reader(folder: Path) -> Iterator[None]:
    """Somebody who holds a snapshot of the database, as a backup does, so that its log grows."""
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
    """Deliveries are refused while the log can still be folded, however long it has become, and
    taken again once nobody holds it up, though nothing else is freed: the log is emptied, or is
    begun anew in the room that it has."""
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
    """The same look at a service that waits for somebody else to free something."""
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
    """Below the low water it is refused, and says what to do about it: a lower mark lets it work,
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
            "free some, or lower TALLYHOOK_DISK_LOW_WATER_MB",
        )
        assert found(small, BODIES) == [(1,)]
        assert later(small, *words, **more | {"DISK_LOW_WATER_MB": "4"})[0] == 0
        assert found(small, BODIES) == [(0,)]
        assert refused(service) == "5"


def found(folder: Path, sql: str) -> list[tuple[int]]:
    """What another program finds in the database."""
    with closing(sqlite3.connect(folder / "t.db")) as database:
        return database.execute(sql).fetchall()


def later(folder: Path, *words: str, **more: str) -> tuple[int, str]:
    """A command forty days from now: its exit code, and the last line that it said."""
    ahead = program(stepping(40 * 24 * 3600, str(folder)))
    with running(folder, *words, script=ahead, stays=False, **more) as process:
        code = process.code()
    return code, bytes(process.log).decode().splitlines()[-1]


@pytest.mark.soak
def test_without_a_low_water_the_disk_is_full(small: Path) -> None:
    """The same load fills the disk to the last page, and the space that returns may be too little
    to fold the log: that is what the low water is for. Even so nothing is lost."""
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
