"""Schemes with two keys: RSA, ECDSA and Ed25519. We hold the provider's public half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from app.errors import ConfigurationError
from app.providers.public_keys import PrivateKey, load_key, public_half

_P256_BYTES: Final = 32


class AsymmetricKey:
    """A public key made ready for one scheme; with the private half it can sign too.

    arguments  what the key's own verify takes after signature and content
    raw        whether the signature is r and s side by side (IEEE P1363), else DER
    """

    secret = b""

    def __init__(
        self, text: bytes, *, kind: type[Any], word: str, arguments: tuple[Any, ...], raw: bool
    ) -> None:
        key = load_key(text.decode("utf-8"))
        self._public: Any = public_half(key)
        if not isinstance(self._public, kind):
            raise ValueError(f"is a key of another kind; {word} is needed")
        if kind is ec.EllipticCurvePublicKey and not isinstance(self._public.curve, ec.SECP256R1):
            raise ValueError("is not on the curve P-256")
        self._private: Any = key if isinstance(key, PrivateKey) else None
        self._arguments = arguments
        self._raw = raw

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Nothing here is secret, so the first that fits settles it."""
        return any(self._fits(content, signature) for signature in signatures)

    def _fits(self, content: bytes, signature: bytes) -> bool:
        try:
            given = _to_der(signature) if self._raw else signature
            self._public.verify(given, content, *self._arguments)
        except (InvalidSignature, ValueError):
            return False
        return True

    def sign(self, content: bytes) -> bytes:
        """Raises ConfigurationError where only the public half is there."""
        if self._private is None:
            raise ConfigurationError(["this source has only a public key, which cannot sign"])
        signature: bytes = self._private.sign(content, *self._arguments)
        return _from_der(signature) if self._raw else signature


def _to_der(signature: bytes) -> bytes:
    if len(signature) != 2 * _P256_BYTES:
        raise ValueError("not r and s of 32 bytes each")
    r, s = signature[:_P256_BYTES], signature[_P256_BYTES:]
    return encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))


def _from_der(signature: bytes) -> bytes:
    r, s = decode_dss_signature(signature)
    return r.to_bytes(_P256_BYTES, "big") + s.to_bytes(_P256_BYTES, "big")


def rsa_pkcs1(digest: hashes.HashAlgorithm) -> Callable[[bytes], AsymmetricKey]:
    """RSASSA-PKCS1-v1_5 (RFC 8017, section 8.2)."""
    arguments = (padding.PKCS1v15(), digest)
    return lambda text: AsymmetricKey(
        text, kind=rsa.RSAPublicKey, word="RSA", arguments=arguments, raw=False
    )


def rsa_pss(digest: hashes.HashAlgorithm) -> Callable[[bytes], AsymmetricKey]:
    """RSASSA-PSS (RFC 8017, section 8.1), the salt as long as the digest."""
    pss = padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
    return lambda text: AsymmetricKey(
        text, kind=rsa.RSAPublicKey, word="RSA", arguments=(pss, digest), raw=False
    )


def ecdsa_p256(*, raw: bool) -> Callable[[bytes], AsymmetricKey]:
    """ECDSA on P-256 with SHA-256 (FIPS 186-5)."""
    arguments = (ec.ECDSA(hashes.SHA256()),)
    return lambda text: AsymmetricKey(
        text, kind=ec.EllipticCurvePublicKey, word="EC", arguments=arguments, raw=raw
    )


def ed25519_key(text: bytes) -> AsymmetricKey:
    """Ed25519 (RFC 8032, section 5.1)."""
    return AsymmetricKey(
        text, kind=ed25519.Ed25519PublicKey, word="Ed25519", arguments=(), raw=False
    )
