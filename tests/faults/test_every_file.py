"""Faults of each file beside the database, at each time: losses, signs and messages.

The service goes on or ends with one sentence; the next start goes on or says what to do. No
acknowledged delivery is lost, unless a sentence has named that before.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.api.driving import environ
from tests.database.made import put_new
from tests.e2e.processes import Process, command
from tests.faults.check import assert_kept, look
from tests.faults.load import deliver, load
from tests.faults.mounts import mounted
from tests.faults.service import Service, a_service, starting
from tests.faults.test_disk_full import free
from tests.faults.test_log_lost import killed
from tests.faults.test_upgrades_under_load import PROFILES
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

ACKS: Final = 40
NOTICED_S: Final = 1.0
"""Seconds for which a running service is watched: it looks at its files ten times a second."""

REFUSALS: Final = (3, 4)
"""Exit codes of a start that does not go on, or of a service that ends by itself."""

REASON: Final = "no copy is left"
ACCEPT: Final = ("db", "adopt-inbox", "--accept-gap", "--reason", REASON)


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    """Put a copy in its place."""
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def cut_off(path: Path) -> None:
    """Leave half of it, in whole pages where it has some."""
    half = path.stat().st_size // 2
    os.truncate(path, half // 4_096 * 4_096 or half)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def unreadable(path: Path) -> None:
    path.chmod(0)


FAULTS: Final[Mapping[str, Callable[[Path], None]]] = {
    each.__name__: each for each in (removed, replaced, cut_off, emptied, unreadable)
}
CONTENT: Final = (
    *("t.db", "t.db-wal", "t.db-shm", "t.db.inbox", "t.db.inbox-wal", "t.db.inbox-shm"),
    *("t.db.made", "t.evidence.key", "t.phone.key", "t.erasures", "t.erasures.key", "t.env"),
    *("t.db.serving", "own.toml"),
)
LOCKS: Final = ("t.db.reading", "t.db.writing", "t.db.waiting")
"""Files without content."""

CELLS: Final = [
    (file, fault, when)
    for when in ("serving", "stopped")
    for file in (*CONTENT, *LOCKS)
    for fault in FAULTS
    if file in CONTENT or fault not in ("cut_off", "emptied")
]


class Seen(NamedTuple):
    """Result of one cell.

    ended, said    how the service ended by itself, and its last words; None, "": it went on
    refused, why   the same of the next start
    lost           acknowledged deliveries that are not there in the end
    """

    ended: int | None
    said: str
    refused: int | None
    why: str
    lost: int

    def __str__(self) -> str:
        """Return one line for a person."""
        ends = "goes on" if self.ended is None else f"ends with {self.ended}: {self.said}"
        starts = "starts" if self.refused is None else f"refuses with {self.refused}: {self.why}"
        return f"{ends} | {starts} | {self.lost} lost"


def last_words(log: bytes) -> str:
    """Return the last line; of a process that a signal ended, what another says of it."""
    return log.decode().splitlines()[-1] if log else ""


def played(folder: Path, file: str, fault: str, when: str) -> Seen:
    """Serve under load, let the fault happen, and start again."""
    under: list[str] = []
    (folder / "t.env").write_text("TALLYHOOK_TIMEZONE=Africa/Nairobi\n")
    shutil.copy(PROFILES / "checkout.toml", folder / "own.toml")
    settings = {
        "CONFIG": str(folder / "t.env"),
        "SOURCES__SHOP__PROFILE": str(folder / "own.toml"),
    }
    if fault == "unreadable" and os.geteuid() == 0:  # who may read every file
        if shutil.which("setpriv") is None:
            pytest.skip("there is no `setpriv`: apt-get install util-linux")
        under = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    ended, said = None, ""
    with a_service(folder, under=under, restarts="3", **settings) as service:
        with load(service.port) as before:
            before.until(ACKS)
        acknowledged = before.ledger.deliveries
        until(lambda: (folder / file).exists())
        assert {each.name for each in folder.iterdir()} <= {*CONTENT, *LOCKS}
        if when == "stopped":
            killed(service)
            FAULTS[fault](folder / file)
        else:
            FAULTS[fault](folder / file)
            acknowledged |= watched(service, PATIENCE_S if ends(file, fault) else NOTICED_S)
            if service.ended:
                ended, said = service.process.code(), last_words(bytes(service.process.log))
            else:
                assert service.end(signal.SIGTERM) == 0, service.process.log
        assert b"Traceback" not in service.process.log
    refused, why = started_again(folder, under, settings)
    if "db adopt-inbox --accept-gap" in why:
        assert command(folder, *ACCEPT, **settings).returncode == 0
        assert started_again(folder, under, settings) == (None, "")
    elif "serve --accept-gap" in why:
        assert started_again(folder, under, settings | {"accepts": REASON}) == (None, "")
    found = look(folder / "t.db") if (folder / "t.db").exists() else None
    lost = len(acknowledged) if found is None or found.corrupt else len(found.lost(acknowledged))
    return Seen(ended, said, refused, why, lost)


def ends(file: str, fault: str) -> bool:
    """Return whether a running service must end after this fault of a file."""
    return file in CONTENT[:6] and fault in LOST_WHILE_SERVED


def watched(service: Service, most_s: float) -> set[str]:
    """Deliver until the service has ended, or has taken all in for so long; return what it
    acknowledged."""
    acknowledged, taken, until_s = set[str](), False, time.monotonic() + most_s
    while not service.ended and not (taken and time.monotonic() > until_s):
        taken = False
        with suppress(OSError):
            (answer,) = deliver(service.port, "later")
            taken = answer.status == 200
            acknowledged |= {answer.delivery} if taken else set()
        time.sleep(0.1)
    return acknowledged


def started_again(
    folder: Path, under: list[str], settings: dict[str, str]
) -> tuple[int | None, str]:
    """Start it and take a delivery in; return how it refuses, if it does."""
    with starting(folder, under=under, restarts="1", **settings) as process:
        process.wait_for_word()
        if not process.port:
            return process.code(), last_words(bytes(process.log))
        assert deliver(process.port, "again")[0].status == 200
        assert process.end() == 0, process.log
    return None, ""


def check(seen: Seen) -> None:
    """Check what holds for every cell."""
    for code, words in ((seen.ended, seen.said), (seen.refused, seen.why)):
        assert code is None or code in (*REFUSALS, -signal.SIGBUS), seen
        assert (code is None) == (words == ""), seen
    named = any(words in seen.why for words in ("may be lost", "lost is unknown", "restore"))
    assert not seen.lost or named, seen


LOST_WHILE_SERVED: Final = {
    "removed": "is gone while the service was running",
    "replaced": "was replaced while the service was running",
    "cut_off": "was cut off while the service was running",
    "emptied": "was cut off while the service was running",
}
"""Messages of the service by fault, for the first six files."""

UNSAID: Final = "the receiver has ended, so this process ends too"
"""Message of the reader where SIGBUS was faster than its look at the size, ten times a second."""

REFUSALS_OF: Final = {
    ("t.db", "removed"): "t.db.made shows that it existed",
    ("t.db", "cut_off"): "the database file is damaged",
    ("t.db", "emptied"): "t.db.made shows that it existed",
    ("t.db.made", "cut_off"): "is not the database that",
    ("t.evidence.key", "removed"): "there is no key at",
    ("t.evidence.key", "cut_off"): "does not name an ed25519 key",
    ("t.evidence.key", "emptied"): "does not name an ed25519 key",
    ("t.phone.key", "removed"): "the key that this database uses for customers' numbers",
    ("t.phone.key", "cut_off"): "is not 64 hex digits",
    ("t.phone.key", "emptied"): "is not 64 hex digits",
    ("t.env", "removed"): "TALLYHOOK_CONFIG: names no existing file",
    ("own.toml", "removed"): "own.toml",
    ("own.toml", "cut_off"): "own.toml",
    ("own.toml", "emptied"): "own.toml",
    ("own.toml", "unreadable"): "own.toml",
    ("t.db.reading", "unreadable"): "t.db.reading",
}
"""Refusals of a start by file and fault, whenever the fault came. After a lost log they depend on
its contents."""

GATE: Final = [
    ("t.db.inbox", "cut_off", "serving"),
    ("t.db.inbox-wal", "emptied", "stopped"),
    ("t.db-shm", "emptied", "serving"),
    ("t.db", "replaced", "serving"),
]


@pytest.mark.parametrize(
    ("file", "fault", "when"),
    [
        pytest.param(*cell, id="-".join(cell), marks=[] if cell in GATE else pytest.mark.soak)
        for cell in CELLS
    ],
)
def test_a_fault_of_a_file_loses_nothing_unsaid(
    tmp_path: Path, file: str, fault: str, when: str
) -> None:
    seen = played(tmp_path, file, fault, when)
    print(f"{file} {fault} {when}: {seen}")
    check(seen)
    ended = when == "serving" and ends(file, fault)
    assert (seen.ended is not None) == ended, seen
    # Where the signal ends both processes, the machine's supervisor alone can say so.
    if ended and seen.ended != -signal.SIGBUS:
        assert f"{file} {LOST_WHILE_SERVED[fault]}" in seen.said or UNSAID in seen.said, seen
    assert REFUSALS_OF.get((file, fault), "") in seen.why, seen


@pytest.mark.parametrize("fault", [removed, emptied])
def test_a_start_says_that_its_journal_of_erasures_cannot_be_used(
    tmp_path: Path, fault: Callable[[Path], None]
) -> None:
    with a_service(tmp_path) as service:
        assert service.process.end() == 0
    fault(tmp_path / "t.erasures")
    with a_service(tmp_path) as service:
        until(lambda: b"the journal of erasures cannot be used" in service.process.log)
        assert deliver(service.port, "later")[0].status == 200
        assert service.process.end() == 0


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["full", *FAULTS])
def test_a_service_goes_on_whatever_becomes_of_its_log_file(tmp_path: Path, fault: str) -> None:
    """Nothing tells it but a full disk, and that must not stop money."""
    put_new(tmp_path / "t.db")
    port = free_port()
    with mounted(tmp_path / "log", "-t", "tmpfs", "-o", "size=64k", "tmpfs") as small:
        logs = ["sh", "-c", f'exec "$@" 2>>{small}/t.log', "sh"]
        words = [*logs, sys.executable, "-m", "app", "serve", "--port", str(port)]
        process = Process(words, environ(tmp_path))
        try:
            process.port = port
            until(lambda: answers(process))
            if fault == "full":
                (small / "balloon").write_bytes(bytes(free(small)))
            else:
                FAULTS[fault](small / "t.log")
            told = deliver(port, *(f"e-{number}" for number in range(ACKS)))
            assert {each.status for each in told} == {200}
            until(lambda: process.request("GET", "/readyz")[0] == 200)
            assert process.end(signal.SIGTERM) == 0
        finally:
            process.popen.kill()
            process.code()
            assert process.popen.stderr is not None
            process.popen.stderr.close()
    assert_kept(tmp_path / "t.db", {each.delivery for each in told})


def answers(process: Process) -> bool:
    with suppress(OSError):
        return process.request("GET", "/livez")[0] == 200
    return False


@pytest.mark.soak
def test_a_start_on_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """It goes on, or says why not; once there is room, all that was acknowledged is read."""
    low = {"DISK_LOW_WATER_MB": "8"}
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs") as small:
        with a_service(small, restarts="3", **low) as service:
            with load(service.port) as driver:
                driver.until(ACKS)
            killed(service)
        balloon = small / "balloon"
        with suppress(OSError), balloon.open("wb", buffering=0) as file:
            while file.write(bytes(4_096)):
                pass
        with starting(small, restarts="1", **low) as process:
            process.wait_for_word()
            if process.port:
                assert process.request("GET", "/readyz")[0] == 503
                assert {each.status for each in deliver(process.port, "full")} == {503}
                process.end(signal.SIGTERM)
            else:
                assert process.code() in REFUSALS, process.log
            print(f"a start on a full disk: {last_words(bytes(process.log))}")
        balloon.unlink()
        assert started_again(small, [], low) == (None, "")
        assert_kept(small / "t.db", driver.ledger.deliveries)
