"""Evidence key, which signs checkpoints and bundles in minisign's format."""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from app.config.settings import Settings
from app.core.errors import ConfigurationError
from app.core.private_files import Owner, read_private, write_new

VARIABLE: Final = "TALLYHOOK_EVIDENCE__KEY_FILE"

MAX_FILE_BYTES: Final = 4096
"""Maximum size of a key file in bytes."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Public half of an evidence key: 32 bytes."""

    raw: bytes

    @property
    def fingerprint(self) -> str:
        return "sha256:" + hashlib.sha256(self.raw).hexdigest()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Check whether this key's private half signed the data."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> str:
        """Return the key in PEM, for `openssl pkeyutl -verify -pubin -rawin`."""
        encoded = Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return encoded.decode()


class EvidenceKey:
    """Key that signs checkpoints and bundles. Only `write_key` and `load_key` create it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the 64 bytes of an ed25519 signature of the data (RFC 8032)."""
        return self._private.sign(data)


def write_key(path: Path, *, secret: bytes, owner: Owner | None = None) -> EvidenceKey:
    """Store a key in a new file that only the owner can read.

    Raise ConfigurationError for an unwritable file, and FileExistsError for an existing file.
    """
    private = Ed25519PrivateKey.from_private_bytes(secret)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        write_new(path, pem, owner=owner)
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigurationError(
            [f"{VARIABLE}: the evidence key cannot be written there ({error.strerror})"]
        ) from error
    return EvidenceKey(private)


def load_key(path: Path) -> EvidenceKey | None:
    """Return the signing key in a file, if the file exists.

    Raise ConfigurationError for a file that others can read, or for an invalid key.
    """
    content = read_private(path, variable=VARIABLE, what="a key", most=MAX_FILE_BYTES)
    if content is None:
        return None
    try:
        private = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            [f"{VARIABLE}: does not name an ed25519 key in PEM without a password"]
        ) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigurationError([f"{VARIABLE}: names a key that is not an ed25519 key"])
    return EvidenceKey(private)


def own_key(settings: Settings) -> PublicKey | None:
    """Return this machine's public evidence key, if readable."""
    try:
        key = load_key(settings.evidence_key_path)
    except ConfigurationError:
        return None
    return None if key is None else key.public


MAX_COMMENT: Final = 1024
"""Maximum number of characters in a signature's comment."""

_KEY: Final = b"Ed"
_PREHASHED: Final = b"ED"
_UNTRUSTED: Final = "untrusted comment: "
_TRUSTED: Final = "trusted comment: "


class NotSigned(Exception):
    """Error for an invalid signature or public key. The message is the reason."""


def minisign_id(public: PublicKey) -> bytes:
    """Return a key's 8-byte id, taken from its SHA-256."""
    return hashlib.sha256(public.raw).digest()[:8]


def key_name(public: PublicKey) -> str:
    """Return the key id in minisign's form: 16 hex digits."""
    return minisign_id(public)[::-1].hex().upper()


def public_key_line(public: PublicKey) -> str:
    """Return the public key as the argument of `minisign -P`."""
    return base64.b64encode(_KEY + minisign_id(public) + public.raw).decode()


def public_key_text(public: PublicKey) -> str:
    """Return the public key as the content of a file for `minisign -p`."""
    return f"{_UNTRUSTED}minisign public key {key_name(public)}\n{public_key_line(public)}\n"


def read_public_key(text: str) -> PublicKey:
    """Parse a minisign public key. Raise NotSigned if invalid."""
    line = text.strip().splitlines()[-1] if text.strip() else ""
    raw = _decoded(line, length=42)
    public = PublicKey(raw[10:])
    if raw[:2] != _KEY:
        raise NotSigned("this is not a minisign public key")
    return public


def minisign_signature(key: EvidenceKey, data: bytes, *, comment: str, about: str = "") -> str:
    """Return the signature file for the data.

    The signature covers `comment`, but not the first line, `about`. Raise ValueError for a comment
    that minisign rejects.
    """
    about = about or f"signature from tallyhook key {key_name(key.public)}"
    for each in (comment, about):
        if len(each) > MAX_COMMENT or not each.isprintable():
            raise ValueError(f"a comment is one line of at most {MAX_COMMENT} characters")
    signature = key.sign(_prehashed(data))
    overall = key.sign(signature + comment.encode())
    lines = (
        _UNTRUSTED + about,
        base64.b64encode(_PREHASHED + minisign_id(key.public) + signature).decode(),
        _TRUSTED + comment,
        base64.b64encode(overall).decode(),
    )
    return "\n".join(lines) + "\n"


def trusted_comment(public: PublicKey, data: bytes, text: str) -> str:
    """Verify a signature file and return its comment. Raise NotSigned if wrong."""
    lines = text.split("\n")
    if len(lines) != 5 or lines[4] or not lines[0].startswith(_UNTRUSTED):  # 1
        raise NotSigned("this is not a minisign signature: it does not have four lines")
    if not lines[2].startswith(_TRUSTED):
        raise NotSigned("this is not a minisign signature: its comment is missing")
    raw, overall = _decoded(lines[1], length=74), _decoded(lines[3], length=64)
    if raw[:2] != _PREHASHED:
        raise NotSigned("the signature does not use BLAKE2b and ed25519")
    if raw[2:10] != minisign_id(public):  # 2
        raise NotSigned("the signature names another key")
    comment = lines[2].removeprefix(_TRUSTED)
    if not public.verifies(raw[10:], _prehashed(data)):  # 3
        raise NotSigned("the signature does not match these bytes")
    if not public.verifies(overall, raw[10:] + comment.encode("utf-8", "surrogatepass")):  # 4
        raise NotSigned("the comment was changed after signing")
    return comment


def _prehashed(data: bytes) -> bytes:
    return hashlib.blake2b(data).digest()


def _decoded(line: str, *, length: int) -> bytes:
    try:
        raw = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotSigned("this is not base64") from error
    # Unused bits of base64 could be changed unnoticed.
    if len(raw) != length or base64.b64encode(raw).decode() != line:
        raise NotSigned(f"this is not base64 of {length} bytes")
    return raw
