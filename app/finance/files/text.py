"""Lines of text from a file whose encoding is known for certain, or the byte where it is not."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from app.core.errors import UsageError
from app.finance.files.tables import Refused

MAX_LINE: Final = 1024 * 1024
"""Characters of a line; a line of thousands is a file of something else."""

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; each says its encoding for certain."""

_ENCODINGS: Final = re.compile(
    r"ascii|utf-8|utf-8-sig|utf-16(-[lb]e)?|iso8859-\d+|cp\d+|mac-\w+|koi8-\w|gb\w+|big5\w*|euc_\w+"
    r"|shift_jis\w*|tis-620"
)
"""Encodings of text that programs write tables in; Python knows more that are none."""

_SEARCHED: Final = 1024 * 1024


def known_encoding(name: str) -> str:
    """Python's name of it. Raises UsageError for what is no encoding of tables."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        found = ""
    if not _ENCODINGS.fullmatch(found):
        raise UsageError(
            f"{name[:40]!r} is no encoding; say one such as utf-8, cp1252, latin-1 or utf-16"
        )
    return found


def encoding_of(path: Path, declared: str | None) -> str:
    """The declared one, else what the byte order mark says, else UTF-8."""
    if declared is not None:
        return known_encoding(declared)
    with path.open("rb") as file:
        start = file.read(4)
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines with their ends, as they are. Raises Refused for bytes that are no such text."""
    number = 0
    with path.open(encoding=encoding, newline="") as file:
        try:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE), ""), 1):
                if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                    raise Refused(number, f"the line is longer than {MAX_LINE:,} characters")
                if "\0" in line:
                    raise _no_text(path, number, _NO_TEXT)
                yield line
        except UnicodeError:
            raise _undecodable(path, encoding) from None


_NO_TEXT: Final = (
    "there is a zero byte: this is no table of text, or it is UTF-16 without its mark "
    "(say --encoding utf-16-le)"
)


_NO_WORKBOOK: Final = (
    "the workbook cannot be read, it is damaged from its first bytes on: export it again, or save "
    "it as CSV"
)


def _undecodable(path: Path, encoding: str) -> Refused:
    """Where the first bytes stand that are no text; looked for anew, for readers read ahead."""
    decoder = codecs.getincrementaldecoder(encoding)()
    before, row = 0, 1
    with path.open("rb") as file:
        while True:
            held = len(decoder.getstate()[0])
            part = file.read(_SEARCHED)
            try:
                row += decoder.decode(part, final=not part).count("\n")
            except UnicodeDecodeError as error:
                offset = before - held + error.start
                row += error.object[: error.start].count(b"\n")
                return _no_text(path, row, _sentence(offset, encoding))
            except UnicodeError:
                return _no_text(path, row, _sentence(before, encoding))
            if not part:
                return Refused(row, "the file changed while it was read; import it again")
            before += len(part)


def _no_text(path: Path, row: int, why: str) -> Refused:
    """Of a workbook by its name the encoding is no matter: what is no text is no workbook either,
    or it would have been opened as one."""
    return Refused(1, _NO_WORKBOOK) if path.suffix.lower() == ".xlsx" else Refused(row, why)


def _sentence(offset: int, encoding: str) -> str:
    return (
        f"byte {offset:,} of the file (counted from 0) is not {encoding.removesuffix('-sig')}: say "
        "--encoding NAME, such as cp1252 for files of Excel on Windows, or latin-1"
    )
