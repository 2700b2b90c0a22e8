"""Open the table in a ZIP or gzip file, unpacked to a temporary file."""

import errno
import gzip
import io
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Final

from app.core.text import printable
from app.finance.files import tables

ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of a ZIP file, also of an empty one."""

GZIP: Final = b"\x1f\x8b"

MAX_UNPACKED: Final = 1024**3
"""Maximum number of bytes of the unpacked table."""

MAX_RATIO: Final = 200
"""Maximum ratio of unpacked to packed bytes."""

FREE_CONTENT: Final = 10 * 1024**2

MAX_LISTED: Final = 10

MAX_NAME: Final = 60
"""Maximum number of characters in a table's name."""

_PART: Final = 1024**2

MAX_READ: Final = 2 * 1024**2
"""Maximum bytes read at once."""

_ENCRYPTED: Final = 0x1
_TABLES: Final = frozenset((
    ".csv", ".tsv", ".txt", ".xlsx", ".xlsm", ".json", ".jsonl", ".ndjson", ".xml", ".sta", ".940",
    ".mt940", ".942", ".ofx", ".qfx", ".qbo", ".bai", ".c53", ".swi",
))  # fmt: skip

_HIDDEN: Final = re.compile(r"\.[^.]|__MACOSX")

_WORKBOOK: Final = "xl/workbook.xml"
_DOCUMENTS: Final = {
    "xl/workbook.bin": "a binary workbook (.xlsb)",
    "word/document.xml": "a text document of Word",
    "ppt/presentation.xml": "a presentation",
    "content.xml": "an OpenDocument file (.ods)",
    "index/document.iwa": "a document of Numbers",
}


DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError)
"""Errors that reading a damaged file can raise."""


class _ShortReads(io.BufferedReader):
    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(MAX_READ + 1 if size is None or size < 0 else min(size, MAX_READ + 1))
        if len(part) > MAX_READ:
            raise zipfile.BadZipFile
        return part


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with _ShortReads(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
        yield archive


def is_workbook(path: Path) -> bool:
    """Return whether a ZIP file is a workbook. Raise RefusedTable for a document of another
    program."""
    try:
        with _archive(path) as archive:
            names = {name.lower() for name in archive.namelist()}
    except DAMAGED:
        return True
    what = next((said for part, said in _DOCUMENTS.items() if part in names), None)
    if what is not None:
        raise tables.RefusedTable(1, f"this is {what}: save it as a workbook (.xlsx) or as CSV")
    return _WORKBOOK in names


@contextmanager
def unpacked(path: Path) -> Iterator[Path | None]:
    """Yield the path of the only table in a container; None without a container. Raise RefusedTable
    unless there is exactly one readable table."""
    with path.open("rb") as file:
        start = file.read(4)
    if not start.startswith((*ZIP, GZIP)) or (start.startswith(ZIP) and is_workbook(path)):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tallyhook-unpacked-") as folder:
        try:
            if start.startswith(GZIP):
                name = path.stem if path.suffix.lower() in (".gz", ".gzip") else path.name
                target = Path(folder) / name
                with gzip.open(path) as packed:
                    _copy(packed, target, size=path.stat().st_size)
            else:
                with _archive(path) as archive:
                    table = _only_table(archive)
                    name = PurePosixPath(table.filename).name[-MAX_NAME:]
                    target = Path(folder) / (name if name.strip(".") else "table")
                    with archive.open(table) as packed:
                        _copy(packed, target, size=table.compress_size)
        except DAMAGED as error:
            # Offsets in a damaged ZIP file may lie before its beginning. Any other errno is a fault
            # of the disk.
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            kind = "gzip" if start.startswith(GZIP) else "ZIP"
            raise tables.RefusedTable(
                1,
                f"the {kind} file is cut short or damaged, fetch it again ({type(error).__name__})",
            ) from None
        with target.open("rb") as file:
            start = file.read(512)
        if start[257:262] == b"ustar" or start.startswith(GZIP) or (
            start.startswith(ZIP) and not is_workbook(target)
        ):  # fmt: skip
            raise tables.RefusedTable(
                1,
                "the archive contains another archive: unpack both archives, and import the table",
            )
        yield target


def _only_table(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    files = [
        each
        for each in archive.infolist()
        if not each.is_dir() and not any(map(_HIDDEN.match, each.filename.split("/")))
    ]
    found = files
    if len(files) > 1:
        found = [each for each in files if PurePosixPath(each.filename).suffix.lower() in _TABLES]
    if len(found) == 1:
        if found[0].flag_bits & _ENCRYPTED:
            raise tables.RefusedTable(
                1, "the ZIP file has a password: unpack it, and import the table"
            )
        if found[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise tables.RefusedTable(
                1,
                "the ZIP file is packed in a way that is not supported: pack the table as plain "
                "ZIP",
            )
        return found[0]
    named = [printable(each.filename)[:60] for each in (found or files)]
    listed = ", ".join(named[:MAX_LISTED])
    more = f" and {len(named) - MAX_LISTED:,} more" if len(named) > MAX_LISTED else ""
    if found:
        sentence = f"there are several tables in the ZIP file, {listed}{more}: unpack it, and "
        raise tables.RefusedTable(1, sentence + "import them one by one")
    raise tables.RefusedTable(
        1, f"there is no table in the ZIP file, only {listed}{more}" if files else
        "the ZIP file is empty"
    )  # fmt: skip


def _copy(packed: IO[bytes] | gzip.GzipFile, target: Path, *, size: int) -> None:
    most, length = min(MAX_UNPACKED, max(FREE_CONTENT, size * MAX_RATIO)), 0
    with target.open("xb") as file:
        while part := packed.read(_PART):
            length += len(part)
            if length > most:
                raise tables.RefusedTable(
                    1,
                    f"the table unpacks to more than {most >> 20:,} MiB: unpack it yourself, and "
                    "import it in parts",
                )
            file.write(part)
