"""Test that a forked process behaves like an executed one: words, streams, folder, end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forking
from tests.faults.service import a_service
from tests.forking import run, start
from tests.waiting import PATIENCE_S

SAYS = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["WORD"], len(os.listdir("/proc/self/fd")))
print("aside", file=sys.stderr)
os.write(int(sys.argv[1]), b"passed on")
sys.exit(int(sys.argv[2]))
"""

FILES = 5
"""Open files: the three streams, the one passed on, and the folder being listed."""


@pytest.fixture(params=[False, True], ids=["forked", "executed"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the test's processes forked or executed."""
    monkeypatch.setattr(forking, "EXECUTED", request.param)


@pytest.mark.usefixtures("either_way")
def test_it_has_what_it_was_given(tmp_path: Path) -> None:
    """Test words, variables, folder, streams, descriptor numbers and exit code."""
    with (tmp_path / "out").open("wb") as out, (tmp_path / "passed").open("wb") as passed:
        words = [sys.executable, "-c", SAYS, str(passed.fileno()), "7"]
        process = start(
            words,
            env=os.environ | {"WORD": "given"},
            stdout=out,
            stderr=subprocess.PIPE,
            pass_fds=[passed.fileno()],
        )
        assert process.stderr is not None
        with process.stderr:
            assert process.stderr.read() == b"aside\n"
        assert process.wait(PATIENCE_S) == process.poll() == 7
    said = f"['-c', '{words[3]}', '7'] {os.getcwd()} given {FILES}\n"
    assert (tmp_path / "out").read_text() == said
    assert (tmp_path / "passed").read_bytes() == b"passed on"


@pytest.mark.usefixtures("either_way")
def test_a_command_says_the_same() -> None:
    """Test that a command prints the same, also when it fails."""
    for words, code, beginning in (
        (["--version"], 0, b""),
        (["orders", "x"], 2, b"Usage: tallyhook orders "),
    ):
        done = run([sys.executable, "-m", "app", *words], env=os.environ, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout == b"") == (code, code != 0)
        assert done.stderr.startswith(beginning)


@pytest.mark.usefixtures("either_way")
def test_it_ends_by_a_signal() -> None:
    """Test that a signal ends it, and that its parent learns of it."""
    code = "import time; print(1, flush=True); time.sleep(600)"
    process = start([sys.executable, "-c", code], env=os.environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"1\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(PATIENCE_S) == -signal.SIGKILL


def test_what_it_starts_is_its_child_and_is_planted_too(tmp_path: Path) -> None:
    """Test that a service's reader ends with it and is changed as the service is."""
    planted = f"open({str(tmp_path / 'planted')!r}, 'a').write('x')"
    with a_service(tmp_path, script=planted) as service:
        worker = service.worker()
        assert service.end(signal.SIGTERM) == 0
    assert (tmp_path / "planted").read_text() == "xx"
    assert not Path(f"/proc/{worker}").exists()
