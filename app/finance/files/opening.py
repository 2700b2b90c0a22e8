"""Opens a file as a table, by what its content is; its name does not matter."""

from __future__ import annotations

import hashlib
import re
from codecs import BOM_UTF8
from pathlib import Path
from typing import Final

from app.core.errors import NotFoundError, UsageError
from app.finance.files.csv_table import CsvTable
from app.finance.files.json_lines import JsonLines
from app.finance.files.mapping import Fields, FileMapping
from app.finance.files.tables import MAX_FILE_BYTES, Refused, Table, known_in

_ZIP: Final = b"PK\x03\x04"
_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ARRAY: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*[{\]]")
"""How a JSON array of objects begins, and no heading of a table does."""


def open_table(path: Path, mapping: FileMapping, fields: Fields) -> Table:
    """The table in a file. Raises Refused, NotFoundError or UsageError where there is none, and
    OSError where it cannot be read."""
    start = _start(path)
    if start.startswith(_OLD_OFFICE):
        raise Refused(1, "this is an encrypted workbook, or one of Excel before 2007: save it anew "
                         "as .xlsx without a password, or as CSV")  # fmt: skip
    if start.startswith(_ZIP):
        from app.finance.files.xlsx_table import XlsxTable

        return XlsxTable(path, sheet=mapping.sheet)
    if _ARRAY.match(start):
        raise Refused(1, "this is one JSON array: write each of its objects on a line of its own, "
                         "without the brackets around them and the commas between")  # fmt: skip
    if _begins_an_object(start):
        names = [mapping.columns.get(name, name) for name in fields.names]
        return JsonLines(path, encoding=mapping.encoding, names=[name for name in names if name])
    return CsvTable(
        path,
        encoding=mapping.encoding,
        delimiter=mapping.delimiter,
        recognize=lambda heading: known_in(heading, fields=fields.names, named=mapping.columns),
    )


def _begins_an_object(start: bytes) -> bool:
    return start.removeprefix(BOM_UTF8).lstrip().startswith(b"{")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hex. Raises as `open_table` does."""
    _start(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _start(path: Path) -> bytes:
    """The first bytes."""
    if not path.exists():
        raise NotFoundError(f"there is no file {path.name}")
    if not path.is_file():
        raise UsageError(f"{path.name} is no file that can be read twice: name a file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise Refused(1, f"the file is larger than {MAX_FILE_BYTES >> 30} GiB: cut it in parts")
    with path.open("rb") as file:
        return file.read(512)
