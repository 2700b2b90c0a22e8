"""Start `tallyhook` processes for tests by forking a process that has imported the program.

Importing the program is most of the cost of a short process, and the suite starts hundreds:

    1 the first start in a test process starts the server, which imports the program and waits
    2 each start sends words, environment, folder and descriptors; the server forks
    3 the child takes them over as a new process would, runs what is planted, then the program
    4 a service starts a child of its own that reads the inbox: it is forked in advance, a "spare"
    5 the server reports how each child ended

A traced process is executed anew instead, and so is every process if `TALLYHOOK_LONG` is set.
A forked process differs from an executed one in `/proc/PID/cmdline`, in its parent and in the
memory that it shares.
"""

import asyncio
import atexit
import gc
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
EXECUTED: Final = bool(os.environ.get("TALLYHOOK_LONG"))
"""Flag to execute each process anew. Read once: tests remove this machine's variables."""

MOST_BYTES: Final = 200_000
"""Size of one request at most; the environment is most of it."""

MOST_FILES: Final = 32

LEFT_ALONE: Final = ("app.__main__", "app.database.migrations.env", "app.client")
"""Modules that do something when they are imported, or that belong to another program."""

LATE: Final = (
    "alembic.command",
    "anyio._backends._asyncio",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "webauthn",
)
"""Modules of libraries that the program imports only when it first needs them."""

Words = Sequence[str]


# --- for tests ------------------------------------------------------------------------------------


class Forked:
    """A forked process, with the part of the interface of `subprocess.Popen` that tests use."""

    def __init__(self, words: Words, link: socket.socket, pid: int) -> None:
        self.args = words
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self._link = link
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the process ends. Raises TimeoutExpired."""
        with self._asking:
            if self.returncode is None:
                self._link.settimeout(timeout)
                try:
                    self.returncode = int(self._link.recv(100))
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
                self._link.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end, as a supervisor does."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)


Started = Forked | subprocess.Popen[bytes]


def start(
    words: Words,
    *,
    env: Mapping[str, str],
    stdout: Any = None,
    stderr: Any = None,
    pass_fds: Sequence[int] = (),
) -> Started:
    """Start `python -m app …` or `python -c …`, as `subprocess.Popen` does with these arguments."""
    if not _may_be_forked(words, env):
        return subprocess.Popen(words, env=env, stdout=stdout, stderr=stderr, pass_fds=pass_fds)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(str(_server()))
    out, err = _send(link, words[1:], env, [0, stdout, stderr], pass_fds)[1:]
    process = Forked(words, link, int(link.recv(100)))
    process.stdout, process.stderr = out, err
    return process


def run(
    words: Words, *, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, as `subprocess.run` does that captures both streams."""
    if not _may_be_forked(words, env):
        return subprocess.run(words, env=env, capture_output=True, timeout=timeout, check=False)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(words, env=env, stdout=out, stderr=err)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


_COMMAND = """#!{python} -IS
import json, os, signal, socket, sys

link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect("{server}")
request = {{"words": sys.argv, "env": dict(os.environ)}}
request |= {{"folder": os.getcwd(), "numbers": [0, 1, 2]}}
socket.send_fds(link, [json.dumps(request).encode()], [0, 1, 2])
pid = int(link.recv(100))
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: os.kill(pid, number))
sys.exit(int(link.recv(100)) & 255)
"""


def command_in(folder: Path, *names: str) -> Path:
    """Return a folder for PATH with commands of these names (`tallyhook`) that start forked.

    Where processes are executed anew it is the folder of the installed commands. The command
    `python` understands only `-m`.
    """
    if EXECUTED:
        return Path(sys.executable).parent
    for name in names or ("tallyhook",):
        command = folder / name
        command.write_text(_COMMAND.format(python=sys.executable, server=_server()))
        command.chmod(0o700)
    return folder


def _may_be_forked(words: Words, env: Mapping[str, str]) -> bool:
    """Tell whether this is our program, without settings of its own for the interpreter."""
    asked = {name for name in env.keys() | os.environ.keys() if name.startswith("PYTHON")}
    asked = {name for name in asked if env.get(name) != os.environ.get(name)} - {"PYTHONPATH"}
    ours = words[0] == sys.executable and (words[1] == "-c" or words[1:3] == ["-m", "app"])
    return ours and not asked and not EXECUTED


