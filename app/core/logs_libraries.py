"""What other libraries log through the standard library, without the values they may quote."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

Write = Callable[[int, str, str, Any], None]
"""Writes one line: level, text, the library's name, and what an exception handler was given."""


class _Libraries(logging.Handler):
    """Standard-library records as lines of ours."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; a logging call of a library must not raise."""
        self._write(record.levelno, _library_text(record), record.name, record.exc_info)


def _library_text(record: logging.LogRecord) -> str:
    """A library's message, without the values that it may quote.

    uvicorn's own are addresses and numbers; of the others only the first line of the template.
    """
    template = str(record.msg)
    if record.name.startswith("uvicorn"):
        with contextlib.suppress(TypeError, ValueError):  # its values do not fit its template
            template = record.getMessage()
    elif record.name == "py.warnings":
        # "file:line: Category: message": what is said may quote a value.
        template = ": ".join(record.getMessage().split(": ")[:2])
    return template.strip().partition("\n")[0]


def route_libraries(write: Write, *, least: int) -> None:
    """All of the standard library's loggers to `write`; uvicorn's access lines to nobody.

    least  the lowest level that uvicorn itself writes
    """
    root = logging.getLogger()
    root.handlers[:] = [_Libraries(write)]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(least)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False
    access.disabled = True
