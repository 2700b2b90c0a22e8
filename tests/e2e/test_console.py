"""The console's process beside the one that started it."""

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from app.access.operators import register_operator
from app.config.load import load_settings
from app.wiring.opening import open_context
from tests.api.driving import environ
from tests.console.conftest import session_for
from tests.docs.test_readme import environment
from tests.forking import MORE_SPARES, Started, is_spare, run, start
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

PARENT = """
import asyncio, os, sys
from app.config.load import load_settings
from app.core.child_processes import console_beside
async def main():
    settings = load_settings()
    async with console_beside(host="127.0.0.1", port=int(sys.argv[1]), settings=settings):
        await asyncio.get_running_loop().run_in_executor(None, os.read, int(sys.argv[2]), 1)
asyncio.run(main())
"""


@contextmanager
def parent(
    folder: Path, port: int, **settings: str
) -> Iterator[tuple[Started, Callable[[], None]]]:
    """Start a process with a console beside it; yield it with the function that tells it to end."""
    own = environment() | {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{folder / 't.db'}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        MORE_SPARES: "2",
        **settings,
    }
    theirs, ours = os.pipe()
    words = [sys.executable, "-c", PARENT, str(port), str(theirs)]
    with (folder / "log").open("wb") as errors:
        process = start(words, stdout=errors, stderr=errors, env=own, pass_fds=[theirs])
    os.close(theirs)

    def tell() -> None:
        os.write(ours, b"x")

    try:
        yield process, tell
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)


def answers(port: int) -> bool:
    """Return whether a console is there."""
    try:
        found = httpx2.get(f"http://127.0.0.1:{port}/sign-in", trust_env=False)
    except httpx2.TransportError:
        return False
    return found.status_code == 200


def child(process: Started) -> int:
    """Return the pid of the console."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (found,) = (pid for pid in map(int, children) if not is_spare(pid))
    return found


@pytest.mark.slow
def test_a_console_comes_again_and_ends_with_its_parent(tmp_path: Path) -> None:
    """Its end ends nobody; a Ctrl-C that reaches it, too, is left to the parent."""
    port = free_port()
    with parent(tmp_path, port) as (process, tell):
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
        tell()
        assert process.wait(PATIENCE_S) == 0
        assert not answers(port)
    assert b"a child process has ended" in (tmp_path / "log").read_bytes()


@pytest.mark.slow
def test_its_connections_are_held_to_the_limits(tmp_path: Path) -> None:
    """A head without an end, a request that could be taken for two, and one connection too many
    are refused as the receiver refuses them, and people go on."""
    port = free_port()
    with parent(tmp_path, port, TALLYHOOK_MAX_CONNECTIONS_PER_ADDRESS="4"):
        until(lambda: answers(port), otherwise=(tmp_path / "log").read_text)
        address = ("127.0.0.1", port)
        head = b"GET /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        for sent, status in (
            (head + b"a: " + b"x" * 200_000, b"431"),
            (head + b"host: other\r\n\r\n", b"400"),
        ):
            with socket.create_connection(address, timeout=PATIENCE_S) as connection:
                connection.sendall(sent)
                assert connection.recv(100).split(b" ")[1] == status
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
            one_more = stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
            assert b"too_many_connections" in one_more.recv(1_000)
        until(lambda: answers(port))


@pytest.mark.slow
def test_a_console_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """Nobody is left on its port."""
    port = free_port()
    with parent(tmp_path, port) as (process, _):
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
        ({}, b"TALLYHOOK_CONSOLE__PUBLIC_URL"),
        ({"TALLYHOOK_CONSOLE__PUBLIC_URL": "https://console.example"}, b"nobody can sign in"),
    ):
        done = run(words, env=own | more, timeout=PATIENCE_S)
        assert (done.returncode, said in done.stderr) == (3, True), done.stderr


async def signed_in(folder: Path) -> str:
    """Return the cookie of somebody who may look."""
    async with open_context(load_settings(environ(folder)), purpose="writing") as context:
        await register_operator(context, name="Ann", role="admin", by=None)
        return await session_for(context, "Ann")


@pytest.mark.slow
def test_a_console_that_is_told_to_end_ends_its_streams(tmp_path: Path) -> None:
    """Each open page holds one: it has an end, and is not cut off when the time for what is under
    way is over."""
    port, cookie = free_port(), asyncio.run(signed_in(tmp_path))
    words = [sys.executable, "-m", "app", "console", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = start(words, env=environment() | environ(tmp_path), stdout=log, stderr=log)
    try:
        until(lambda: answers(port), otherwise=(tmp_path / "log").read_text)
        cookies = {f"tallyhook-{port}": cookie}
        with (
            httpx2.Client(cookies=cookies, trust_env=False, timeout=PATIENCE_S) as client,
            client.stream("GET", f"http://127.0.0.1:{port}/live") as stream,
        ):
            lines = stream.iter_lines()
            assert next(lines).startswith("retry:")
            process.terminate()
            assert [line for line in lines if line and not line.startswith((":", "data:"))] == []
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)


@pytest.mark.slow
def test_a_console_whose_database_was_replaced_ends(tmp_path: Path) -> None:
    """As by a restore beside it: else people were shown what is no longer so."""
    port = free_port()
    asyncio.run(signed_in(tmp_path))
    words = [sys.executable, "-m", "app", "console", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = start(words, env=environment() | environ(tmp_path), stdout=log, stderr=log)
    try:
        until(lambda: answers(port), otherwise=(tmp_path / "log").read_text)
        shutil.copy(tmp_path / "t.db", tmp_path / "other.db")
        (tmp_path / "other.db").replace(tmp_path / "t.db")
        assert process.wait(PATIENCE_S) == 4
        assert "was replaced while the service was running" in (tmp_path / "log").read_text()
        assert "after a restore, start the service again" in (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait(PATIENCE_S)
