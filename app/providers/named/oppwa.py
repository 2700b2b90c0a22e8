"""OPPWA (Peach Payments and other gateways): a body in AES-256-GCM.

Source: the platform's page "Webhooks: integration and decryption". No time is signed.
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.core.reading import Unreadable
from app.providers import kit
from app.providers.kit_setup import Setup
from app.providers.request import Incoming, Refusal
from reconcile.instants import Instant

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
"""Length in bytes of a whole tag. A shorter tag is easier to guess."""
IV_BYTES: Final = 12

_WRAPPED = re.compile(rb'\s*\{\s*"encryptedBody"\s*:\s*"([0-9A-Fa-f]*)"\s*\}\s*')

_MALFORMED = kit.mismatch(
    f"The initialization vector is not {IV_BYTES} bytes of hex, the tag is not {TAG_BYTES}, or "
    "the body is not hex."
)
_MISMATCH = kit.mismatch(
    "No configured key decrypts the body under its tag: the key differs, or the request was "
    "changed on its way."
)


class Oppwa(kit.NamedVerifier):
    """Verifier that tries to decrypt a request with each of the keys, newest first."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys
        self._iv = kit.SingleHeader("x-initialization-vector")
        self._tag = kit.SingleHeader("x-authentication-tag")

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        opened = self._open(request)
        return opened if isinstance(opened, Refusal) else None

    def payload(self, request: Incoming) -> bytes:
        opened = self._open(request)
        if isinstance(opened, Refusal):
            raise Unreadable("the body cannot be decrypted")
        return opened

    def _open(self, request: Incoming) -> bytes | Refusal:
        iv, tag = self._iv.value(request.headers), self._tag.value(request.headers)
        if isinstance(iv, Refusal):
            return iv
        if isinstance(tag, Refusal):
            return tag
        wrapped = _WRAPPED.fullmatch(request.body)
        ciphertext = wrapped[1] if wrapped else request.body.strip()
        try:
            nonce = _exactly(IV_BYTES, iv)
            sealed = kit.from_hex(ciphertext) + _exactly(TAG_BYTES, tag)
        except ValueError:
            return _MALFORMED
        for key in self._keys:
            try:
                return AESGCM(key).decrypt(nonce, sealed, None)
            except InvalidTag:
                continue
        return _MISMATCH

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        """Build a request with an encrypted body."""
        key = self._keys[0]
        content = f"{event_id}.{now}.".encode() + body
        nonce = hmac.digest(key, content, "sha256")[:IV_BYTES]
        sealed = AESGCM(key).encrypt(nonce, body, None)
        headers = [
            ("content-type", "text/plain"),
            (self._iv.name, nonce.hex().upper()),
            (self._tag.name, sealed[-TAG_BYTES:].hex().upper()),
        ]
        return kit.Signed(headers, sealed[:-TAG_BYTES].hex().upper().encode(), url)


def oppwa(source: str, options: Mapping[str, object], secrets: kit.Secrets) -> Oppwa:
    """Compile the scheme. The listed secrets are keys of 64 hex digits."""
    setup = Setup(source, options, secrets)
    keys = setup.listed(_key)
    if not secrets.listed:
        setup.problem("has no secret; give the listener's key, 64 hex digits")
    setup.conclude()
    return Oppwa(keys)


SCHEME: Final = kit.NamedScheme(make=oppwa, wraps=True, encoding="hex")


def _key(secret: str) -> bytes:
    try:
        return _exactly(KEY_BYTES, secret.encode())
    except ValueError:
        raise ValueError(f"is not a key of {2 * KEY_BYTES} hex digits") from None


def _exactly(length: int, text: bytes) -> bytes:
    value = kit.from_hex(text)
    if len(value) != length:
        raise ValueError("of another length")
    return value
