"""Opens a file as a table, by what its content is; its name does not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.errors import NotFoundError, UsageError
from app.files.columns import Recognize
from app.files.csv_table import CsvTable
from app.files.mapping import FileMapping
from app.files.problems import Refused
from app.files.tables import MAX_FILE_BYTES, Table

_ZIP: Final = b"PK\x03\x04"
_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def open_table(path: Path, mapping: FileMapping, *, recognize: Recognize) -> Table:
    """The table in a file. Raises Refused, and NotFoundError or UsageError where there is none."""
    start = _start(path)
    if start.startswith(_OLD_OFFICE):
        raise Refused(1, "this is an encrypted workbook, or one of Excel before 2007: save it anew "
                         "as .xlsx without a password, or as CSV")  # fmt: skip
    return CsvTable(
        path, encoding=mapping.encoding, delimiter=mapping.delimiter, recognize=recognize
    )


def _start(path: Path) -> bytes:
    """The first bytes."""
    try:
        if not path.is_file():
            if path.exists():
                raise UsageError(f"{path.name} is no file that can be read twice: name a file")
            raise NotFoundError(f"there is no file {path.name}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise Refused(
                1, f"the file is larger than {MAX_FILE_BYTES >> 30} GiB: import it in parts"
            )
        with path.open("rb") as file:
            return file.read(512)
    except OSError as error:
        raise UsageError(f"{path.name} cannot be read: {error.strerror}") from None
