"""System calls of a running service that fail, and the results."""

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
"""Events at least in a database in the midst of its life."""


@dataclass(slots=True, kw_only=True)
class Case:
    """Results of one fault.

    served   whether the process came so far as to serve
    code     how it ended by itself; None if it lived on
    faults   when a call was made to fail
    calls    calls on the file after the first of these, one line a call
    trace    the file with all of that while it runs
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
        """Acknowledgements after the first fault."""
        return sum(answer.at > self.faults[0] for answer in self.ledger.acknowledged)


def base(folder: Path, *, killed: bool) -> Path:
    """Make a database in the midst of its life; if killed, its log is still to be folded."""
    folder.mkdir()
    with a_service(folder, script="" if killed else script(SMALL_LOG)) as service:
        with load(service.port, name="base") as driver:
            driver.until(100)
        if killed:  # both at one moment: the one that is left would checkpoint the log
            until(lambda: events_in(folder / DATABASE) >= EVENTS)
            worker = service.worker()
            os.kill(worker, signal.SIGSTOP)
            service.signal(signal.SIGKILL)
            os.kill(worker, signal.SIGKILL)
            service.process.code()
            until(lambda: not Path(f"/proc/{worker}").exists())
        else:
            service.end(signal.SIGTERM)
    return folder


def events_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM events").fetchone()[0])


async def start(folder: Path) -> None:
    """Start a service, as far as the database is concerned, and end it."""
    settings = Settings(database_url=f"sqlite+aiosqlite:///{folder}/t.db", environment="sandbox")
    async with open_inbox(settings, purpose="serving"):
        pass


@contextmanager
def faulty(
    folder: Path, *, inject: str, file: str, plant: str = "", **more: str
) -> Iterator[tuple[Process, Case]]:
    """Run a service whose calls on one file fail; read the case when it is over.

    inject  in strace's words: `fdatasync:error=EIO:when=3`
    more    further settings
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
    for line in case.trace.read_text().splitlines():
        _, at, call = line.split(maxsplit=2)
        if "(INJECTED)" in call:
            case.faults.append(Instant(float(at) * SECOND))
        elif case.faults and "+++" not in call:
            case.calls.append(call)


def copied(source: Path, folder: Path) -> Path:
    return Path(shutil.copytree(source, folder))


def under_load(process: Process, case: Case, *, acks: int, faults: int = 0) -> None:
    """Load until so many acknowledgements, or until nobody answers; of faults that come again and
    again, so many must come first."""
    with load(process.port, name="case") as driver:
        driver.until_it(lambda: case.trace.read_text().count("(INJECTED)") >= faults)
        driver.until(len(driver.ledger.acknowledged) + acks)
    case.ledger = driver.ledger
