"""The evidence key: one ed25519 key in a file, which signs checkpoints and bundles.

The private half is read, used and never shown: no function here returns it, and its values have
no text of their own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from app.core.errors import ConfigurationError
from app.core.private_files import read_private, write_new

VARIABLE: Final = "TALLYHOOK_EVIDENCE__KEY_FILE"
"""The setting that names the file."""

MAX_FILE_BYTES: Final = 4096
"""A PEM of this kind has 119; what is much larger is another file."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The half that everyone may have: 32 bytes."""

    raw: bytes

    @property
    def fingerprint(self) -> str:
        """`sha256:` and the hex digest of the 32 bytes."""
        return "sha256:" + hashlib.sha256(self.raw).hexdigest()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether the private half signed these bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> str:
        """In PEM, as `openssl pkeyutl -verify -pubin -rawin` reads it."""
        encoded = Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return encoded.decode()


class EvidenceKey:
    """The key that signs. Made by `write_key` and `load_key`."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes of an ed25519 signature (RFC 8032)."""
        return self._private.sign(data)


def write_key(path: Path, *, secret: bytes) -> EvidenceKey:
    """Make a key of 32 bytes of chance and keep it where nothing is yet, for its owner alone.

    The file has its name only when it is whole and on the disk. Raises ConfigurationError where
    it cannot be written, and FileExistsError where there is one by now.
    """
    private = Ed25519PrivateKey.from_private_bytes(secret)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        write_new(path, pem)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unwritable(error) from error
    return EvidenceKey(private)


def _unwritable(error: OSError) -> ConfigurationError:
    return ConfigurationError(
        [f"{VARIABLE}: the evidence key cannot be written there ({error.strerror})"]
    )


def load_key(path: Path) -> EvidenceKey | None:
    """The key of a file; None where there is no file.

    Raises ConfigurationError for a file that others may use, or that holds no such key.
    """
    content = read_private(path, variable=VARIABLE, what="a key", most=MAX_FILE_BYTES)
    if content is None:
        return None
    return EvidenceKey(_private_in(content))


def _private_in(content: bytes) -> Ed25519PrivateKey:
    try:
        private = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            [f"{VARIABLE}: names no ed25519 key in PEM without a password"]
        ) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigurationError([f"{VARIABLE}: names a key of another kind than ed25519"])
    return private
