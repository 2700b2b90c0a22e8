"""First steps of `verify`: ZIP and manifest. Use only Python 3.8."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from app.evidence.verify_forms import DELIVERY, DOCUMENTS, Wrong, read_document

MAX_BYTES = 256 * 1024 * 1024
"""Maximum size in bytes of a bundle, which is read into memory."""

MAX_MEMBERS = 60_000
"""Maximum number of files of a bundle."""

NAME = re.compile(
    r"verify\.py|manifest\.json\.minisig|[A-Za-z][A-Za-z0-9_-]{0,90}\."
    r"(?:body|details|headers|html|jpg|json|pdf|pem|png|pub|signed|toml|txt|whole)"
)
"""Pattern of allowed file names: no folder, and no executable ending except verify.py."""

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.minisig"
FORMAT = "tallyhook evidence 2"

ATTACHMENTS = "attachments.json"

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017  # Python 3.8 has no other

AHEAD_S = 300
"""Maximum seconds by which a bundle's instant can lie in the future."""

# --- the archive ---------------------------------------------------------------------------------

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_VERSION = 20
_MADE_BY_UNIX = 3 << 8 | _VERSION
_FIRST_OF_1980 = 1 << 5 | 1
_PLAIN_FILE = 0o100644 << 16


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return the only valid ZIP of these files: sorted by name, uncompressed, dated 1980-01-01."""
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
    """Return a bundle's files. Raise Wrong unless `pack` makes the ZIP."""
    if len(archive) > MAX_BYTES:
        raise Wrong(f"it has more than {MAX_BYTES} bytes, the maximum for a bundle")
    members: dict[str, bytes] = {}
    offset, last = 0, ""
    while archive[offset : offset + 4] == b"PK\3\4":
        name, data, offset = _member(archive, offset)
        if name <= last:
            raise Wrong(f"the file {name} is duplicated or out of order")
        if len(members) == MAX_MEMBERS:
            raise Wrong(f"it has more than {MAX_MEMBERS} files")
        members[name], last = data, name
    if not members:
        raise Wrong("it is not a ZIP, or it does not begin with a file")
    if archive != pack(members):
        raise Wrong(
            "its headers or its directory do not match its files, or other data follow the "
            "directory"
        )
    return members


def _member(archive: bytes, offset: int) -> tuple[str, bytes, int]:
    if offset + _LOCAL.size > len(archive):
        raise Wrong("the header of a file is cut off")
    (_, _, flags, method, _, _, _, packed, size, label, extra) = _LOCAL.unpack_from(archive, offset)
    begin = offset + _LOCAL.size + label
    name = archive[offset + _LOCAL.size : begin].decode("ascii", "replace")
    if not NAME.fullmatch(name):
        raise Wrong(f"it contains a file named {name[:100]!r}, which is not allowed in a bundle")
    if method or flags or extra or packed != size:
        raise Wrong(
            f"{name} is compressed, encrypted, streamed or has extra fields, which is not "
            "allowed in a bundle"
        )
    if begin + size > len(archive):
        raise Wrong(f"{name} is cut off: its header states more bytes than the file has")
    return name, archive[begin : begin + size], begin + size


# --- the manifest and the files ------------------------------------------------------------------


class Bundle:
    """Files of an evidence bundle by name, with the bundle's manifest."""

    def __init__(self, members: dict[str, bytes], manifest: dict[str, Any]) -> None:
        self.members, self.manifest = members, manifest
        self._read: dict[str, Any] = {}
        self._made: dict[Any, Any] = {}

    def document(self, name: str) -> Any:
        """Parse a file's JSON. Raise Wrong if missing or malformed."""
        if name not in self.members:
            raise Wrong(f"{name} is missing")
        if name not in self._read:
            form = DELIVERY if name.startswith("delivery-") else DOCUMENTS.get(name)
            if form is None:
                raise Wrong(f"{name} is not allowed in a bundle")
            self._read[name] = read_document(self.members[name], name, form)
        return self._read[name]

    def once(self, make: Callable[[Bundle], Any]) -> Any:
        """Return the result of `make` for this bundle. The result is computed only once."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]


def opened(members: dict[str, bytes], now: int) -> Bundle:
    """Return the bundle of these files. Raise Wrong if the manifest lists other files.

    `now` is the verifier's clock, in microseconds since 1970.
    """
    if MANIFEST not in members or SIGNATURE not in members:
        raise Wrong(f"{MANIFEST} or {SIGNATURE} is missing")
    manifest = read_document(members[MANIFEST], MANIFEST, DOCUMENTS[MANIFEST])
    if manifest["format"] != FORMAT:
        raise Wrong(f"{MANIFEST} does not have the format {FORMAT!r}")
    if micros(manifest["as_of"]) > now + AHEAD_S * 1_000_000:
        raise Wrong(f"its time, {manifest['as_of']}, is later than this computer's clock")
    there = members.keys() - {MANIFEST, SIGNATURE}
    for name in sorted(there ^ manifest["files"].keys()):
        fault = "not in the manifest" if name in there else "missing"
        raise Wrong(f"{name} is {fault}")
    return Bundle(members, manifest)


def micros(at: str) -> int:
    """Convert an RFC 3339 instant to microseconds since 1970."""
    return (datetime.fromisoformat(at.replace("Z", "+00:00")) - EPOCH) // timedelta(microseconds=1)


def arrivals(bundle: Bundle) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the id, instant and entry in history.json of each delivery, including redeliveries."""
    for each in bundle.document("history.json")["deliveries"]:
        yield each["delivery_id"], each["received_at"], each
        for name, at in each.get("again", ()):
            yield name, at, each


def attached(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the attached files in the bundle; empty if none were requested."""
    return bundle.document(ATTACHMENTS) if ATTACHMENTS in bundle.members else []


def redated(bundle: Bundle) -> dict[str, int]:
    """Return the corrected instants of deliveries and records, by name."""
    found: dict[str, int] = {}
    for each in bundle.document("history.json")["records"]:
        if each["kind"] == "redated":
            if not each["at"] == each["recorded_at"] < each.get("expires_at", ""):
                raise Wrong(
                    f"the record {each['record_id']} corrects a date, but has contradictory times"
                )
            thing, at = each.get("replaces"), micros(each["at"])
            found[thing] = min(found.get(thing, at), at)
    return found
