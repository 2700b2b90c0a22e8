"""Files that hold the table, or are none: read where it is clear, else refused with the cause."""

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from app.finance.files import containers
from app.finance.files.tables import RefusedTable
from tests.finance.files.reading import bank, book
from tests.finance.files.test_workbooks import ONE, workbook
from tests.rows import for_each

TABLE = b"reference,amount,currency\nA,1.00,KES\n"


def by_words(value: object) -> str:
    """Name a case without its bytes, which hold the time: each process names it alike."""
    return value if isinstance(value, str) else "file"


def zipped(**files: bytes) -> bytes:
    """Build a ZIP file; the names' double underscores are dots."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return file.getvalue()


def office(stream: str) -> bytes:
    """Build the head and the directory of an old Office file: sectors of 512 bytes."""
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(22) + (9).to_bytes(2, "little")
    header += bytes(16) + (1).to_bytes(4, "little")
    names = ["Root Entry", "\x05SummaryInformation", stream]
    entries = b"".join(name.encode("utf-16-le").ljust(128, b"\0") for name in names)
    return header.ljust(512, b"\0") + bytes(512) + entries.ljust(512, b"\0")


def content_of(content: bytes, folder: Path) -> tuple[str, bytes]:
    path = folder / "october.csv.gz"
    path.write_bytes(content)
    with containers.unpacked(path) as table:
        assert table is not None
        found = table.name, table.read_bytes()
    assert not table.exists()
    return found


@pytest.mark.parametrize(("content", "name"), ids=by_words, argvalues=[
    (gzip.compress(TABLE), "october.csv"),
    (zipped(a__csv=TABLE), "a.csv"),
    (zipped(october=TABLE), "october"),
    (zipped(a__csv=TABLE, readme__pdf=b"x", __MACOSX=b"y"), "a.csv"),
    (zipped(a__csv=TABLE, notes__html=b"x"), "a.csv"),
    (zipped(**{"../" * 9 + "a__csv": TABLE}), "a.csv"),
    (zipped(**{"x/..": TABLE}), "table"),
    (zipped(**{"y" * 300 + "__csv": TABLE}), "y" * 56 + ".csv"),
])  # fmt: skip
def test_the_only_table_in_an_archive_is_unpacked_and_deleted_afterwards(
    content: bytes, name: str, tmp_path: Path
) -> None:
    assert content_of(content, tmp_path) == (name, TABLE)


def test_a_workbook_in_an_archive_is_one_and_a_workbook_is_no_archive(tmp_path: Path) -> None:
    whole = workbook(ONE)
    assert content_of(zipped(a__xlsx=whole), tmp_path) == ("a.xlsx", whole)
    path = tmp_path / "a.xlsx"
    for plain in (whole, TABLE):
        path.write_bytes(plain)
        with containers.unpacked(path) as table:
            assert table is None


@for_each("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_ask_for_memory_are_refused(method: int, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.csv", TABLE)
    with pytest.raises(RefusedTable, match="that is not supported"), containers.unpacked(path):
        pass


def test_a_long_list_of_files_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zipped(**{f"f{n}__csv": b"" for n in range(40)}))
    monkeypatch.setattr(containers, "MAX_READ", 2_000)
    assert containers.is_workbook(path)  # as damaged; a child reads it
    monkeypatch.setattr(containers, "MAX_READ", 20_000)
    assert not containers.is_workbook(path)


@pytest.mark.parametrize(("content", "said"), ids=by_words, argvalues=[
    (zipped(a__csv=TABLE, b__csv=TABLE), "several tables in the ZIP file, a.csv, b.csv: unpack it"),
    (zipped(**{f"f{n}__csv": b"" for n in range(12)}), "f9.csv and 2 more: unpack it"),
    (zipped(a__pdf=b"x", b__pdf=b"y"), "no table in the ZIP file, only a.pdf, b.pdf"),
    (zipped(), "the ZIP file is empty"),
    (zipped(a__zip=zipped(a__csv=TABLE)), "contains another archive"),
    (gzip.compress(zipped(a__csv=TABLE)), "contains another archive"),
    (gzip.compress(bytes(257) + b"ustar" + bytes(300)), "contains another archive"),
    (gzip.compress(TABLE)[:-5], "the gzip file is cut short or damaged"),
    (zipped(a__csv=TABLE)[:40], "cut short or damaged"),
    (gzip.compress(b"a" * 12_000_000), "unpacks to more than 10 MiB"),
    (zipped(a__csv=b"a" * 12_000_000), "unpacks to more than 10 MiB"),
    (zipped(mimetype=b"x", content__xml=b"<office/>"), "an OpenDocument file (.ods): save it as"),
    (zipped(**{"xl/workbook__bin": b"x"}), "a binary workbook (.xlsb)"),
    (office("EncryptedPackage"), "a workbook with a password"),
    (office("Workbook"), "a workbook of Excel before 2007 (.xls)"),
    (office("WordDocument"), "a text document of Word"),
    (office("anything"), "a document of an old Office program"),
    (b"%PDF-1.7\n", "a PDF, which cannot be read as rows"),
    (b"\xef\xbb\xbf<html><table><tr><td>reference</td>", "a web page (HTML), although its name"),
    (b"<!-- x -->\n<TABLE border=1>", "a web page (HTML)"),
    ("<!DOCTYPE html>".encode("utf-16"), "a web page (HTML)"),
    (b'<?xml version="1.0"?>\n<?mso-application progid="Excel.Sheet"?>\n<Workbook',
     "an XML spreadsheet of Excel 2003"),
    (b"{1:F01AAAABB22A0010000000000}{2:O1031234}{4:\r\n:20:X\r\n", "an MT103, the message on one"),
    (b":20:X\r\n:23B:CRED\r\n:32A:261101EUR1,00\r\n", "an MT103, the message on one payment"),
])  # fmt: skip
def test_what_is_no_table_is_refused_with_its_cause(
    content: bytes, said: str, tmp_path: Path
) -> None:
    for read in (book, bank):
        rows, ((row, _, sentence),) = read(content, folder=tmp_path)
        assert (rows, row, said in sentence) == ([], 1, True), sentence


@for_each(("content", "what"), [
    ('<?xml version="1.0"?>\n<Document/>', "XML"), ("<Document xmlns='x'>", "XML"),
    ("OFXHEADER:100\nDATA:OFXSGML\n", "OFX"), ('<?xml version="1.0"?><?OFX a="1"?><OFX>', "OFX"),
    ("{1:F01AAAABB22A}{2:O9401234}{4:\r\n:20:X\r\n", "a SWIFT message, such as MT940"),
    (":20:X\r\n:25:1\r\n", "a SWIFT message, such as MT940"),
])  # fmt: skip
def test_a_banks_own_format_is_no_table_of_an_order_book(
    content: str, what: str, tmp_path: Path
) -> None:
    _, ((_, _, sentence),) = book(content, folder=tmp_path)
    assert sentence == f"this is {what}, which is not a table of rows and columns"


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    content = zipped(a__csv=TABLE)
    at = content.index(b"PK\x01\x02")
    path = tmp_path / "a.zip"
    path.write_bytes(content[: at + 8] + b"\x01" + content[at + 9 :])
    with pytest.raises(RefusedTable, match="has a password"), containers.unpacked(path):
        pass
