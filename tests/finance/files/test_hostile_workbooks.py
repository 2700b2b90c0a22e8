"""Workbooks that would take all memory or time: a child of small limits reads them."""

import io
import os
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.finance.files import workbooks
from app.finance.files.tables import RefusedTable
from tests.finance.files.test_workbooks import SHEET, adding, changed, workbook
from tests.searching import every

PLAIN = workbook(["A", 1, "KES", "2026-11-01", ""])
LIMIT, DAMAGED = "far outside the table", "damaged"


def with_texts(name: str) -> bytes:
    file = io.BytesIO(PLAIN)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("xl/sharedStrings.xml", f"<{name}='3000000000'><si><t>a</t></si></sst>")
    return file.getvalue()


def lying() -> bytes:
    """Build a bomb that declares little."""
    bomb = changed(PLAIN, adding(b" " * 50_000_000))
    at = bomb.index(b"PK\x01\x02", bomb.index(b"PK\x01\x02"))
    while bomb[at + 46 : at + 46 + len(SHEET)] != SHEET.encode():
        at = bomb.index(b"PK\x01\x02", at + 4)
    return bomb[: at + 24] + struct.pack("<I", 5_000) + bomb[at + 28 :]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>', LIMIT),
        (b"<row r=\"99\"><c r = 'ZZZZ99'><v>1</v></c></row>", LIMIT),
        (b"<row r='9'><c x=\"y r='A9'\" r='XFD1048576'><v>1</v></c></row>", LIMIT),
        (b'<row r="9"><c r="A9" r="B9" r="XFD1048576"/></row>', DAMAGED),
        (b"<" + b"x" * 4_000_000 + b">", DAMAGED),
        (b"<x:c a=''" * 12_000, "cannot be read"),
        (with_texts("sst uniqueCount"), LIMIT),
        (lying, "cannot be read"),
    ][:: every(2)],
    ids=range(8)[:: every(2)],
)
def test_it_is_refused_with_a_sentence_and_nothing_is_left(
    cells: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    path = tmp_path / "book.ods"
    cells = lying() if cells is lying else cells
    path.write_bytes(cells if cells.startswith(b"PK") else changed(PLAIN, adding(cells)))
    small = replace(workbooks.OF_ONE_SHEET, memory_mib=512, processor_s=10)
    monkeypatch.setattr(workbooks, "OF_ONE_SHEET", small)
    with pytest.raises(RefusedTable, match=said):
        workbooks.XlsxTable(path, sheet=None, recognize=len)
    assert not os.listdir(temporary)


@pytest.mark.parametrize("written", [
    b"", b"[1]\n", b"{}\n", b"nonsense", b"{\n", b"[" * 99_999 + b"\n",
    b'{"name": 1, "others": [], "hidden": [], "left": 1e9, "width": 1, "doubts": {}}\n',
    b'{"name": 1,"others":[],"hidden":[],"left": 0, "width": 1, "doubts": {"1": {"999999": ""}}}\n',
    b'{"name": 1, "others": [], "hidden": [], "left": 0, "width": 1, "doubts": {}}\n{"a": 1}\n',
])  # fmt: skip
def test_a_child_that_a_workbook_has_taken_over_is_not_trusted(
    written: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbooks, "write_from_child", lambda *_, to, limits: to.write(written))
    path = tmp_path / "book.xlsx"
    path.write_bytes(PLAIN)
    with pytest.raises(RefusedTable, match="damaged"):
        list(workbooks.XlsxTable(path, sheet=None, recognize=len).batches())
