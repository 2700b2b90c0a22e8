"""The console's process beside the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.docs.test_readme import environment
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

PARENT = """
import asyncio, sys
from app.child_processes import console_beside
async def main():
    async with console_beside(host="127.0.0.1", port=int(sys.argv[1])):
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
asyncio.run(main())
"""


@contextmanager
def parent(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a console beside it, until a line is written to it."""
    own = environment() | {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{folder / 't.db'}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    words = [sys.executable, "-c", PARENT, str(port)]
    with (folder / "log").open("wb") as errors:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=errors, stderr=errors, cwd=folder, env=own
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)


def answers(port: int) -> bool:
    """Whether a console is there."""
    try:
        found = httpx2.get(f"http://127.0.0.1:{port}/sign-in", trust_env=False)
    except httpx2.TransportError:
        return False
    return found.status_code == 200


def child(process: subprocess.Popen[bytes]) -> int:
    """The console's process."""
    (found,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(found)


@pytest.mark.slow
def test_a_console_comes_again_and_ends_with_its_parent(tmp_path: Path) -> None:
    """Its end ends nobody; a Ctrl-C that reaches it, too, is left to the parent."""
    port = free_port()
    with parent(tmp_path, port) as process:
        until(lambda: answers(port), otherwise=(tmp_path / "log").read_text)
        first = child(process)
        os.kill(first, signal.SIGINT)
        os.kill(first, signal.SIGTERM)
        assert answers(port)
        os.kill(first, signal.SIGKILL)
        until(lambda: not answers(port))
        until(lambda: answers(port), otherwise=(tmp_path / "log").read_text)
        assert child(process) != first
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_S) == 0
        assert not answers(port)
    assert b"the console ended, and is started again" in (tmp_path / "log").read_bytes()


@pytest.mark.slow
def test_a_console_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """Nobody is left on its port."""
    port = free_port()
    with parent(tmp_path, port) as process:
        until(lambda: answers(port), otherwise=(tmp_path / "log").read_text)
        process.kill()
        process.wait(PATIENCE_S)
        until(lambda: not answers(port))


@pytest.mark.slow
def test_beyond_this_machine_it_says_what_is_missing(tmp_path: Path) -> None:
    """A public address with TLS, and somebody who can sign in."""
    own = environment() | {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path / 't.db'}",
    }
    words = [sys.executable, "-m", "app", "console", "--host", "0.0.0.0", "--port", "0"]
    for more, said in (
        ({}, "TALLYHOOK_CONSOLE__PUBLIC_URL"),
        ({"TALLYHOOK_CONSOLE__PUBLIC_URL": "https://console.example"}, "nobody can sign in"),
    ):
        done = subprocess.run(
            words, env=own | more, cwd=Path(__file__).parents[2], capture_output=True,
            text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert (done.returncode, said in done.stderr) == (3, True), done.stderr
