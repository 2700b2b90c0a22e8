"""Signatures and keys in minisign's format, prehashed (`ED`): the `minisign` tool verifies them.

public key   comment line, then base64 of "Ed", 8 bytes of key id, 32 bytes of key
signature    comment line, then base64 of "ED", key id, signature over BLAKE2b-512 of the file
             `trusted comment: …`, then base64 of a signature over signature and comment
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from app.evidence.keys import EvidenceKey, PublicKey

MAX_COMMENT: Final = 1024
"""Characters of a comment: minisign's own bound is 8,192 bytes for the trusted one."""

_KEY: Final = b"Ed"
_PREHASHED: Final = b"ED"
_UNTRUSTED: Final = "untrusted comment: "
_TRUSTED: Final = "trusted comment: "


class NotSigned(Exception):
    """A text is no signature of these bytes by this key; says why in one sentence."""


def key_id(public: PublicKey) -> bytes:
    """The 8 bytes by which a signature names its key: the first of the key's SHA-256."""
    return hashlib.sha256(public.raw).digest()[:8]


def key_name(public: PublicKey) -> str:
    """The key id as minisign prints it: 16 hex digits of a little-endian number."""
    return key_id(public)[::-1].hex().upper()


def public_key_line(public: PublicKey) -> str:
    """What `minisign -P` takes."""
    return base64.b64encode(_KEY + key_id(public) + public.raw).decode()


def public_key_text(public: PublicKey) -> str:
    """A public key's file, as `minisign -p` reads it."""
    return f"{_UNTRUSTED}minisign public key {key_name(public)}\n{public_key_line(public)}\n"


def read_public_key(text: str) -> PublicKey:
    """The key of a public key's file, or of its line alone. Raises NotSigned for anything else."""
    line = text.strip().splitlines()[-1] if text.strip() else ""
    raw = _decoded(line, length=42)
    public = PublicKey(raw[10:])
    if raw[:2] != _KEY:
        raise NotSigned("this is no public key of minisign's")
    return public


def signed(key: EvidenceKey, data: bytes, *, comment: str, about: str = "") -> str:
    """The signature's file. `comment` is covered by the signature; `about` is not, and names the
    key where it is empty. Raises ValueError for a comment that is not one line."""
    about = about or f"signature from tallyhook key {key_name(key.public)}"
    for each in (comment, about):
        if len(each) > MAX_COMMENT or not each.isprintable():
            raise ValueError(f"a comment is one line of at most {MAX_COMMENT} characters")
    signature = key.sign(_prehashed(data))
    overall = key.sign(signature + comment.encode())
    lines = (
        _UNTRUSTED + about,
        base64.b64encode(_PREHASHED + key_id(key.public) + signature).decode(),
        _TRUSTED + comment,
        base64.b64encode(overall).decode(),
    )
    return "\n".join(lines) + "\n"


def trusted_comment(public: PublicKey, data: bytes, text: str) -> str:
    """The trusted comment of a signature's file that holds for these bytes.

    Raises NotSigned where it does not. (1) form, (2) key, (3) bytes, (4) comment.
    """
    lines = text.split("\n")
    if len(lines) != 5 or lines[4] or not lines[0].startswith(_UNTRUSTED):  # 1
        raise NotSigned("this is no signature of minisign's: it has not its four lines")
    if not lines[2].startswith(_TRUSTED):
        raise NotSigned("this is no signature of minisign's: its comment is missing")
    raw, overall = _decoded(lines[1], length=74), _decoded(lines[3], length=64)
    if raw[:2] != _PREHASHED:
        raise NotSigned("the signature is of another kind than BLAKE2b and ed25519")
    if raw[2:10] != key_id(public):  # 2
        raise NotSigned("the signature names another key")
    comment = lines[2].removeprefix(_TRUSTED)
    if not public.verifies(raw[10:], _prehashed(data)):  # 3
        raise NotSigned("the signature is not of these bytes")
    if not public.verifies(overall, raw[10:] + comment.encode("utf-8", "surrogatepass")):  # 4
        raise NotSigned("the comment was changed after signing")
    return comment


def _prehashed(data: bytes) -> bytes:
    return hashlib.blake2b(data).digest()


def _decoded(line: str, *, length: int) -> bytes:
    try:
        raw = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotSigned("this is no base64") from error
    # Bits that decode to nothing could be changed unseen.
    if len(raw) != length or base64.b64encode(raw).decode() != line:
        raise NotSigned(f"this is no base64 of {length} bytes")
    return raw
