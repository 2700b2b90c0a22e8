"""Other processes of ours: started, watched, and ended by the process id that we got."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from app.core.errors import UnreachableError, UsageError

BACKLOG = 128
"""Connections that may wait until a server of the demo has started."""

STOP_S = 15.0
"""Seconds a process has to end by itself when asked; then it is killed."""


def listener_on(wanted: int) -> socket.socket:
    """A socket that listens on the wanted port of the loopback address, or on any free one if
    somebody else does. From now on nobody else can: whoever calls waits until it is served."""
    for port in (wanted, 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            continue
        return listener
    raise UnreachableError("no port is free on the loopback address")


def address_of(listener: socket.socket) -> tuple[str, int]:
    """The host and the port on which it listens."""
    host, port = listener.getsockname()[:2]
    return host, port


def inherited(number: int) -> socket.socket:
    """The listening socket that whoever started this process handed over, by its number. Raises
    UsageError where it is none."""
    try:
        listener = socket.socket(fileno=number)
        if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            listener.setblocking(False)
            return listener
        listener.detach()  # it is not ours to close
    except OSError:
        pass
    raise UsageError(f"--fd {number} is no socket that listens")


class Child:
    """`python -m app WORDS…` with its log in a file, serving a socket that is handed over. Use as
    `async with`."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        *,
        listener: socket.socket,
        folder: Path,
        environ: Mapping[str, str],
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        # The port is for whoever looks at the list of processes.
        port = str(address_of(listener)[1])
        self._words = [*words, "--port", port, "--fd", str(listener.fileno())]
        self._listener = listener
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self.log.open("wb") as log, self._listener:  # ours: whoever calls a dead one is told
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "app", *self._words),
                stderr=log,
                stdout=log,
                env=self._clean(),
                pass_fds=(self._listener.fileno(),),
            )
        return self

    def _clean(self) -> dict[str, str]:
        """This process's environment with no setting of Tallyhook's but the given ones."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TALLYHOOK_")}
        return kept | dict(self._environ)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def check(self) -> None:
        """Raises UnreachableError, with the end of its log, when the process has ended."""
        if self._process is not None and self._process.returncode is not None:
            tail = self.log.read_text(errors="replace")[-600:].strip()
            raise UnreachableError(f"the {self.name} ended; the end of {self.log}:\n{tail}")

    async def ended(self) -> None:
        """Returns when the process has ended."""
        assert self._process is not None
        await self._process.wait()