def _send(
    link: socket.socket,
    words: Words,
    env: Mapping[str, str],
    streams: Sequence[Any],
    pass_fds: Sequence[int],
) -> list[IO[bytes] | None]:
    """Send what a process is to be. Returns our end of each standard stream that is a pipe."""
    given = {number: number for number in pass_fds}
    ours: list[IO[bytes] | None] = []
    opened: list[int] = []
    for number, wanted in enumerate(streams):
        pipe = None
        if wanted is None:
            given[number] = number
        elif wanted == subprocess.PIPE:
            end, given[number] = os.pipe()
            pipe = os.fdopen(end, "rb")
            opened.append(given[number])
        elif wanted == subprocess.DEVNULL:
            given[number] = os.open(os.devnull, os.O_RDWR)
            opened.append(given[number])
        else:
            given[number] = wanted if isinstance(wanted, int) else wanted.fileno()
        ours.append(pipe)
    request = {"words": words, "env": dict(env), "folder": os.getcwd(), "numbers": list(given)}
    socket.send_fds(link, [json.dumps(request).encode()], list(given.values()))
    for number in opened:
        os.close(number)
    return ours


@cache
def _server() -> Path:
    """Start the server, which ends with this process; returns where it listens."""
    path = Path(tempfile.mkdtemp(prefix="forking-"), "s")
    alive, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        words = [sys.executable, "-m", "tests.forking", str(path), str(number)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TALLYHOOK_")}
        process = subprocess.Popen(words, cwd=ROOT, env=clean, pass_fds=[number])

    def end() -> None:
        alive.close()
        process.wait()
        shutil.rmtree(path.parent)

    atexit.register(end)
    assert alive.recv(1) == b"r", "the fork server does not start"
    return path


# --- the server -----------------------------------------------------------------------------------


def serve(path: str, parent: int) -> None:
    """Fork whatever is asked for, until the parent is gone.

    Returns in each child, which then runs the program at the bottom of the stack.
    """
    alive = socket.socket(fileno=parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(100)
    _load()
    alive.send(b"r")
    ended: dict[int, tuple[int, socket.socket]] = {}
    while True:
        watched: list[Any] = [alive, listener, *ended]
        ready = select.select(watched, [], [])[0]
        if alive in ready:
            os._exit(0)
        for pidfd in [each for each in ready if each in ended]:
            pid, link = ended.pop(pidfd)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(OSError):  # nobody may want to know
                link.send(str(code).encode())
            link.close()
            os.close(pidfd)
        if listener in ready:
            link, _ = listener.accept()
            data, numbers, _, _ = socket.recv_fds(link, MOST_BYTES, MOST_FILES)
            pid = os.fork()
            if pid == 0:
                for pidfd, (_, other) in ended.items():
                    os.close(pidfd)
                    other.close()
                for each in (alive, listener, link):
                    each.close()
                _become(json.loads(data), numbers)
                return
            for number in numbers:
                os.close(number)
            link.send(str(pid).encode())
            ended[os.pidfd_open(pid)] = pid, link


def _load() -> None:
    """Import the whole program, and make garbage collection skip what it loaded."""
    import app

    for each in pkgutil.walk_packages(app.__path__, "app."):
        if not each.name.startswith(LEFT_ALONE) and ".versions" not in each.name:
            import_module(each.name)
    for name in LATE:
        import_module(name)
    import_module("app.providers.profile").load_profile("checkout")
    # Making a client loads more modules, and the machine's certificates.
    http = import_module("app.core.http")
    http.outgoing_client(timeout_s=1.0)
    http.trusting()
    gc.collect()
    gc.freeze()


# --- a child --------------------------------------------------------------------------------------


def _become(request: Mapping[str, Any], numbers: Sequence[int]) -> None:
    """Take over words, environment, folder and descriptors, each under its own number."""
    import fcntl

    words = request["words"]
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["folder"])
    high = [fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, 1_000) for found in numbers]
    for found in numbers:
        os.close(found)
    for number, found in zip(request["numbers"], high, strict=True):
        os.dup2(found, number)
        os.close(found)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        setattr(sys, name, None)
        with suppress(OSError):  # closed by whoever started this
            # The descriptor outlives the object: this process may become another once more.
            setattr(sys, name, os.fdopen(number, mode, 1 if number == 2 else -1, closefd=False))
    sys.orig_argv = [sys.executable, *words]
    global _program
    match words:
        case ["-c", code, *rest]:
            _program, sys.argv = code, ["-c", *rest]
        case ["-m", "app", *rest]:
            _program, sys.argv = "", [str(ROOT / "app" / "__main__.py"), *rest]
        case [name, "-m", module, *rest] if Path(name).name == "python":
            _program, sys.argv = f"{_RUN_MODULE}({module!r}, run_name='__main__')", [name, *rest]
        case _:  # the installed command
            _program, sys.argv = "", words
    main: Any = sys.modules["__main__"]
    main.__package__ = "app" if words[0] == "-m" else None
    passed = [number for number in request["numbers"] if number > 2]
    _keep_spares([] if _program else sys.argv[1:], passed)


