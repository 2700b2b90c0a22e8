"""Write and parse the formats that transparency logs and their witnesses exchange.

    signed-note       whole lines of text, an empty line, and a line for each signature
    verifier key      NAME+ID+BASE64: the key id in hex, and kind and public key in base64
    tlog-cosignature  the message that a witness signs: the time and the checkpoint
    tlog-witness      request and answer of `add-checkpoint`

The specifications are C2SP's (https://c2sp.org).
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ED25519: Final = 0x01

COSIGNER: Final = 0x04
"""Kind of a witness's Ed25519 key. A signature of this kind states when it was made."""

MAX_NAME: Final = 255
"""Maximum length of a key's name in characters.

The newer format of cosignatures stores up to 255 bytes.
"""

MAX_TIME: Final = 2**63 - 1
"""Largest time of a cosignature, in seconds since 1970."""

SIZE_TYPE: Final = "text/x.tlog.size"
"""Content type of a witness's answer with status 409.

In this answer, the witness states the size of the largest tree that it knows.
"""

_MARK: Final = "— "
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{8}", re.ASCII)


def is_key_name(text: str) -> bool:
    """Check whether a text can name a key: one printable word without a plus sign."""
    return 0 < len(text) <= MAX_NAME and text.isprintable() and not re.search(r"[\s+]", text)


def key_id(name: str, kind: int, raw: bytes) -> bytes:
    """Return the 4 bytes by which a signature names its key."""
    return hashlib.sha256(f"{name}\n".encode() + bytes([kind]) + raw).digest()[:4]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierKey:
    """Public key of a witness, with its name."""

    name: str
    kind: int
    raw: bytes
    """32 bytes of Ed25519."""

    @property
    def id(self) -> bytes:
        return key_id(self.name, self.kind, self.raw)

    @property
    def text(self) -> str:
        """Return the key as `NAME+ID+BASE64`."""
        encoded = base64.b64encode(bytes([self.kind]) + self.raw).decode()
        return f"{self.name}+{self.id.hex()}+{encoded}"


def read_cosigner(text: str) -> VerifierKey:
    """Parse the key of a witness. Raises ValueError if it is malformed."""
    name, _, rest = text.partition("+")
    hex_id, _, encoded = rest.partition("+")
    raw = _decoded(encoded)
    if not is_key_name(name) or not _ID.fullmatch(hex_id) or not raw:
        raise ValueError("is no verifier key, which has the form NAME+ID+BASE64")
    if raw[0] != COSIGNER or len(raw) != 33:
        raise ValueError(
            f"is not a witness's Ed25519 key (kind {COSIGNER:#04x}); only this kind is supported"
        )
    key = VerifierKey(name=name, kind=COSIGNER, raw=raw[1:])
    if key.id.hex() != hex_id:
        raise ValueError("has an id that does not match its name and key")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSignature:
    """One signature of a signed note."""

    name: str
    key_id: bytes
    content: bytes
    """Bytes after the key id."""
    line: str
    """Text of the line without the newline."""


def body_of(note: str) -> str:
    """Return the signed text of a note; empty if the note has no signatures."""
    body, found, _ = note.rpartition("\n\n")
    return f"{body}\n" if found else ""


def signatures_of(note: str) -> list[NoteSignature]:
    """Return the signatures of a note. Malformed signatures are skipped."""
    lines = note.rpartition("\n\n")[2]
    return read_signatures(lines) if lines.endswith("\n") else []


def read_signatures(lines: str) -> list[NoteSignature]:
    """Return the signatures in these lines. All other lines are skipped."""
    found = []
    for line in lines.split("\n"):
        name, _, encoded = line.removeprefix(_MARK).partition(" ")
        content = _decoded(encoded)
        if line.startswith(_MARK) and is_key_name(name) and len(content) >= 5:
            signature = NoteSignature(name=name, key_id=content[:4], content=content[4:], line=line)
            found.append(signature)
    return found


def signature_line(name: str, identifier: bytes, content: bytes) -> str:
    """Return a signature as a line of a note, without its newline."""
    return f"{_MARK}{name} {base64.b64encode(identifier + content).decode()}"


def timed_signature(content: bytes) -> tuple[int, bytes] | None:
    """Split a cosignature into its time, in seconds since 1970, and its Ed25519 signature.

    The result is None if the cosignature is malformed.
    """
    time = int.from_bytes(content[:8], "big")
    return (time, content[8:]) if len(content) == 72 and time <= MAX_TIME else None


def cosigned_message(body: str, *, time: int) -> bytes:
    """Return the message that a witness signs for a checkpoint.

    body  the checkpoint's text, in whole lines
    time  time of the signature, in seconds since 1970
    """
    return f"cosignature/v1\ntime {time}\n{body}".encode()


def add_checkpoint(*, old: int, proof: Sequence[bytes], note: str) -> bytes:
    """Return the request that asks a witness to cosign a checkpoint.

    old    tree size that the witness knows
    proof  proof that the tree extends the tree of size `old`
    note   the signed checkpoint
    """
    lines = [f"old {old}", *(base64.b64encode(each).decode() for each in proof), "", note]
    return "\n".join(lines).encode()


def stated_size(body: bytes) -> int | None:
    """Parse the tree size in a witness's answer; None if the answer states none."""
    text = body.decode("ascii", "replace")
    number = text.removesuffix("\n")
    return int(number) if text.endswith("\n") and _SIZE.fullmatch(number) else None


def _decoded(encoded: str) -> bytes:
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return raw if base64.b64encode(raw).decode() == encoded else b""
