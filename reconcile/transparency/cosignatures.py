"""The published forms in which logs and their witnesses speak, as text and bytes.

    signed-note       a text of whole lines, an empty line, and a line for each signature
    verifier key      NAME+ID+BASE64: the key id in hex, and kind and public key in base64
    tlog-cosignature  what a witness signs of a checkpoint, with the time at which it did
    tlog-witness      what is sent to `add-checkpoint`, and what is answered

The specifications are C2SP's (https://c2sp.org). Leaves out: signing and verifying, and HTTP.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ED25519: Final = 0x01
"""The kind of a key that signs notes themselves."""

COSIGNER: Final = 0x04
"""The kind of a witness's Ed25519 key, whose signatures hold the time."""

MAX_NAME: Final = 255
"""Characters of a key's name: the later forms of cosignatures have room for so many bytes."""

MAX_TIME: Final = 2**63 - 1
"""Seconds since 1970 that a cosignature may state."""

SIZE_TYPE: Final = "text/x.tlog.size"
"""The content type of an answer 409 that states the size that a witness knows."""

_MARK: Final = "— "
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{8}", re.ASCII)


def is_key_name(text: str) -> bool:
    """Whether a key may be called that: one printable word without a plus sign."""
    return 0 < len(text) <= MAX_NAME and text.isprintable() and not re.search(r"[\s+]", text)


def key_id(name: str, kind: int, raw: bytes) -> bytes:
    """The 4 bytes by which a signature names its key."""
    return hashlib.sha256(f"{name}\n".encode() + bytes([kind]) + raw).digest()[:4]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierKey:
    """A public key, with the name under which it signs. `raw`: 32 bytes of Ed25519."""

    name: str
    kind: int
    raw: bytes

    @property
    def id(self) -> bytes:
        """See `key_id`."""
        return key_id(self.name, self.kind, self.raw)

    @property
    def text(self) -> str:
        """As people hand it on."""
        encoded = base64.b64encode(bytes([self.kind]) + self.raw).decode()
        return f"{self.name}+{self.id.hex()}+{encoded}"


def read_cosigner(text: str) -> VerifierKey:
    """The key of a witness from its text. Raises ValueError, which says why in one sentence."""
    name, _, rest = text.partition("+")
    hex_id, _, encoded = rest.partition("+")
    raw = _decoded(encoded)
    if not is_key_name(name) or not _ID.fullmatch(hex_id) or not raw:
        raise ValueError("is no verifier key, which has the form NAME+ID+BASE64")
    if raw[0] != COSIGNER or len(raw) != 33:
        raise ValueError(
            f"is a key of another kind than a witness's of Ed25519, {COSIGNER:#04x}, which alone "
            "is known here"
        )
    key = VerifierKey(name=name, kind=COSIGNER, raw=raw[1:])
    if key.id.hex() != hex_id:
        raise ValueError("is changed: its id does not follow from name and key")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSignature:
    """One signature of a note. `content`: what follows the key id. `line`: without its newline."""

    name: str
    key_id: bytes
    content: bytes
    line: str


def body_of(note: str) -> str:
    """The text that a note's signatures are over; empty for what is no note."""
    body, found, _ = note.rpartition("\n\n")
    return f"{body}\n" if found else ""


def signatures_of(note: str) -> list[NoteSignature]:
    """A note's signatures; those not in form are passed over, as those of strangers are."""
    lines = note.rpartition("\n\n")[2]
    return read_signatures(lines) if lines.endswith("\n") else []


def read_signatures(lines: str) -> list[NoteSignature]:
    """The signatures in some lines; a line that is none is passed over."""
    return [found for line in lines.split("\n") if (found := _signature_in(line)) is not None]


def _signature_in(line: str) -> NoteSignature | None:
    name, _, encoded = line.removeprefix(_MARK).partition(" ")
    content = _decoded(encoded)
    if not line.startswith(_MARK) or not is_key_name(name) or len(content) < 5:
        return None
    return NoteSignature(name=name, key_id=content[:4], content=content[4:], line=line)


def signature_line(name: str, identifier: bytes, content: bytes) -> str:
    """A signature as it stands in a note, without its newline."""
    return f"{_MARK}{name} {base64.b64encode(identifier + content).decode()}"


def timed_signature(content: bytes) -> tuple[int, bytes] | None:
    """A cosignature's time in seconds since 1970, and its Ed25519 signature; None for another."""
    time = int.from_bytes(content[:8], "big")
    return (time, content[8:]) if len(content) == 72 and time <= MAX_TIME else None


def cosigned_message(body: str, *, time: int) -> bytes:
    """What a witness signs of a checkpoint, whose body is whole lines."""
    return f"cosignature/v1\ntime {time}\n{body}".encode()


def add_checkpoint(*, old: int, proof: Sequence[bytes], note: str) -> bytes:
    """The request that asks a witness to cosign: size that it knows, proof, checkpoint."""
    lines = [f"old {old}", *(base64.b64encode(each).decode() for each in proof), "", note]
    return "\n".join(lines).encode()


def stated_size(body: bytes) -> int | None:
    """The size that a witness says it has cosigned; None for what states none."""
    text = body.decode("ascii", "replace")
    number = text.removesuffix("\n")
    return int(number) if text.endswith("\n") and _SIZE.fullmatch(number) else None


def _decoded(encoded: str) -> bytes:
    """Bytes from their one form in base64; none for anything else."""
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return raw if base64.b64encode(raw).decode() == encoded else b""
