"""Checkpoints of the log as signed notes: C2SP tlog-checkpoint over C2SP signed-note.

    <origin>                      which log: a name without blanks or plus signs
    <size>                        how many leaves, in decimal
    <base64 of the head's hash>
                                  an empty line
    — <origin> <base64 of 4 bytes of key hash and the signature over the three lines>

The key's name is the log's origin.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from app.evidence.keys import EvidenceKey, PublicKey
from reconcile.transparency.merkle import Hash

MAX_NOTE_BYTES: Final = 64 * 1024
"""Of a note that is read: ours have some 250; others may have added signatures."""

_ED25519: Final = b"\x01"
_MARK: Final = "— "
_NAME = re.compile(r"[^\s+]+")


class NotACheckpoint(Exception):
    """A text is no checkpoint, or none of this log's; says why in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The head of a log of so many leaves."""

    origin: str
    size: int
    head: Hash

    def body(self) -> str:
        """The three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.head).decode()}\n"


def key_hash(name: str, public: PublicKey) -> bytes:
    """The 4 bytes by which a note's signature names its key."""
    return hashlib.sha256(f"{name}\n".encode() + _ED25519 + public.raw).digest()[:4]


def verifier_key(name: str, public: PublicKey) -> str:
    """The key as note verifiers take it: name, key hash, and kind and key in base64."""
    encoded = base64.b64encode(_ED25519 + public.raw).decode()
    return f"{name}+{key_hash(name, public).hex()}+{encoded}"


def signed_note(key: EvidenceKey, *, name: str, body: str) -> str:
    """A body of whole lines, and its signature."""
    signature = key_hash(name, key.public) + key.sign(body.encode())
    return f"{body}\n{_MARK}{name} {base64.b64encode(signature).decode()}\n"


def signed_checkpoint(key: EvidenceKey, checkpoint: Checkpoint) -> str:
    """A checkpoint as a signed note."""
    return signed_note(key, name=checkpoint.origin, body=checkpoint.body())


def note_holds(note: str, *, name: str, public: PublicKey) -> bool:
    """Whether one of the note's signatures is this key's, and right. Others' are passed over."""
    body, found, signatures = note.rpartition("\n\n")
    if not found or not signatures.endswith("\n"):
        return False
    body += "\n"
    wanted = key_hash(name, public)
    for line in signatures[:-1].split("\n"):
        said, raw = _signature_in(line)
        if said == name and raw[:4] == wanted and public.verifies(raw[4:], body.encode()):
            return True
    return False


def _signature_in(line: str) -> tuple[str, bytes]:
    name, _, encoded = line.removeprefix(_MARK).partition(" ")
    try:
        return (name if line.startswith(_MARK) else ""), base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return "", b""


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text.isprintable()


def read_checkpoint(note: str) -> Checkpoint:
    """What a note says, whoever signed it. Raises NotACheckpoint for another text."""
    lines = note.partition("\n\n")[0].split("\n")
    if len(note) > MAX_NOTE_BYTES or len(lines) < 3 or not _is_name(lines[0]):
        raise NotACheckpoint("this is no checkpoint: it has not its three lines")
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", lines[1], re.ASCII):
        raise NotACheckpoint("this is no checkpoint: its second line is no number of leaves")
    try:
        head = base64.b64decode(lines[2], validate=True)
    except (binascii.Error, ValueError):
        head = b""
    if len(head) != 32:
        raise NotACheckpoint("this is no checkpoint: its third line is no hash")
    return Checkpoint(origin=lines[0], size=int(lines[1]), head=head)


def verified_checkpoint(note: str, *, origin: str, public: PublicKey) -> Checkpoint:
    """What a note says that this key signed for this log. Raises NotACheckpoint for another."""
    checkpoint = read_checkpoint(note)
    if checkpoint.origin != origin:
        raise NotACheckpoint(f"this checkpoint is of another log: {checkpoint.origin}")
    if not note_holds(note, name=origin, public=public):
        raise NotACheckpoint("this checkpoint is not signed by the log's key")
    return checkpoint
