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

from app.errors import UnreachableError

STOP_S = 15.0
"""Seconds a process has to end by itself when asked; then it is killed."""


def free_port(wanted: int) -> int:
    """The wanted port of the loopback address if nobody listens there, else any free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise UnreachableError("no port is free on the loopback address")


class Child:
    """`python -m app WORDS…` with its log in a file. Use as `async with`."""

    def __init__(
        self, name: str, words: Sequence[str], folder: Path, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._words = words
        self._environ = environ
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "app", *self._words, stderr=log, stdout=log, env=self._clean()
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
