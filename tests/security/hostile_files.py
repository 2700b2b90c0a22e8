"""Files that a stranger sends to end a process or to fill a machine, made by a seed.

The first of each kind are made by hand; the others are changed at random.
"""

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import openpyxl

KINDS: Final = ("pdf", "png", "jpeg", "xlsx", "xml", "zip", "gzip", "csv", "json", "eml")

MANY: Final = 2_000_000
"""Bytes of the smaller bombs: 20 kB packed are beyond each ratio that is taken."""


def hostile_file(kind: str, number: int) -> bytes:
    """Return file `number` of a kind; the same in each process."""
    random, made = Random(f"{kind} {number}"), _MADE[kind]
    content = made[number % len(made)]()
    return content if number < len(made) else _changed(content, random)


def _changed(content: bytes, random: Random) -> bytes:
    """Cut, flip, repeat or join what is there."""
    for _ in range(random.randint(1, 3)):
        at, to = sorted(random.randrange(len(content) + 1) for _ in range(2))
        to = min(to, at + 50_000)
        content = random.choice((
            content[:at],
            content[:at] + content[to:],
            content[:to] + content[at:to] * 3 + content[to:],
            content[:at] + random.randbytes(random.randint(1, 40)) + content[at:],
            content[:at] + bytes(each ^ random.choice((0, 0, 0, 128)) for each in content[at:to])
            + content[to:],
        ))  # fmt: skip
        content = content or b"\0"
    return content


# --- documents and pictures -----------------------------------------------------------------------


