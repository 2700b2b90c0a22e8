"""Starts `tallyhook` as the process it is in production, and speaks to it over a socket."""

import fcntl
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from app.core.clock import SystemClock
from reconcile.instants import Instant
from tests.api.driving import environ, signed
from tests.database.made import put_new
from tests.forking import MORE_SPARES, Started, run, start
from tests.waiting import PATIENCE_S, until


class Process:
    """One running command. Its log is read as it is written, so that it can never block."""

    def __init__(self, words: Sequence[str], environment: dict[str, str]) -> None:
        self.log = bytearray()
        self.host, self.port = "127.0.0.1", 0
        self.folder = Path()
        self._ready = threading.Event()
        self._reads = threading.Event()
        self._reads.set()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TALLYHOOK_")}
        self.popen = start(
            words,
            env=clean | environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[int(words[n + 1]) for n, word in enumerate(words) if word == "--fd"],
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self._reads.wait()
            self.log += line
            if b'"event":"serving"' in line:
                self.port = json.loads(line)["port"]
                self._ready.set()
            elif b'"event":"working"' in line:
                self._ready.set()
        self._ready.set()

    @contextmanager
    def log_held_up(self) -> Iterator[None]:
        """Leave its log unread meanwhile, of which 4 KiB wait."""
        assert self.popen.stderr is not None
        fcntl.fcntl(self.popen.stderr, fcntl.F_SETPIPE_SZ, 4096)
        self._reads.clear()
        try:
            yield
        finally:
            self._reads.set()

    def wait_for_word(self) -> None:
        """Wait until it says that it serves, or ends."""
        assert self._ready.wait(PATIENCE_S), self.log

    def wait_until_ready(self) -> None:
        """Wait until it says that it serves. Fails with its log when it ends before."""
        self.wait_for_word()
        assert self.popen.poll() is None or self.port, self.log

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal and wait. Returns its exit code."""
        self.popen.send_signal(number)
        return self.code()

    def code(self) -> int:
        """Wait for its end, and for that of what it started. Returns its exit code."""
        code = self.popen.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), "a process that it started goes on without it"
        return code

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log; every line must be a JSON object."""
        return [json.loads(line) for line in bytes(self.log).splitlines()]

    # --- requests ---------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, headers: Any = ()
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of one answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def send(self, body: bytes | dict[str, Any], *, at: Instant) -> tuple[int, dict[str, Any]]:
        """Deliver a body, signed at an instant."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [(name.decode(), value.decode()) for name, value in signed(content, at=at)]
        status, _, answer = self.request("POST", "/webhooks/shop", content, headers)
        return status, json.loads(answer)

    def became(self, answer: dict[str, Any]) -> str:
        """Wait until an accepted delivery is read; return its verdict."""
        assert answer["verdict"] == "accepted"

        def verdicts() -> list[str]:
            with closing(sqlite3.connect(self.folder / "t.db")) as database:
                sql = "SELECT verdict FROM deliveries WHERE id = ?"
                return [row[0] for row in database.execute(sql, (answer["delivery"],))]

        until(verdicts)
        return verdicts()[0]

    def get(self, path: str, token: str = "") -> Any:
        """Get the JSON at a path."""
        headers = [("Authorization", f"Bearer {token}")] if token else []
        return json.loads(self.request("GET", path, headers=headers)[2])

    def raw(self, data: bytes, *, hang_up: bool = False) -> bytes:
        """Send any bytes; return the answer that comes before or after we hang up."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as connection:
            found = b""
            try:
                connection.sendall(data)
                if hang_up:
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65_536):
                    found += part
            except TimeoutError:
                raise
            except OSError:  # hung up on before we were done
                return found
            return found


def end(process: Started) -> None:
    """Tell it to end, and see that it does: what stays behind would disturb what comes after it."""
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def deliver(
    port: int,
    event: dict[str, Any],
    *,
    path: str = "/webhooks/shop",
    headers: Mapping[str, str] | None = None,
    **words: Any,
) -> tuple[int, bytes]:
    """One attempt at a delivery, on a connection of its own: status and body of the answer. Raises
    OSError or HTTPException where nobody answers.

    words  for `signed`: the key, the event's id
    """
    body = json.dumps(event).encode()
    made = signed(body, at=SystemClock().now(), **words)
    named = {name.decode(): value.decode() for name, value in made} | dict(headers or {})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextmanager
def running(
    folder: Path,
    *words: str,
    script: str = "",
    stays: bool = True,
    within: Sequence[str] = (),
    **more: str,
) -> Iterator[Process]:
    """Run a command, or a Python script, that surely ends with the block; by itself unless it
    stays.

    What stays begins with a database of the newest version, unless another is named.
    within: words in front of the command, which become it (`exec`).
    """
    if stays and "DATABASE_URL" not in more:
        put_new(folder / "t.db")
    code = ["-c", script] if script else ["-m", "app"]
    environment = environ(folder, **more)
    if script and "serve" in words:
        environment[MORE_SPARES] = "1"  # for what reads, which a script is not known to start
    process = Process([*within, sys.executable, *code, *words], environment)
    process.folder = folder
    try:
        if stays:
            process.wait_until_ready()
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.code()
        assert process.popen.stderr is not None
        process.popen.stderr.close()


def serving(folder: Path, *words: str, **more: Any) -> Any:
    """Run `serve` on a free port."""
    return running(folder, "serve", "--port", "0", *words, **more)


def command(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command that ends by itself."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TALLYHOOK_")}
    return run(
        [sys.executable, "-m", "app", *words],
        env=clean | environ(folder, **more),
        timeout=PATIENCE_S,
    )


def token(folder: Path, **more: str) -> str:
    """Make a token for the shop, beside whatever serves."""
    made = command(folder, "tokens", "add", "shop", "--format", "json", **more)
    return str(json.loads(made.stdout)["token"])