_program = ""
_RUN_MODULE: Final = "__import__('runpy').run_module"


def run_program() -> int:
    """Run what `python -m app` or `python -c` would run. Returns the exit code."""
    try:
        for folder in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
            planted = Path(folder, "sitecustomize.py")
            if planted.exists():
                exec(compile(planted.read_text(), planted, "exec"), {"__name__": "sitecustomize"})
        if _program:
            exec(compile(_program, "<string>", "exec"), {"__name__": "__main__"})
            return 0
        from app.__main__ import main

        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


# --- the process that a child starts --------------------------------------------------------------


class _Spare:
    """A started spare, with the part of `asyncio.subprocess.Process` that the program uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._pidfd)
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


SPARES: Final = {"serve": 1, "demo": 2}
"""Processes that a command starts at once: the inbox's reader, or the demo's service and provider.
Those that it starts later are executed, unless MORE_SPARES gives the number of further spares."""

MORE_SPARES: Final = "FORKING_MORE_SPARES"
"""Environment variable of a process whose child will be started again."""

SPARE: Final = "spare"
"""The kernel's name for a process that the program has not asked for yet."""


def is_spare(pid: int) -> bool:
    """Tell whether this child is a spare, which the program has not started yet."""
    return Path(f"/proc/{pid}/comm").read_text().strip() == SPARE


def _keep_spares(words: Words, passed: Sequence[int]) -> None:
    """Fork in advance each process that this command will start.

    passed: descriptors of this process that the spares must not keep open.
    """
    spares: list[tuple[int, socket.socket]] = []
    count = int(os.environ.pop(MORE_SPARES, 0))
    if words and "--no-worker" not in words:
        count += SPARES.get(words[0], 0)
    comm = Path("/proc/self/comm")
    for _ in range(count):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            for _, other in (*spares, (0, ours)):
                other.close()
            for number in passed:
                os.close(number)
            name = comm.read_text()
            comm.write_text(SPARE)
            data, numbers, _, _ = socket.recv_fds(theirs, MOST_BYTES, MOST_FILES)
            if not data:
                os._exit(0)  # it was not wanted
            theirs.close()
            comm.write_text(name)
            _become(json.loads(data), numbers)
            return
        theirs.close()
        spares.append((pid, ours))
    if spares:
        asyncio.create_subprocess_exec = partial(_started, spares, asyncio.create_subprocess_exec)


async def _started(
    spares: list[tuple[int, socket.socket]], execute: Callable[..., Any], *words: Any, **named: Any
) -> Any:
    """Start one of the spares if it is for a process of our own; execute anything else."""
    if words[1:3] != ("-m", "app") or not spares:
        return await execute(*words, **named)
    pid, link = spares.pop(0)
    env = named.get("env") or os.environ
    streams = [named.get(name) for name in ("stdin", "stdout", "stderr")]
    with link:
        _send(link, words[1:], env, streams, named.get("pass_fds", ()))
    return _Spare(pid)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
    code = run_program()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):
            if stream is not None:
                stream.flush()
    os._exit(code & 0xFF)
