"""After the first I/O error of a disk, or once its file system is read-only, nothing more is
acknowledged and the process ends; a full disk is only refused for as long as it lasts. Either way
nothing acknowledged is lost."""

from __future__ import annotations

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
"""The lock of whoever serves: the first file that a start writes to."""

RUNNING = [("fdatasync:error=EIO:when=2", INBOX_LOG)]
"""Call number n on a log or a file, of a service at work: of the receiver on the inbox, and in the
long form of the process behind it on the database, too."""

ALL_RUNNING = [
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

STARTING = [("pwrite64:error=EIO:when=1", DATABASE)]
"""The same while it starts on a database whose log is still to be folded."""

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
"""Every so-manieth call; a write that returns 0 has written nothing: a short one. Twenty writes
are enough to keep a delivery, and not to delete beside it what was read."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that was closed well."""
    return base(tmp_path_factory.mktemp("stopped") / "base", killed=False)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose service was killed."""
    return base(tmp_path_factory.mktemp("killed") / "base", killed=True)


async def starts_again(folder: Path, case: Case) -> None:
    """The next start finds nothing wrong, and nothing acknowledged is lost."""
    await start(folder)
    assert_kept(folder / "t.db", case.ledger.deliveries)


def stops(folder: Path, inject: str, file: str, **more: str) -> Case:
    """Serve under load until the call fails; wait for the end."""
    with faulty(folder, inject=inject, file=file, **more) as (process, case):
        assert case.served, process.log
        under_load(process, case, acks=1_000)
        case.code = process.code()
    # Each process counts its calls: both may meet the fault before one has ended the other.
    assert 1 <= len(case.faults) <= 2, "the fault was not injected"
    return case


async def stops_and_starts(source: Path, folder: Path, inject: str, file: str, **more: str) -> None:
    """Only what was committed before may still be told; the file is left as it is; the next start
    finds nothing wrong."""
    case = stops(copied(source, folder), inject, file, **more)
    assert case.code == UNREACHABLE
    # What rests on the inbox may be told until the receiver has heard of the database's error.
    assert case.after <= CONNECTIONS or file in (DATABASE, LOG)
    assert case.calls == []
    assert b"Traceback" not in case.words
    await starts_again(folder, case)


@pytest.mark.parametrize(("inject", "file"), RUNNING)
async def test_an_io_error_stops_a_service(
    stopped: Path, tmp_path: Path, inject: str, file: str
) -> None:
    """Nothing more is acknowledged or written, and the next start finds nothing wrong."""
    await stops_and_starts(stopped, tmp_path / "case", inject, file)


@pytest.mark.soak
async def test_an_io_error_stops_a_service_behind_a_proxy(stopped: Path, tmp_path: Path) -> None:
    """The same where the sender's address is another's word."""
    call = "fdatasync:error=EIO:when=2", INBOX_LOG
    proxy = {"FORWARDED_ALLOW_IPS": "127.0.6.0/24"}
    await stops_and_starts(stopped, tmp_path / "case", *call, **proxy)


@pytest.mark.soak
@pytest.mark.parametrize(("inject", "file"), ALL_RUNNING)
async def test_an_io_error_at_any_call(
    stopped: Path, tmp_path: Path, inject: str, file: str
) -> None:
    """The same at many more calls."""
    await stops_and_starts(stopped, tmp_path / "case", inject, file)


@pytest.mark.soak
@pytest.mark.parametrize("error", ["EIO", "EROFS"])
def test_a_service_that_goes_on_is_caught(stopped: Path, tmp_path: Path, error: str) -> None:
    """The same check sees a service that takes such an error for passing trouble."""
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
    """Nobody listens before the log is folded and synced; one sentence says why."""
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
    """Each time senders are told to come again; the service lives, and goes on acknowledging."""
    folder = copied(stopped, tmp_path / "case")
    with faulty(folder, inject=inject, file=file) as (process, case):
        assert case.served, process.log
        under_load(process, case, acks=40, faults=3)
        assert process.popen.poll() is None
    assert len(case.faults) >= 3, "the fault was not injected"
    assert case.after >= 40
    assert case.ledger.statuses() == ({200, 503} if file == INBOX_LOG else {200})
    await starts_again(folder, case)
