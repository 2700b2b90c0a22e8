"""Writes what a command made: whole to a file, or to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from app.core.errors import UsageError

STANDARD: Final = Path("-")

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", help="The file to write; it is replaced whole. - is standard output."
    ),
]


def check_output(path: Path | None, *, binary: bool, what: str) -> None:
    """Raises UsageError where the bytes would go to a terminal, or the folder is not there."""
    if binary and path is None:
        raise UsageError(f"{what} is not text: say -o FILE, or -o - into a pipe")
    if binary and path == STANDARD and sys.stdout.isatty():
        raise UsageError(f"{what} is not text and would garble the terminal: say -o FILE")
    if path not in (None, STANDARD) and not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: make it first, or choose another")


@contextmanager
def whole_file(path: Path | None) -> Iterator[IO[bytes]]:
    """Where to write. A file gets its name when everything is in it, and not at all otherwise. It
    is for its owner alone: orders, money and payers stand in it.

    Raises UsageError where it cannot be written.
    """
    if path is None or path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(part, flags, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
