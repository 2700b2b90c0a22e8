"""Open bank files in five formats. A file is refused if entries and balances disagree."""

import re
from pathlib import Path
from typing import Final

from app.finance.files import tables
from app.finance.files.banks.bai2 import FILE_HEADER, Bai2Table
from app.finance.files.banks.camt import MESSAGES, CamtTable
from app.finance.files.banks.mt940 import Mt940Table, Mt942Table
from app.finance.files.banks.ofx import OfxTable
from app.finance.files.mapping import Fields, FileMapping
from app.finance.files.opening import Check, as_mapped, no_table, open_table, start_of


def open_bank_table(
    path: Path, mapping: FileMapping, fields: Fields, *, check: Check | None = None
) -> tables.SourceTable:
    """Open a bank file in its format, or as a table."""
    form = bank_format(path)
    table: tables.SourceTable
    if form == "OFX":
        table = OfxTable(path, encoding=mapping.encoding)
    elif form is not None and form.startswith("CAMT"):
        table = CamtTable(path)
    elif form == "BAI2":
        table = Bai2Table(path, encoding=mapping.encoding)
    elif form == "MT940":
        table = Mt940Table(path, encoding=mapping.encoding)
    elif form == "MT942":
        table = Mt942Table(path, encoding=mapping.encoding)
    else:
        return open_table(path, mapping, fields, check=check)
    return as_mapped(table, mapping, fields, check=check)


def bank_format(path: Path) -> str | None:
    """Return the bank format that a file's first bytes show, or None. XML counts as CAMT."""
    start = start_of(path)
    if no_table(start) is not None:
        return None
    text = start.decode("latin-1").lstrip("\xef\xbb\xbf\xff\xfe \t\r\n")
    plain = text.replace("\0", "")  # of UTF-16
    if plain.startswith("OFXHEADER") or "<OFX>" in plain or "<?OFX" in plain:
        return "OFX"
    if plain.startswith("<"):
        message = _MESSAGE.search(plain)
        return MESSAGES["BkToCstmrStmt" if message is None else message[0]][0]
    if FILE_HEADER.match(text):
        return "BAI2"
    if _SWIFT.match(text) is None:
        return None
    first = _OF_ONE.search(text)
    return "MT942" if first is not None and first[0] == ":34F:" else "MT940"


_SWIFT: Final = re.compile(r"\{1:|:20:|(?:[^\r\n]{0,80}\r?\n){0,3}:20:")

_MESSAGE: Final = re.compile("|".join(MESSAGES))

_OF_ONE: Final = re.compile(r":34F:|:60[FM]:")
