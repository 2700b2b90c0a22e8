"""Open a file as a table in the recognized format."""

import hashlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from app.core.errors import NotFoundError, UsageError
from app.finance.files import containers, shaping, tables
from app.finance.files.mapping import Fields, FileMapping
from app.finance.files.workbooks import XlsxTable

# --- tables of JSON Lines -------------------------------------------------------------------------


MAX_DIGITS: Final = 100
"""Maximum number of characters in one JSON number."""

MAX_BROKEN: Final = 100
"""Maximum number of broken lines at a file's start."""

_BrokenLine = tuple[str, str]


class JsonLines:
    """JSON Lines file as a table."""

    heading_row = 1
    of_ours = False
    notes: Sequence[str] = ()
    head: Sequence[str] = ()
    periods: Sequence[tables.StatedPeriod] = ()

    def __init__(self, path: Path, *, encoding: str | None, names: Sequence[str]) -> None:
        """Set the path, the encoding, and the columns to read. Raise RefusedTable without any of
        the columns."""
        self._path, self._encoding = path, tables.encoding_of(path, encoding)
        wanted = {tables.plain_name(name) for name in names}
        first = list(islice(self._objects(), tables.BATCH))
        broken = [(number, row[0]) for number, row in first if isinstance(row, tuple)]
        if broken and len(broken) >= min(len(first), max(MAX_BROKEN, len(first) // 2) + 1):
            number, sentence = broken[0]
            others = "; other lines have the same problem: write one object on each line"
            raise tables.RefusedTable(number, sentence + (others if len(broken) > 1 else ""))
        found: dict[str, str] = {}
        for _, row in first:
            for name in () if isinstance(row, tuple) else row:
                if tables.plain_name(name) in wanted:
                    found.setdefault(tables.plain_name(name), name)
        if not found:
            by_plain_name = {tables.plain_name(name): name for name in names}
            raise tables.RefusedTable(
                1, f"the file has none of the columns {', '.join(by_plain_name.values())}"
            )
        self.heading: Sequence[str] = list(found.values())

    def batches(self) -> Iterator[tables.Batch]:
        places = {tables.plain_name(name): place for place, name in enumerate(self.heading)}
        objects, read = self._objects(), 0
        while part := list(islice(objects, tables.BATCH)):
            read += len(part)
            if read > tables.MAX_ROWS:
                raise tables.RefusedTable(
                    part[0][0],
                    f"there are more than {tables.MAX_ROWS:,} rows: split the file, and "
                    "import each part",
                )
            rows: list[Sequence[str]] = []
            broken: dict[int, tables.Problem] = {}
            for number, row in part:
                if isinstance(row, tuple):
                    sentence, text = row
                    # An apostrophe may come before it among the rejects: leave room for it.
                    rows.append([text.strip()[: tables.MAX_CELL - 1], *[""] * (len(places) - 1)])
                    broken[number] = tables.Problem(row=number, column=None, sentence=sentence)
                else:
                    rows.append(_object_cells(row, places, number, broken))
            yield tables.Batch(rows, [number for number, _ in part], broken)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | _BrokenLine]]:
        for number, line in enumerate(tables.lines(self._path, self._encoding), 1):
            if not line.strip():
                continue
            try:
                found = _DECODER.decode(line)
            except json.JSONDecodeError as error:
                reason = f"the error is at character {error.pos + 1}"
            except _UnfitJson as error:
                reason = str(error)
            except (ValueError, RecursionError):
                reason = "it is nested too deeply"
            else:
                if isinstance(found, dict) and len(found) <= tables.MAX_COLUMNS:
                    yield number, found
                else:
                    most = tables.MAX_COLUMNS
                    yield number, (f"the line is not a JSON object of at most {most} names", line)
                continue
            yield number, (f"the line is not a JSON object: {reason}", line)


