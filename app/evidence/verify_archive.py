"""The first steps of `verify`: what a bundle's ZIP may be, and its manifest.

Python 3.8 and the standard library alone, and in every bundle: there it is a part of verify.py.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_BYTES = 256 * 1024 * 1024
"""Bytes of a bundle: it is read into memory at once."""

MAX_MEMBERS = 10_000
"""Files of a bundle: five for each delivery, and two dozen."""

NAME = re.compile(
    r"verify\.py|manifest\.json\.minisig|[A-Za-z][A-Za-z0-9_-]{0,90}\."
    r"(?:body|details|headers|html|jpg|json|pdf|pem|png|pub|signed|toml|txt|whole)"
)
"""What a file may be called: flat, and nothing that a computer would run but this file."""

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.minisig"
FORMAT = "tallyhook evidence 2"

NOT_IN_FORM = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What looking into a stranger's JSON of another form may raise."""

MASKED = "\N{BULLET}"
"""What stands in the place of a masked digit."""

ATTACHMENTS = "attachments.json"

# --- the archive ---------------------------------------------------------------------------------

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_VERSION = 20
_MADE_BY_UNIX = 3 << 8 | _VERSION
_FIRST_OF_1980 = 1 << 5 | 1
_PLAIN_FILE = 0o100644 << 16


class Wrong(Exception):
    """Something is not as it must be; one sentence. A stranger's words in it move no terminal."""

    def __init__(self, said: str) -> None:
        super().__init__(clean(said))


def clean(said: object) -> str:
    """Return somebody else's words, as far as they can be printed."""
    return "".join(c if c.isprintable() else "?" for c in str(said)[:400])


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return the one ZIP of these files: sorted by name, stored as they are, dated 1 January
    1980."""
    parts: list[bytes] = []
    directory: list[bytes] = []
    offset = 0
    for name in sorted(members):
        data, label = members[name], name.encode("ascii")
        shared = (_VERSION, 0, 0, 0, _FIRST_OF_1980, zlib.crc32(data), len(data), len(data))
        parts += [_LOCAL.pack(b"PK\3\4", *shared, len(label), 0), label, data]
        directory += [
            _CENTRAL.pack(b"PK\1\2", _MADE_BY_UNIX, *shared, len(label), 0, 0, 0, 0, _PLAIN_FILE,
                          offset),
            label,
        ]  # fmt: skip
        offset += _LOCAL.size + len(label) + len(data)
    listed = b"".join(directory)
    end = _END.pack(b"PK\5\6", 0, 0, len(members), len(members), len(listed), offset, 0)
    return b"".join([*parts, listed, end])


def unpack(archive: bytes) -> dict[str, bytes]:
    """Return the files of a bundle. Raise Wrong for every ZIP that `pack` did not make.

    Nothing is ever decompressed: a bundle stores its files as they are. So none can be larger than
    the bundle, and the only way through it is from its first byte to its last.
    """
    if len(archive) > MAX_BYTES:
        raise Wrong(f"it is larger than the {MAX_BYTES} bytes that a bundle may have")
    members: dict[str, bytes] = {}
    offset, last = 0, ""
    while archive[offset : offset + 4] == b"PK\3\4":
        name, data, offset = _member(archive, offset)
        if name <= last:
            raise Wrong(f"{name} comes twice or out of order")
        if len(members) == MAX_MEMBERS:
            raise Wrong(f"it has more than {MAX_MEMBERS} files")
        members[name], last = data, name
    if not members:
        raise Wrong("it is no ZIP that begins with a file")
    if archive != pack(members):
        raise Wrong("a header, its directory, or what comes after it, is not what its files make")
    return members


def _member(archive: bytes, offset: int) -> tuple[str, bytes, int]:
    if offset + _LOCAL.size > len(archive):
        raise Wrong("it ends in the middle of a file's header")
    (_, _, flags, method, _, _, _, packed, size, label, extra) = _LOCAL.unpack_from(archive, offset)
    begin = offset + _LOCAL.size + label
    name = archive[offset + _LOCAL.size : begin].decode("ascii", "replace")
    if not NAME.fullmatch(name):
        raise Wrong(f"it has a file with the name {name[:100]!r}, which no bundle has")
    if method or flags or extra or packed != size:
        raise Wrong(f"{name} is compressed, encrypted, streamed or has extra fields: none here are")
    if begin + size > len(archive):
        raise Wrong(f"{name} claims more bytes than there are")
    return name, archive[begin : begin + size], begin + size


# --- the manifest and the files ------------------------------------------------------------------


def read_json(data: bytes, name: str) -> Any:
    """Parse the JSON in a file. Raise Wrong, also where an object has a name twice: of two readers
    each would take another."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Wrong(f"{name} has an object with one name twice")
        return found

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Wrong(f"{name} is not JSON") from None


class Bundle(NamedTuple):
    """The files by name, and the manifest."""

    members: dict[str, bytes]
    manifest: dict[str, Any]

    def document(self, name: str) -> Any:
        """Return the JSON of a file. Raise Wrong where it is missing or none."""
        if name not in self.members:
            raise Wrong(f"{name} is missing")
        return read_json(self.members[name], name)


def opened(members: dict[str, bytes]) -> Bundle:
    """Return the bundle of these files, whose manifest names exactly them. Raise Wrong."""
    if MANIFEST not in members or SIGNATURE not in members:
        raise Wrong(f"{MANIFEST} or {SIGNATURE} is missing")
    manifest = read_json(members[MANIFEST], MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Wrong(f"{MANIFEST} is not of the format {FORMAT!r}")
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    canonical = text.encode("utf-8", "surrogatepass")  # RFC 8785 for ASCII names and no floats
    if canonical != members[MANIFEST]:
        raise Wrong(f"{MANIFEST} is not in canonical form")
    listed, left_out = manifest.get("files"), manifest.get("left_out")
    if not isinstance(listed, dict) or not isinstance(left_out, dict):
        raise Wrong(f"{MANIFEST} does not list files and what was left out")
    if not isinstance(manifest.get("redacted"), bool):
        raise Wrong(f"{MANIFEST} does not say whether it is redacted")
    there = members.keys() - {MANIFEST, SIGNATURE}
    for name in sorted(there ^ listed.keys()):
        fault = "not in the manifest" if name in there else "missing"
        raise Wrong(f"{name} is {fault}")
    return Bundle(members, manifest)


def attached(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the list of files that people of the shop attached; empty where none were asked
    for."""
    return bundle.document(ATTACHMENTS) if ATTACHMENTS in bundle.members else []
