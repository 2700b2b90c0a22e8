"""Check many rows of a table in one test, as a test itself costs more than most rows."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def row(name: str) -> Iterator[None]:
    """Name the row in any failure inside."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row: {name}")
        raise