def _pdf(page: bytes = b"", stream: bytes = b"", *, filter_: bytes = b"") -> bytes:
    """Build a PDF of one page. page: more members of the page."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R %s >>" % page,
        b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(stream), filter_, stream),
    ]
    content, places = b"%PDF-1.7\n", list[int]()
    for number, each in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 5\n0000000000 65535 f \n%strailer << /Root 1 0 R /Size 5 >>\n" % rows
    return content + head + b"startxref\n%d\n%%%%EOF\n" % len(content)


def _png(width: int = 1, height: int = 1, data: bytes = b"\0" * 4, more: bytes = b"") -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + checksum

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", size) + more + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def _jpeg(width: int = 1, height: int = 1, more: bytes = b"") -> bytes:
    frame = struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\1\x11\0\2\x11\0\3\x11\0"
    return b"\xff\xd8\xff\xe0\0\4JF" + more + b"\xff\xc0" + frame + b"\xff\xda\0\2\0\xff\xd9"


_NESTED_PDF: Final = _pdf(b"/A " + b"[" * 30_000 + b"]" * 30_000)
_BOMB: Final = zlib.compress(b"\0" * MANY)

# --- tables ---------------------------------------------------------------------------------------

_TENFOLD: Final = "".join(f'<!ENTITY {chr(n)} "{f"&{chr(n - 1)};" * 10}">' for n in range(98, 107))
_ENTITIES: Final = f'<!DOCTYPE d [<!ENTITY a "ha">{_TENFOLD}]>'
_ROW: Final = b"reference,amount,currency\nA,1.00,KES\n"
_CAMT: Final = (
    '<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"><BkToCstmrStmt>%s'
    "</BkToCstmrStmt></Document>"
)


def _workbook(sheet: str = "", *, name: str = "xl/worksheets/sheet1.xml", more: str = "") -> bytes:
    """Build a workbook. sheet: rows to be added; more: a part in the place of `name`."""
    plain, file = io.BytesIO(), io.BytesIO()
    made = openpyxl.Workbook()
    made.active.append(["reference", "amount", "currency"])
    made.active.append(["A", 1, "KES"])
    made.save(plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for each in {*old.namelist(), name}:
            part = old.read(each) if each in old.namelist() else b""
            if each == "xl/worksheets/sheet1.xml":
                part = part.replace(b"</sheetData>", sheet.encode() + b"</sheetData>")
            new.writestr(each, more if each == name and more else part)
    return file.getvalue()


def _zip(*files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return file.getvalue()


def _gzips(times: int) -> bytes:
    content = _ROW
    for _ in range(times):
        content = gzip.compress(content)
    return content


# --- mail -----------------------------------------------------------------------------------------

_HEAD: Final = b"From: a@b.example\r\nMIME-Version: 1.0\r\nSubject: %s\r\n%s\r\n\r\n"


_TEXT: Final = b"Content-Type: text/plain"


def _mail(subject: bytes = b"x", kind: bytes = _TEXT, body: bytes = b"") -> bytes:
    return _HEAD % (subject, kind) + body


def _multiparts(depth: int) -> bytes:
    body, kind = b"x", _TEXT
    for number in range(depth):
        mark = b"m%d" % number
        body = b"--%s\r\n%s\r\n\r\n%s\r\n--%s--" % (mark, kind, body, mark)
        kind = b"Content-Type: multipart/mixed; boundary=%s" % mark
    return _mail(kind=kind, body=body)


_MADE: Final[dict[str, Sequence[Callable[[], bytes]]]] = {
    "pdf": (
        lambda: _NESTED_PDF,
        lambda: _pdf(stream=_BOMB, filter_=b"/Filter /FlateDecode"),
        lambda: _pdf(b"/Parent 3 0 R"),
        lambda: _pdf().replace(b"[3 0 R] /Count 1", b"[2 0 R 2 0 R] /Count 99999999"),
        lambda: _pdf().replace(b"[0 0 9 9]", b"[0 0 1e38 -1e38]"),
        lambda: _pdf().replace(b"startxref\n", b"startxref\n999999999999"),
        lambda: _pdf(stream=b"q " * 50_000),
        lambda: b"%PDF-1.7\n" + _png() + b"\nstartxref 0 %%EOF",
    ),
    "png": (
        lambda: _png(100_000, 100_000),
        lambda: _png(2**32 - 1, 1),
        lambda: _png(7_000, 7_000, b"\0" * 21_001),
        lambda: _png(1, 1, b"\0" * MANY),
        lambda: _png(0, 0),
        lambda: _png(more=struct.pack(">I", 2**31) + b"zTXta\0\0" + _BOMB),
        lambda: _png()[:-16],
        lambda: _png().replace(b"IDAT", b"IDAx"),
    ),
    "jpeg": (
        lambda: _jpeg(65_535, 65_535),
        lambda: _jpeg(0, 0),
        lambda: _jpeg(7_000, 7_000),
        lambda: _jpeg(more=b"\xff\xe1\xff\xff" + b"Exif\0\0" * 9_000),
        lambda: _jpeg(more=b"\xff\xc4\0\2" * 9_000),
        lambda: _jpeg()[:-2],
        lambda: _jpeg().replace(b"\xff\xc0", b"\xff\xc2"),
        lambda: b"\xff\xd8\xff" + b"\xff" * 50_000 + b"\xff\xd9",
    ),
    "xlsx": (
        lambda: _workbook('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'),
        lambda: _workbook('<row r="9"><c r="A9" r="XFD1048576"><v>1</v></c></row>'),
        lambda: _workbook(name="xl/sharedStrings.xml", more="<sst uniqueCount='4000000000'/>"),
        lambda: _workbook(name="xl/workbook.xml", more=f"{_ENTITIES}<workbook>&j;</workbook>"),
        lambda: _workbook("<row>" * 20_000),
        lambda: _workbook(" " * 15_000_000),
        lambda: _workbook(name="content.xml", more="<office:document-content/>"),
        lambda: _workbook()[:-300],
    ),
    "xml": (
        lambda: (_ENTITIES + _CAMT % "<Stmt><Id>&j;</Id></Stmt>").encode(),
        lambda: (_CAMT % ("<Stmt>" * 50_000)).encode(),
        lambda: (_CAMT % ("<a " + "b" * MANY)).encode(),
        lambda: (_CAMT % f"<Stmt><Id>{'x' * MANY}</Id></Stmt>").encode(),
        lambda: _CAMT.encode("utf-16")[:-3],
        lambda: b'<?xml version="1.0" encoding="utf-7"?><Document/>',
        lambda: b"OFXHEADER:100\n\n<OFX>" + b"<STMTTRN>" * 50_000,
        lambda: b"<OFX><!--" + b"<![CDATA[" * 50_000,
    ),
    "zip": (
        lambda: _zip(("a.csv", b"a" * 15_000_000)),
        lambda: _zip(("a.csv", _zip(("b.csv", _ROW)))),
        lambda: _zip(*((f"f{n}.csv", b"") for n in range(3_000))),
        lambda: _zip(("../../../../tmp/a.csv", _ROW)),
        lambda: _zip(("a.csv", _ROW), method=zipfile.ZIP_LZMA),
        lambda: _zip(("a.csv", _ROW)).replace(b"\x14\0\0\0\x08\0", b"\x14\0\1\0\x08\0"),
        lambda: _zip(("xl/workbook.xml", b"<"), ("a.csv", _ROW)),
        lambda: b"PK\x05\x06" + b"\xff" * 18,
    ),
    "gzip": (
        lambda: gzip.compress(b"a" * 15_000_000),
        lambda: _gzips(9),
        lambda: gzip.compress(_ROW) * 3_000,
        lambda: gzip.compress(_ROW)[:-4],
        lambda: b"\x1f\x8b\x08\xff" + b"\xff" * 90_000,
        lambda: gzip.compress(_workbook("<row>" * 2_000)),
        lambda: gzip.compress(b"\0" * MANY + b"ustar"),
        lambda: gzip.compress(_ROW) + b"\x1f\x8b",
    ),
    "csv": (
        lambda: _ROW + b'"' * 99_999,
        lambda: b"a," * 99_999,
        lambda: _ROW + b"A," + b"9" * 200_000 + b",KES\n",
        lambda: _ROW + b"\0" * 90_000,
        lambda: _ROW + b"=cmd|' /C calc'!A0,1e999999999,KES\n" * 50,
        lambda: _ROW.decode().encode("utf-16") + b"\xd8",
        lambda: b"\xef\xbb\xbf" * 50_000,
        lambda: _ROW + b"A,(((((((" + b"-" * 90_000 + b",KES\n",
    ),
    "json": (
        lambda: b'{"reference": ' + b"[" * 99_999,
        lambda: b'{"reference": "A", "amount": 1e999999999999, "currency": "KES"}\n' * 20,
        lambda: b'{"reference": "A", "amount": %s, "currency": "KES"}' % (b"9" * 90_000),
        lambda: b'{"reference": NaN, "amount": {}, "currency": []}\n' * 20,
        lambda: b'{"a": 1, "a": 2, "reference": "\\ud800"}\n' * 20,
        lambda: json.dumps({f"n{n}": n for n in range(20_000)}).encode(),
        lambda: b"[" + b'{"reference": "A"},' * 20_000,
        lambda: b'{"reference": "' + b"x" * MANY,
    ),
    "eml": (
        lambda: _multiparts(300),
        lambda: _mail(b"=?utf-8?q?a?= " * 3_000),
        lambda: _mail(kind=b"Content-Type: text/plain; charset=hex", body=b"zz" * 9_000),
        lambda: _mail(kind=b"Content-Transfer-Encoding: base64", body=b"====A" * 90_000),
        lambda: _mail(kind=b"Content-Type: multipart/mixed; boundary=b", body=b"--b\r\n" * 20_000),
        lambda: _mail(kind=b"Content-Type: text/html", body=b"<p style='" * 20_000),
        lambda: _mail(kind=b"X: " + b"a\r\n " * 90_000),
        lambda: _mail(kind=b'Content-Disposition: attachment; filename*0*="' + b"%ff" * 20_000),
    ),
}  # fmt: skip
