"""Real processes that are told to stop: readers are answered, children end, nothing is left."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from app.core.process import ending_signals
from tests.e2e.processes import running, serving, token
from tests.forking import run
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.costly)]
)
def test_told_to_stop_while_a_reader_waits(tmp_path: Path, number: signal.Signals) -> None:
    """A waiting reader gets an empty page: it is answered before the process ends, and not cut off
    when the time for that is over. So it is where the terminal was closed."""
    # Whoever runs the tests may have them pass a closed terminal over.
    within = ("env", "--default-signal=HUP") if number == signal.SIGHUP else ()
    with serving(tmp_path, within=within) as process:
        bearer = {"Authorization": f"Bearer {token(tmp_path)}"}
        reader = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE_S)
        with closing(reader):
            reader.request("GET", "/livez")
            reader.getresponse().read()
            reader.request("GET", "/api/v1/outcomes?wait=60", headers=bearer)
            # Whoever asks later is answered later: by now the reader's question has been read.
            assert process.get("/livez") == {"status": "alive"}
            assert process.end(number) == 0
            answer = reader.getresponse()
            assert (answer.status, json.load(answer)) == (200, {"outcomes": [], "cursor": 0})


def test_a_closed_terminal_is_nothing_to_whoever_said_nohup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)
    assert signal.SIGHUP in ending_signals()
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    assert ending_signals() == (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize(("pid", "code"), [(1, 128 + signal.SIGTERM), (2, -signal.SIGTERM)])
def test_the_first_process_of_a_container_can_be_stopped_while_it_starts(
    pid: int, code: int
) -> None:
    """Its kernel passes over a SIGTERM of which it has said nothing; others end by it anyway."""
    script = f"""
import os, signal, sys
own, os.getpid = os.getpid(), lambda: {pid}
from app.__main__ import main
sys.argv = ["tallyhook", "--version"]
try:
    main()
finally:
    os.kill(own, signal.SIGTERM)
"""
    words = [sys.executable, "-c", script]
    ended = subprocess.run(words, env=clean(), cwd=ROOT, capture_output=True, timeout=PATIENCE_S)
    assert ended.returncode == code, ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sandbox_that_is_told_to_stop_has_done_what_it_was_for(
    tmp_path: Path, number: signal.Signals
) -> None:
    """It stays up until then: no failure, and nothing is said."""
    port = free_port()
    words = ["sandbox", "--port", str(port), "--truth", str(tmp_path / "truth.json")]
    with running(tmp_path, *words, stays=False) as process:
        until(lambda: process.popen.poll() is not None or is_open(port))
        assert process.end(number) == 0
        assert b"Traceback" not in process.log
    assert not is_open(port)
    assert json.loads((tmp_path / "truth.json").read_text()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sandbox_that_is_told_to_stop_while_it_opens_its_port_ends_as_well(
    number: signal.Signals,
) -> None:
    """Whoever waits for its port may be quicker than the rest of its start."""
    script = f"""
import asyncio, os
from contextlib import asynccontextmanager
from starlette.applications import Starlette
from app.sandbox.server import serve_sandbox

@asynccontextmanager
async def lifespan(app):
    os.kill(os.getpid(), {int(number)})
    await asyncio.sleep(0)
    yield
    print("done")

asyncio.run(serve_sandbox(Starlette(lifespan=lifespan), port={free_port()}))
"""
    words = [sys.executable, "-c", script]
    ended = subprocess.run(words, env=clean(), cwd=ROOT, capture_output=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"done\n", b"")


# --- the demo -------------------------------------------------------------------------------------


def clean() -> dict[str, str]:
    """Return the environment without settings of ours, finding the program from anywhere."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TALLYHOOK_")}
    return kept | {"PYTHONPATH": str(ROOT)}


