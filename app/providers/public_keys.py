"""Asymmetric keys in every spelling in which providers hand them out.

PEM (key or certificate), base64 of DER, and for Ed25519 the 32 raw bytes in base64, in hex, or
after `whpk_` and `whsk_` (Standard Webhooks 1.0). A private key can also sign; a service has none.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
AnyKey = PublicKey | PrivateKey

LEAST_RSA_BITS: Final = 1024
"""What old provider keys still have; anything shorter can be factored at home."""

WHPK: Final = "whpk_"
WHSK: Final = "whsk_"
_RAW: Final = 32

_PRIME: Final = 2**255 - 19
_EIGHTH: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER: Final = frozenset({0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH})
"""The y of every point whose order divides 8: under such a key one signature fits any message."""

_HEX = re.compile(r"[0-9a-fA-F]{64}")


def load_key(text: str) -> AnyKey:
    """The key a secret's text spells. Raises ValueError with a sentence that quotes nothing."""
    text = text.strip().replace("\\n", "\n")
    try:
        key = _load(text)
    except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error):
        raise ValueError("is no key in PEM, base64 of DER or raw base64") from None
    return _checked(key)


def _load(text: str) -> object:
    if text.startswith("-----BEGIN"):
        return _from_pem(text.encode("ascii"))
    if text.startswith(WHSK):
        seed = _from_base64(text.removeprefix(WHSK))[:_RAW]
        return ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    if _HEX.fullmatch(text):
        return ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    raw = _from_base64(text.removeprefix(WHPK))
    if len(raw) == _RAW:
        return ed25519.Ed25519PublicKey.from_public_bytes(raw)
    return _from_der(raw)


def _from_base64(text: str) -> bytes:
    digits = "".join(text.split())
    return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)


def _from_pem(pem: bytes) -> object:
    if b"CERTIFICATE" in pem:
        return x509.load_pem_x509_certificate(pem).public_key()
    if b"PRIVATE KEY" in pem:
        return load_pem_private_key(pem, password=None)
    return load_pem_public_key(pem)


def _from_der(der: bytes) -> object:
    readers: tuple[Callable[[bytes], object], ...] = (
        load_der_public_key,
        lambda given: load_der_private_key(given, password=None),
        lambda given: x509.load_der_x509_certificate(given).public_key(),
    )
    for read in readers:
        try:
            return read(der)
        except (ValueError, TypeError):
            continue
    raise ValueError("no reader takes it")


def _checked(key: object) -> AnyKey:
    if not isinstance(key, AnyKey):
        raise ValueError("is a key of a kind that no scheme here uses")
    public = public_half(key)
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < LEAST_RSA_BITS:
        raise ValueError(f"is an RSA key of fewer than {LEAST_RSA_BITS} bits")
    if isinstance(public, ed25519.Ed25519PublicKey):
        _refuse_small_order(public.public_bytes_raw())
    return key


def _refuse_small_order(raw: bytes) -> None:
    y = int.from_bytes(raw, "little") % 2**255
    if y >= _PRIME or y in _SMALL_ORDER:
        raise ValueError("is an Ed25519 key under which anyone could sign")


def public_half(key: AnyKey) -> PublicKey:
    """The half that verifies."""
    return key.public_key() if isinstance(key, PrivateKey) else key
