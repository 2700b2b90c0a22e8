"""System calls that fail. The first I/O error, or a read-only file system, ends the process. While
a disk is full, deliveries are refused. No acknowledged delivery is lost."""

from pathlib import Path

import pytest

from tests.faults.check import assert_kept
from tests.faults.injecting import (
    DATABASE,
    INBOX,
    INBOX_LOG,
    LOG,
    Case,
    base,
    copied,
    faulty,
    start,
    under_load,
)
from tests.faults.load import CONNECTIONS
from tests.faults.plants import GOES_ON
from tests.faults.service import needs_strace

pytestmark = [needs_strace, pytest.mark.slow]

UNREACHABLE = 4
"""The exit code of a store that failed."""

SERVING = "t.db.serving"
"""The lock of the serving process, which a start writes first."""

RUNNING = [("fdatasync:error=EIO:when=2", INBOX_LOG)]
MORE_RUNNING = [
    (f"{call}:error={error}:when={n}", file)
    for error in ("EIO", "EROFS")
    for call, file, last in (
        ("pwrite64", INBOX_LOG, 200),
        ("fdatasync", INBOX_LOG, 60),
        ("pwrite64", INBOX, 20),
        ("fdatasync", INBOX, 6),
        ("pwrite64", LOG, 200),
        ("fdatasync", LOG, 60),
        ("pwrite64", DATABASE, 60),
        ("fdatasync", DATABASE, 6),
    )
    for n in range(1, last + 1)
]
"""Call number n on a log or a file of a running service; in the long form of the process behind it
on the database, too."""

STARTING = [("pwrite64:error=EIO:when=1", DATABASE)]
"""Calls of a start on a database whose log is still to be folded."""

MORE_STARTING = [
    ("openat:error=EROFS:when=1", SERVING),
    ("fdatasync:error=EIO:when=1", LOG),
    ("fdatasync:error=EIO:when=1", INBOX_LOG),
    ("pwrite64:error=EIO:when=2", DATABASE),
    ("fdatasync:error=EIO:when=1", DATABASE),
    ("fdatasync:error=EIO:when=1", INBOX),
    ("pwrite64:error=EIO:when=1", INBOX),
    ("openat:error=EIO:when=1", INBOX),
    ("ftruncate:error=EIO:when=1", LOG),
    ("openat:error=EIO:when=1", DATABASE),
    ("pwrite64:error=EROFS:when=1", DATABASE),
    ("fdatasync:error=EROFS:when=1", LOG),
]

PASSING = [
    ("pwrite64:error=ENOSPC:when=40+20", INBOX_LOG),
    ("pwrite64:retval=0:when=40+61", LOG),
    ("pwrite64:error=ENOSPC:when=40+61", INBOX_LOG),
    ("pwrite64:retval=0:when=40+61", INBOX_LOG),
    ("pwrite64:error=ENOSPC:when=40+61", LOG),
    ("pwrite64:error=ENOSPC:when=10+31", DATABASE),
]
"""Every n-th call; a write that returns 0 is a short one. Twenty writes are enough to keep a
delivery, but not to delete read ones beside it."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database that was closed in order."""
    return base(tmp_path_factory.mktemp("stopped") / "base", killed=False)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database whose service was killed."""
    return base(tmp_path_factory.mktemp("killed") / "base", killed=True)


async def starts_again(folder: Path, case: Case) -> None:
    """Start again, and check that nothing is wrong or lost."""
    await start(folder)
    assert_kept(folder / "t.db", case.ledger.deliveries)


async def stops_and_starts(source: Path, folder: Path, inject: str, file: str, **more: str) -> None:
    """Serve under load until the call fails: only what was committed before may still be
    acknowledged, the file is not touched again, and the next start finds nothing wrong."""
    with faulty(copied(source, folder), inject=inject, file=file, **more) as (process, case):
        assert case.served, process.log
        under_load(process, case, acks=1_000)
        case.code = process.code()
    # Each process counts its calls: both may meet the fault before one has ended the other.
    assert 1 <= len(case.faults) <= 2, "the fault was not injected"
    assert case.code == UNREACHABLE
    # The receiver acknowledges until it has heard of the database's error.
    assert case.after <= CONNECTIONS or file in (DATABASE, LOG)
    assert case.calls == []
    assert b"Traceback" not in case.words
    await starts_again(folder, case)


@pytest.mark.parametrize(
    ("inject", "file"),
    [*RUNNING, *(pytest.param(*each, marks=pytest.mark.soak) for each in MORE_RUNNING)],
)
async def test_an_io_error_stops_a_service(
    stopped: Path, tmp_path: Path, inject: str, file: str
) -> None:
    await stops_and_starts(stopped, tmp_path / "case", inject, file)


@pytest.mark.soak
async def test_an_io_error_stops_a_service_behind_a_proxy(stopped: Path, tmp_path: Path) -> None:
    call = "fdatasync:error=EIO:when=2", INBOX_LOG
    proxy = {"FORWARDED_ALLOW_IPS": "127.0.6.0/24"}
    await stops_and_starts(stopped, tmp_path / "case", *call, **proxy)


@pytest.mark.soak
@pytest.mark.parametrize("error", ["EIO", "EROFS"])
def test_a_service_that_goes_on_is_caught(stopped: Path, tmp_path: Path, error: str) -> None:
    """A service that takes such an error for a passing one is seen."""
    folder = copied(stopped, tmp_path / "case")
    inject = f"fdatasync:error={error}:when=3"
    with faulty(folder, inject=inject, file=INBOX_LOG, plant=GOES_ON) as (process, case):
        under_load(process, case, acks=200)
        assert process.popen.poll() is None
    assert len(case.faults) == 1
    assert case.after > CONNECTIONS
    assert case.calls != []


@pytest.mark.parametrize(
    ("inject", "file"),
    [*STARTING, *(pytest.param(*each, marks=pytest.mark.soak) for each in MORE_STARTING)],
)
async def test_an_io_error_at_the_start_is_not_served(
    killed: Path, tmp_path: Path, inject: str, file: str
) -> None:
    """Nobody listens before the log is checkpointed and synced; one sentence says why."""
    folder = copied(killed, tmp_path / "case")
    with faulty(folder, inject=inject, file=file) as (process, case):
        assert not case.served, process.log
        case.code = process.code()
    assert len(case.faults) >= 1, "the fault was not injected"
    assert case.code == UNREACHABLE
    sentence = case.words.splitlines()[-1]
    assert sentence.startswith(b"tallyhook: ")
    assert b"read-only" in sentence or "EROFS" not in inject
    assert b"Traceback" not in case.words
    await starts_again(folder, case)


@pytest.mark.soak
@pytest.mark.parametrize(("inject", "file"), PASSING)
async def test_a_disk_that_is_full_now_and_then(
    stopped: Path, tmp_path: Path, inject: str, file: str
) -> None:
    """Senders are asked to come again; the service lives, and goes on acknowledging."""
    folder = copied(stopped, tmp_path / "case")
    with faulty(folder, inject=inject, file=file) as (process, case):
        assert case.served, process.log
        under_load(process, case, acks=40, faults=3)
        assert process.popen.poll() is None
    assert len(case.faults) >= 3, "the fault was not injected"
    assert case.after >= 40
    assert case.ledger.statuses() == ({200, 503} if file == INBOX_LOG else {200})
    await starts_again(folder, case)