@contextmanager
def a_demo(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a demo in the folder; it and its children surely end with the block."""
    words = [sys.executable, "-m", "app", "demo"]
    with (folder / "out").open("wb") as out:
        demo = subprocess.Popen(
            words, cwd=folder, env=clean(), stdout=out, stderr=out, start_new_session=True
        )
    pids: set[int] = set()
    try:
        pids |= children(demo.pid, count=3)
        yield demo
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait(PATIENCE_S)
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def children(pid: int, *, count: int) -> set[int]:
    """Return the processes that it has started, once there are so many."""
    found: set[int] = set()

    def are_there() -> bool:
        found.clear()
        found.update(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
        return len(found) == count

    until(are_there, otherwise=lambda: found)
    return found


def alive(pid: int) -> bool:
    """Return whether the process is there and is ours: `python -m app …`."""
    try:
        return b"\0-m\0app\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def ports(folder: Path, *pids: int) -> list[int]:
    """List the ports that the demo gave to its children, from their command lines."""
    found = []
    for pid in pids:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        found.append(int(words[words.index("--port") + 1]))
    return found


def is_open(port: int) -> bool:
    """Return whether anybody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def held(port: int) -> Iterator[None]:
    """Hold a port, so that nobody else can take it; it is as well if somebody has it."""
    with socket.socket() as taken:
        with suppress(OSError):
            taken.bind(("127.0.0.1", port))
            taken.listen()
        yield


@pytest.mark.soak
def test_a_demo_that_is_told_to_stop_takes_its_children_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One demo at a time in a folder; SIGTERM ends it and both of its servers."""
    monkeypatch.chdir(tmp_path)
    database = tmp_path / "var" / "demo" / "tallyhook.db"
    # Other tests' demos like the usual ports, too: here it must take ports of its own.
    with held(8080), held(8090), a_demo(tmp_path) as demo:
        until(database.exists)
        before = database.stat().st_ino
        # --once: should it not be refused, it ends by itself and takes its servers along
        words = [sys.executable, "-m", "app", "demo", "--once"]
        second = run(words, env=clean(), timeout=PATIENCE_S)
        assert second.returncode == 2
        assert second.stderr.startswith(
            b"tallyhook: another demo is running in this folder (process %d" % demo.pid
        )
        assert len(second.stderr.splitlines()) == 1
        assert database.stat().st_ino == before
        servers = children(demo.pid, count=3)
        listening = ports(tmp_path, *servers)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert [pid for pid in servers if alive(pid)] == []
        assert [port for port in listening if is_open(port)] == []
    assert b"Traceback" not in (tmp_path / "out").read_bytes()
    assert not (tmp_path / "var" / "demo" / "pid").exists()


def ctrl_c(pid: int) -> None:
    """Interrupt the demo and the servers that it started, as a terminal does."""
    os.killpg(pid, signal.SIGINT)


def terminate(pid: int) -> None:
    """Terminate the demo alone, as a service manager does."""
    os.kill(pid, signal.SIGTERM)


@pytest.mark.soak
@pytest.mark.parametrize("tell", [ctrl_c, terminate])
def test_a_demo_that_stays_up_ends_well(tmp_path: Path, tell: Callable[[int], None]) -> None:
    """All has been played, and it stays until it is told to end: that is no failure."""
    out = tmp_path / "out"
    with a_demo(tmp_path) as demo:
        until(
            lambda: demo.poll() is not None or b"stays up until Ctrl-C" in out.read_bytes(),
            otherwise=out.read_text,
        )
        servers = children(demo.pid, count=3)
        tell(demo.pid)
        assert demo.wait(PATIENCE_S) == 0, out.read_text()
        assert [pid for pid in servers if alive(pid)] == []
    assert b"Traceback" not in out.read_bytes()
    assert not (tmp_path / "var" / "demo" / "pid").exists()


@pytest.mark.soak
def test_a_demo_that_is_interrupted_while_it_plays_has_not_done_it(tmp_path: Path) -> None:
    """Whoever waits for what it finds must not take an interruption for its success."""
    with a_demo(tmp_path) as demo:
        servers = children(demo.pid, count=3)
        ctrl_c(demo.pid)
        assert demo.wait(PATIENCE_S) == 130
        assert [pid for pid in servers if alive(pid)] == []
    assert b"Traceback" not in (tmp_path / "out").read_bytes()


@pytest.mark.soak
def test_three_demos_at_once(tmp_path: Path) -> None:
    """In folders of their own all end well, and each prints that all was right: they take ports
    that none of the others can have, and wait for each other's servers as long as these need."""
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        demos = [
            subprocess.Popen(
                [sys.executable, "-m", "app", "demo", "--once"],
                cwd=folder,
                env=clean(),
                stdout=stack.enter_context((folder / "out").open("wb")),
                stderr=subprocess.STDOUT,
            )
            for folder in folders
        ]
    codes = [demo.wait(3 * PATIENCE_S) for demo in demos]
    said = [(folder / "out").read_text() for folder in folders]
    assert codes == [0, 0, 0], said
    assert all("16 of 16 scenarios ended" in each for each in said)
