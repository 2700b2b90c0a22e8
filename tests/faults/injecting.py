"""Makes chosen system calls of a running service fail, and says what came of it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.config.settings import Settings
from app.receiving.inbox import open_inbox
from reconcile.instants import SECOND, Instant
from tests.e2e.processes import Process
from tests.faults.load import Ledger, load
from tests.faults.plants import SMALL_LOG, script
from tests.faults.service import a_service, starting
from tests.waiting import until

DATABASE, LOG = "t.db", "t.db-wal"
INBOX, INBOX_LOG = "t.db.inbox", "t.db.inbox-wal"
EVENTS = 50
"""Events that a database in the midst of its life has at least, of all its orders."""


@dataclass(slots=True, kw_only=True)
class Case:
    """What came of one fault.

    served   whether the process came so far as to serve
    code     how it ended by itself; None where it lived on
    faults   when a call was made to fail
    calls    what was done with the file after the first of these, one line a call
    trace    where all of that is written while it runs
    """

    trace: Path
    served: bool = False
    code: int | None = None
    faults: list[Instant] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    words: bytes = b""

    @property
    def after(self) -> int:
        """Acknowledgements that came in after the first fault."""
        return sum(answer.at > self.faults[0] for answer in self.ledger.acknowledged)


def base(folder: Path, *, killed: bool) -> Path:
    """A database in the midst of its life; its log is still to be folded if it was killed."""
    folder.mkdir()
    with a_service(folder, script="" if killed else script(SMALL_LOG)) as service:
        with load(service.port, name="base") as driver:
            driver.until(100)
        if killed:  # both at one moment: the one that is left would fold the log
            until(lambda: _has_events(folder / DATABASE))
            worker = service.worker()
            os.kill(worker, signal.SIGSTOP)
            service.signal(signal.SIGKILL)
            os.kill(worker, signal.SIGKILL)
            service.process.code()
            until(lambda: not Path(f"/proc/{worker}").exists())
        else:
            service.end(signal.SIGTERM)
    return folder


def _has_events(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM events").fetchone()[0]) >= EVENTS


async def start(folder: Path) -> None:
    """The start of a service, as far as it concerns the database, and its end."""
    settings = Settings(database_url=f"sqlite+aiosqlite:///{folder}/t.db", environment="sandbox")
    async with open_inbox(settings, purpose="serving"):
        pass


@contextmanager
def faulty(
    folder: Path, *, inject: str, file: str, plant: str = "", **more: str
) -> Iterator[tuple[Process, Case]]:
    """A service of which calls on one file fail. Look at the case when it is over.

    inject  as strace says it: `fdatasync:error=EIO:when=3`
    more    of its settings
    """
    case = Case(trace=folder / "calls")
    (folder / file).touch()  # strace follows the paths of files that are there
    call = inject.partition(":")[0]
    traced = f"trace={call},pwrite64,fdatasync,ftruncate"
    options = ["-f", "-qq", "-ttt", "-e", "signal=none"]
    if "signal=" not in inject:  # strace 6.1 delivers none where the kernel chooses the calls
        options.append("--seccomp-bpf")
    options += ["-e", traced, "-e", f"inject={inject}"]
    under = ["strace", *options, "-P", str(folder / file), "-o", str(case.trace)]
    with starting(folder, script=script(SMALL_LOG, plant), under=under, **more) as process:
        process.wait_for_word()
        case.served = bool(process.port)
        yield process, case
        case.words = bytes(process.log)
    _read(case)


def _read(case: Case) -> None:
    for line in case.trace.read_text().splitlines():
        _, at, call = line.split(maxsplit=2)
        if "(INJECTED)" in call:
            case.faults.append(Instant(float(at) * SECOND))
        elif case.faults and "+++" not in call:
            case.calls.append(call)


def copied(source: Path, folder: Path) -> Path:
    """A copy of a database for one case."""
    shutil.copytree(source, folder)
    return folder


def under_load(process: Process, case: Case, *, acks: int, faults: int = 0) -> None:
    """Load until so many acknowledgements, or until nobody answers any more.

    faults  where they come again and again: so many of them must come first
    """
    with load(process.port, name="case") as driver:
        driver.until_it(lambda: case.trace.read_text().count("(INJECTED)") >= faults)
        driver.until(len(driver.ledger.acknowledged) + acks)
    case.ledger = driver.ledger
