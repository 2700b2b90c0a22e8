"""Find the encoding of a text file."""

import codecs
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from app.core.errors import UsageError
from app.core.text import printable

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_ENCODINGS: Final = re.compile(
    r"ascii|utf-8|utf-8-sig|utf-16(-[lb]e)?|iso8859-\d+|cp\d+|mac-\w+|koi8-\w|gb\w+|big5\w*|euc_\w+"
    r"|shift_jis\w*|tis-620"
)

GUESSED: Final = {"cp1252": "Windows-1252", "cp932": "Shift-JIS", "cp850": "CP850 of DOS"}
"""Encodings that are recognized without a declaration."""

_TRIED: Final = {**GUESSED, "gb18030": "GB 18030", "cp1251": "Windows-1251", "euc_kr": "EUC-KR"}

_NO_CONTROLS: Final = bytes(byte for byte in range(32) if byte not in b"\t\n\f\r")
_OF_DOS: Final = re.compile(rb"[\x80-\x9f]")

_SEARCHED: Final = 1024 * 1024
_LINE: Final = 64 * 1024
_JUDGED: Final = 2_000

_WORD: Final = re.compile(r"[^\s,;|\"']*[^\x00-\x7f\s,;|\"'][^\s,;|\"']*")
_SHOWN: Final = 24

_IN_WORD: Final = re.compile(r"[A-Za-z][^\W\x00-\x7f]|[^\W\x00-\x7f][A-Za-z]")
_ODD: Final = re.compile(
    r"(?<=[A-Za-zÀ-ÿ])[^\w\s\x00-\x7f’‘–‑·\u00ad](?=[A-Za-zÀ-ÿ])"
    r"|(?<=[^\W\d_])[‚„†‡ˆ‰‹]|(?<!\w)[™”›](?=[^\W\d_])"
    r"|(?<=[a-zß-öø-ÿ])[À-ÖØ-Þ]|(?<=[A-Z])[à-öø-ÿšž](?=[A-Z])|(?<![^\W\d_])[à-öø-ÿ](?=[A-Z])"
    r"|(?<=[0-9])[À-ÖØ-öø-ÿ]|(?<!\w)[ÇçâêëîïìôòûùÿÆæ](?!\w)"
    r"|[\u2500-\u259f\ue000-\uf8ff\x80-\x9f]|[À-ÖØ-öø-ÿ]{3}|(?<=\w)ƒ|ƒ(?=\w)"
    r"|(?<=[a-z])[\u2e80-\uffdf](?![\u2e80-\uffdf])|(?<=[A-Za-z])[\u2e80-\uffdf](?=[A-Za-z])"
    r"|[\uff61-\uff9f](?=[a-z\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])[\uff61-\uff9f]"
)


def known_encoding(name: str) -> str:
    """Return Python's name of an encoding. Raise UsageError for an unknown or unusual encoding."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        found = ""
    if not _ENCODINGS.fullmatch(found):
        raise UsageError(
            f"{name[:40]!r} is not a known encoding; name one such as utf-8, cp1252, latin-1 or "
            "utf-16"
        )
    return found


def encoding_of(path: Path, declared: str | None) -> str:
    """Return the declared or recognized encoding, or UTF-8."""
    if declared is not None:
        return known_encoding(declared)
    with path.open("rb") as file:
        start = file.read(4)
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    if marked is not None:
        return marked
    if path.suffix.lower() == ".xlsx" or decodes(path, "utf-8"):
        return "utf-8"
    found = fitting(path)
    return found[0] if len(found) == 1 else "utf-8"


def fitting(path: Path) -> list[str]:
    """Return the encodings of GUESSED that read the file best."""
    lines = _beyond_ascii(path)
    odd = {name: _odd(lines, name) for name in GUESSED if decodes(path, name)}
    if not odd.get("cp1252", 1) and not any(map(_OF_DOS.search, lines)):
        odd.pop("cp850", None)
    best = min(odd.values(), default=0)
    if best and best >= len(lines):  # no encoding reads well, as with Cyrillic
        return []
    return [name for name, count in odd.items() if count <= 2 * best]


def _odd(lines: Sequence[bytes], encoding: str) -> int:
    text = "\n".join(line.decode(encoding, errors="replace") for line in lines)
    if encoding == "cp850":  # it decodes any bytes
        quotes_in_pairs = 0 < text.count("ô") == text.count("ö")  # quotation marks of Windows-1252
        if quotes_in_pairs or not _IN_WORD.search(text):
            return len(text)
    return len(_ODD.findall(text))


def _beyond_ascii(path: Path) -> list[bytes]:
    found = list[bytes]()
    with path.open("rb") as file:
        while (part := file.read(_SEARCHED) + file.readline(_LINE)) and len(found) < _JUDGED:
            if not part.isascii():
                found += (line for line in part.split(b"\n") if not line.isascii())
    return found[:_JUDGED]


def decodes(path: Path, encoding: str) -> bool:
    """Return whether the whole file is text in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with path.open("rb") as file:
        for part in chain(iter(partial(file.read, _SEARCHED), b""), [b""]):
            if encoding != "utf-8" and len(part.translate(None, _NO_CONTROLS)) != len(part):
                return False
            try:
                decoder.decode(part, final=not part)
            except UnicodeError:
                return False
    return True


def first_word(path: Path, encoding: str) -> str:
    """Return the file's first word beyond ASCII, or an empty text."""
    return _first_word(_beyond_ascii(path), encoding)


def _first_word(lines: Sequence[bytes], encoding: str) -> str:
    for line in lines:
        if found := _WORD.search(line.decode(encoding, errors="replace")):
            return printable(found[0])[:_SHOWN]
    return ""


def readings(path: Path, names: Sequence[str] = ()) -> Mapping[str, str]:
    """Return the possible encodings, each with an example word."""
    lines = _beyond_ascii(path)
    return {
        name: f"{_TRIED[name]} (--encoding {name}), which reads a word as "
        f"{_first_word(lines, name)!r}"
        for name in names or _TRIED
        if decodes(path, name)
    }


def without_mark(path: Path) -> str | None:
    """Return the encoding of UTF-16 text without a byte order mark."""
    with path.open("rb") as file:
        start = file.read(_LINE)
    for name in ("utf-16-le", "utf-16-be"):
        text = start.decode(name, errors="replace")
        if "\n" in text and "\0" not in text and sum(map(str.isascii, text)) * 2 > len(text):
            return name
    return None
