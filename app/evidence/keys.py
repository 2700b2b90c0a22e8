"""The evidence key: one ed25519 key in a file, which signs checkpoints and bundles.

The private half is read, used and never shown: no function here returns it, and its values have
no text of their own.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from app.errors import ConfigurationError

VARIABLE: Final = "TALLYHOOK_EVIDENCE__KEY_FILE"
"""The setting that names the file."""

MAX_FILE_BYTES: Final = 4096
"""A PEM of this kind has 119; what is much larger is another file."""

_MODE: Final = 0o600
_OTHERS: Final = 0o007


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
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(error) from error
    try:
        _write_whole(path, pem)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unwritable(error) from error
    return EvidenceKey(private)


def _unwritable(error: OSError) -> ConfigurationError:
    return ConfigurationError(
        [f"{VARIABLE}: the evidence key cannot be written there ({error.strerror})"]
    )


def _write_whole(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(beside, path)  # refuses to replace, which a rename does not
    finally:
        os.unlink(beside)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_key(path: Path) -> EvidenceKey | None:
    """The key of a file; None where there is no file.

    Raises ConfigurationError for a file that others may use, or that holds no such key.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError([f"{VARIABLE}: cannot be read ({error.strerror})"]) from error
    if mode & _OTHERS:
        raise ConfigurationError(
            [f"{VARIABLE}: names a key that everyone may use (mode {mode:o}); chmod 600 it"]
        )
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