def _object_cells(
    row: dict[str, Any], places: dict[str, int], number: int, broken: dict[int, tables.Problem]
) -> list[str]:
    cells = [""] * len(places)
    for name, value in row.items():
        place = places.get(tables.plain_name(name))
        if place is None or value is None:
            continue
        if not isinstance(value, str):
            sentence = "is neither a text nor a number"
            cells[place] = tables.NO_VALUE
        elif len(value) > tables.MAX_CELL:
            sentence = f"has more than {tables.MAX_CELL:,} characters"
        elif cells[place]:
            sentence = "appears twice"
        else:
            cells[place] = value
            continue
        broken.setdefault(number, tables.Problem(row=number, column=name[:80], sentence=sentence))
    return cells


class _UnfitJson(ValueError):
    """Error for a JSON value that no table can hold."""


def _number(text: str) -> tables.Number:
    if len(text) > MAX_DIGITS:
        raise _UnfitJson(f"it has a number of more than {MAX_DIGITS} characters")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _UnfitJson("it has a number with an exponent that is too large") from None
    if value and abs(value.adjusted()) > MAX_DIGITS:
        raise _UnfitJson("it has a number that is too large or too small")
    return tables.Number(format(value, "f"))


def _constant(_name: str) -> NoReturn:
    raise _UnfitJson("it has NaN or Infinity")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _UnfitJson("it has a name twice")
    return result


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)


# --- opens a file as a table, by its content ------------------------------------------------------


_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_DIRECTORY: Final = 16 * 1024

_IN_OLD_OFFICE: Final = (
    ("EncryptedPackage", "a workbook with a password: save it without one in its own program"),
    ("Workbook", "a workbook of Excel before 2007 (.xls): save it as .xlsx, or as CSV"),
    ("Book", "a workbook of Excel before 2007 (.xls): save it as .xlsx, or as CSV"),
    ("WordDocument", "a text document of Word: export its table as CSV"),
    ("__substg1.0_", "an e-mail of Outlook: save the file that is attached, and import that"),
)
"""Streams of old Office files and their meaning ([MS-OFFCRYPTO] 2.3.4.4, [MS-XLS] 2.1.2, [MS-DOC]
2.1.1, [MS-OXMSG] 2.1)."""

_ARRAY: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*[{\]]")

Check = Callable[[tables.SourceTable], None]
"""Function that raises RefusedTable for an unexpected export."""


def open_table(
    path: Path,
    mapping: FileMapping,
    fields: Fields,
    *,
    check: Check | None = None,
) -> tables.SourceTable:
    """Open the table in a file. Raise RefusedTable, NotFoundError or UsageError for a file without
    a table."""
    form, names = format_of(path), mapping.looked_for(fields)
    wanted = {tables.plain_name(name) for name in names}

    def recognize(heading: Sequence[str]) -> int:
        return len(wanted & {tables.plain_name(name) for name in heading})

    heading_row = mapping.shape.heading_row
    table: tables.SourceTable
    if form == "workbook":
        table = XlsxTable(
            path, sheet=mapping.sheet, recognize=recognize, heading_row=heading_row, names=names
        )
    elif form == "json_lines":
        table = JsonLines(path, encoding=mapping.encoding, names=names)
    else:
        table = tables.CsvTable(
            path,
            encoding=mapping.encoding,
            delimiter=mapping.delimiter,
            recognize=recognize,
            heading_row=heading_row,
        )
    return as_mapped(table, mapping, fields, check=check)


def as_mapped(
    table: tables.SourceTable, mapping: FileMapping, fields: Fields, *, check: Check | None
) -> tables.SourceTable:
    """Apply the mapping's row rules to an open table."""
    if check is not None:
        check(table)
    if mapping.shape.changes_rows or mapping.rows is not None:
        return shaping.Shaped(table, mapping, fields)
    return table


_NO_ROWS: Final = (
    "{}, which cannot be read as rows: ask the file's author to export it as CSV or as a workbook "
    "(.xlsx)"
)
_NAMED_XLS: Final = (
    "{}, although its name says otherwise: open it in a spreadsheet program, and save it as .xlsx"
)

