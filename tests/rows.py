"""Many rows of a table in one test: what a test costs by itself is more than most rows take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def row(name: str) -> Iterator[None]:
    """Whatever fails inside says of which row it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row: {name}")
        raise
