"""Keeps the truth file as new as the truth: written whole, to a temporary file, then renamed.

Changes that come while one writing is under way share the next one.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.to_thread

from app.sandbox.truth import TruthBook


class TruthFile:
    """The file at `path`; with None there is none and everything here does nothing."""

    def __init__(self, book: TruthBook, path: Path | None) -> None:
        self._book = book
        self._path = path
        self._written = -1
        self._lock = anyio.Lock()

    async def flush(self) -> None:
        """Return when the file is at least as new as the book was when called. Raises OSError."""
        async with self._lock:
            if self._path is None or self._written == self._book.changes:
                return
            changes, content = self._book.changes, self._book.to_json()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_replace, self._path, content)
            self._written = changes


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)