_NO_TABLES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), sentence)
    for pattern, sentence in (
        (rb"%PDF-", _NO_ROWS.format("a PDF")),
        (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8", _NO_ROWS.format("a picture")),
        (
            rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)?"
            rb"<(?:!doctype html|html|head|body|table|meta|style)",
            _NAMED_XLS.format("a web page (HTML)"),
        ),
        (
            rb"\s*<.*(?:progid=\"Excel\.Sheet\"|urn:schemas-microsoft-com:office:spreadsheet)",
            _NAMED_XLS.format("an XML spreadsheet of Excel 2003"),
        ),
        (
            rb"(?:\{1:.*\{2:[IO]103|:20:.*:23B:)",
            "an MT103, the message on one payment: import the account's statement (MT940 or "
            "CAMT.053)",
        ),
    )
)  # fmt: skip

_MARK: Final = re.compile(rb"\A(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)")
_OTHER_FORMS: Final = (
    (re.compile(rb"\s*(?:OFXHEADER|(?:<\?[^>]*>\s*)*<OFX)"), "OFX"),
    (re.compile(rb"\s*(?:\{1:[A-Z]|:20:)"), "a SWIFT message, such as MT940"),
    (re.compile(rb"\s*<(?:\?xml|[A-Za-z][\w:.-]*[\s>])", re.ASCII), "XML"),
)


def no_table(start: bytes) -> str | None:
    """Return why the first bytes belong to no table, or None."""
    text = _MARK.sub(b"", start).replace(b"\0", b"")  # of UTF-16
    found = (sentence for pattern, sentence in _NO_TABLES if pattern.match(text))
    return next(found, None)


def _old_office(path: Path) -> str:
    with path.open("rb") as file:
        header = file.read(512)
        sector = 1 << min(int.from_bytes(header[30:32], "little"), 12)
        file.seek(min(int.from_bytes(header[48:52], "little") + 1, 1 << 21) * sector)
        directory = file.read(_DIRECTORY)
    known = (said for name, said in _IN_OLD_OFFICE if name.encode("utf-16-le") in directory)
    return next(known, "a document of an old Office program: save it as .xlsx, or as CSV")


def format_of(path: Path) -> Literal["workbook", "json_lines", "text"]:
    """Return the format that a file's first bytes show."""
    start = start_of(path)
    what = _old_office(path) if start.startswith(_OLD_OFFICE) else no_table(start)
    if what is not None:
        raise tables.RefusedTable(1, f"this is {what}")
    if start.startswith(containers.ZIP) and containers.is_workbook(path):
        return "workbook"
    if start.startswith((*containers.ZIP, containers.GZIP)):
        with containers.unpacked(path):  # this raises the reason
            raise tables.RefusedTable(1, "this is an archive: unpack it, and import what is in it")
    if _ARRAY.match(start):
        raise tables.RefusedTable(
            1,
            "this is one JSON array: write each object on a line of its own, without the brackets "
            "and commas of the array",
        )
    text = _MARK.sub(b"", start).replace(b"\0", b"")  # of UTF-16
    for pattern, what in _OTHER_FORMS:
        if pattern.match(text):
            raise tables.RefusedTable(
                1, f"this is {what}, which is not a table of rows and columns"
            )
    begins_an_object = start.removeprefix(BOM_UTF8).lstrip().startswith(b"{")
    return "json_lines" if begins_an_object else "text"


def file_digest(path: Path) -> str:
    start_of(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def start_of(path: Path) -> bytes:
    """Return the first 512 bytes of a file. Raise NotFoundError or UsageError without a file, and
    RefusedTable for a large file."""
    if not path.exists():
        raise NotFoundError(f"there is no file {path.name}")
    if not path.is_file():
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name a file in it")
        raise UsageError(f"{path.name} cannot be read twice: save it as a file, and name that file")
    if path.stat().st_size > tables.MAX_FILE_BYTES:
        raise tables.RefusedTable(
            1,
            f"the file is larger than {tables.MAX_FILE_BYTES >> 30} GiB: split the file, and "
            "import each part",
        )
    with path.open("rb") as file:
        return file.read(512)
