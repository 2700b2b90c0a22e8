"""Compute and verify signatures."""

import hashlib
import hmac
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

from app.core.errors import ConfigurationError

# --- public-key signatures ------------------------------------------------------------------------


AnyPublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
AnyPrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Half = TypeVar("Half", bound=AnyPrivateKey)

LEAST_RSA_BITS: Final = 1024
"""Minimum size of an RSA modulus in bits.

One provider, Woovi, still publishes a key of this size.
"""

_P = 2**255 - 19
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER_Y: Final = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8})


class KeyPair(NamedTuple):
    """An asymmetric key as it is configured. `private` is None if only the public half was
    given."""

    public: AnyPublicKey
    private: AnyPrivateKey | None


KEYS_REMEMBERED: Final = 64
"""Maximum number of cached keys; reading a private RSA key takes 50 ms."""


@lru_cache(maxsize=KEYS_REMEMBERED)
def load_key(material: bytes) -> KeyPair:
    """Load the key in these bytes. Raise ValueError without revealing the key."""
    try:
        key = _parse(material)
    except (ValueError, TypeError, RecursionError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, AnyPrivateKey):
        pair = KeyPair(key.public_key(), key)
    elif isinstance(key, AnyPublicKey):
        pair = KeyPair(key, None)
    else:
        raise ValueError("is not a public or private key in PEM, JWK or DER")
    public = pair.public
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < LEAST_RSA_BITS:
        raise ValueError(f"is an RSA key of fewer than {LEAST_RSA_BITS} bits")
    if isinstance(public, ed25519.Ed25519PublicKey):
        y = int.from_bytes(public.public_bytes_raw(), "little") & (2**255 - 1)  # top bit: sign of x
        if y % _P in _SMALL_ORDER_Y:
            raise ValueError("is an ed25519 key of small order, under which forged signatures pass")
    return pair


def _parse(material: bytes) -> object:
    # This comes first: a raw key may begin with any byte, and no other form is this short.
    if len(material) == 32:
        return ed25519.Ed25519PublicKey.from_public_bytes(material)
    if len(material) == 64:  # the seed, then the public half, as NaCl writes a private key
        return ed25519.Ed25519PrivateKey.from_private_bytes(material[:32])
    # Certificates and JSON Web Keys are rare, and importing their parsers takes 5 % of a start.
    if material.startswith(b"-----BEGIN CERTIFICATE-----"):
        from cryptography.x509 import load_pem_x509_certificate

        return load_pem_x509_certificate(material).public_key()
    if material.startswith(b"-----BEGIN"):
        if b"PRIVATE KEY-----" in material:
            return serialization.load_pem_private_key(material, password=None)
        return serialization.load_pem_public_key(material)
    if material.lstrip().startswith(b"{"):
        import jwt

        try:
            return jwt.PyJWK(json.loads(material)).key
        except (jwt.PyJWTError, KeyError) as error:  # a missing member
            raise ValueError from error
    return serialization.load_der_public_key(material)


MOST_SIGNATURES: Final = 16
"""Maximum number of signatures tried with one key."""


class AsymmetricKey(ABC):
    """One asymmetric key prepared for one signature scheme. The class `HmacKey` does the same for
    shared secrets."""

    secret = b""

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Check whether this key made one of the signatures. No error is raised."""
        for signature in signatures[:MOST_SIGNATURES]:
            try:
                self._verify(signature, content)
            except (InvalidSignature, ValueError):
                continue
            return True  # no secret is involved, so the time may reveal which signature was right
        return False

    @abstractmethod
    def _verify(self, signature: bytes, content: bytes) -> None:
        """Raise InvalidSignature or ValueError unless the signature matches."""

    @abstractmethod
    def sign(self, content: bytes) -> bytes:
        """Return the content's signature by this key.

        Raise ConfigurationError if only the public half is known.
        """


class RsaKey(AsymmetricKey):
    """Key for RSA signatures (RFC 8017). Creating it raises ValueError for any other kind of
    key."""

    def __init__(
        self,
        material: bytes,
        *,
        algorithm: hashes.HashAlgorithm,
        scheme: padding.PKCS1v15 | padding.PSS,
    ) -> None:
        public, private = load_key(material)
        if not isinstance(public, rsa.RSAPublicKey):
            raise ValueError("is not an RSA key")
        self._public, self._private = public, cast(rsa.RSAPrivateKey | None, private)
        self._algorithm, self._padding = algorithm, scheme

    def _verify(self, signature: bytes, content: bytes) -> None:
        self._public.verify(signature, content, self._padding, self._algorithm)

    def sign(self, content: bytes) -> bytes:
        return _private(self._private).sign(content, self._padding, self._algorithm)


class EcdsaKey(AsymmetricKey):
    """Key for ECDSA signatures (FIPS 186-5). Raises ValueError for any other key.

    With `raw`, a signature is r and s side by side (RFC 9421), and not DER.
    """

    def __init__(
        self,
        material: bytes,
        *,
        curve: type[ec.EllipticCurve],
        algorithm: hashes.HashAlgorithm,
        raw: bool,
    ) -> None:
        public, private = load_key(material)
        if not isinstance(public, ec.EllipticCurvePublicKey) or type(public.curve) is not curve:
            raise ValueError(f"is not a key of the curve {curve.name}")
        self._public, self._private = public, cast(ec.EllipticCurvePrivateKey | None, private)
        self._algorithm = ec.ECDSA(algorithm)
        self._half = (public.key_size + 7) // 8 if raw else None

    def _verify(self, signature: bytes, content: bytes) -> None:
        if self._half is not None:
            if len(signature) != 2 * self._half:
                raise InvalidSignature
            r, s = (int.from_bytes(p) for p in (signature[: self._half], signature[self._half :]))
            signature = utils.encode_dss_signature(r, s)
        self._public.verify(signature, content, self._algorithm)

    def sign(self, content: bytes) -> bytes:
        signature = _private(self._private).sign(content, self._algorithm)
        if self._half is None:
            return signature
        return b"".join(n.to_bytes(self._half) for n in utils.decode_dss_signature(signature))


class Ed25519Key(AsymmetricKey):
    """Key for Ed25519 signatures (RFC 8032). Raises ValueError for others, or one of small
    order."""

    def __init__(self, material: bytes) -> None:
        public, private = load_key(material)
        if not isinstance(public, ed25519.Ed25519PublicKey):
            raise ValueError("is not an ed25519 key")
        self._public, self._private = public, cast(ed25519.Ed25519PrivateKey | None, private)

    def _verify(self, signature: bytes, content: bytes) -> None:
        self._public.verify(signature, content)

    def sign(self, content: bytes) -> bytes:
        return _private(self._private).sign(content)


def _private(half: Half | None) -> Half:
    if half is None:
        raise ConfigurationError(
            ["only the public half of the key is configured, so nothing can be signed with it"]
        )
    return half


_P256, _P384 = ec.SECP256R1, ec.SECP384R1
_PSS_SHA256 = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
_PSS_SHA512 = padding.PSS(mgf=padding.MGF1(hashes.SHA512()), salt_length=64)

ASYMMETRIC_SCHEMES: Final[Mapping[str, Callable[[bytes], AsymmetricKey]]] = {
    "rsa-pkcs1-sha1": partial(RsaKey, algorithm=hashes.SHA1(), scheme=padding.PKCS1v15()),  # noqa: S303
    "rsa-pkcs1-sha256": partial(RsaKey, algorithm=hashes.SHA256(), scheme=padding.PKCS1v15()),
    "rsa-pkcs1-sha512": partial(RsaKey, algorithm=hashes.SHA512(), scheme=padding.PKCS1v15()),
    "rsa-pss-sha256": partial(RsaKey, algorithm=hashes.SHA256(), scheme=_PSS_SHA256),
    "rsa-pss-sha512": partial(RsaKey, algorithm=hashes.SHA512(), scheme=_PSS_SHA512),
    "ecdsa-p256-sha256": partial(EcdsaKey, curve=_P256, algorithm=hashes.SHA256(), raw=False),
    "ecdsa-p256-sha256-raw": partial(EcdsaKey, curve=_P256, algorithm=hashes.SHA256(), raw=True),
    "ecdsa-p384-sha384-raw": partial(EcdsaKey, curve=_P384, algorithm=hashes.SHA384(), raw=True),
    "ed25519": Ed25519Key,
}


# --- the cryptography -----------------------------------------------------------------------------


class Key(Protocol):
    """One secret or key prepared for one signature scheme."""

    secret: bytes
    """Bytes of the shared secret, if any."""

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Check whether this key made one of the signatures. No error is raised."""
        ...

    def sign(self, content: bytes) -> bytes:
        """Return the content's signature by this key."""
        ...


def _equals_any(expected: bytes, signatures: Sequence[bytes]) -> bool:
    found = False
    for signature in signatures:
        # No early return: the duration must not reveal which of several signatures was right.
        found |= hmac.compare_digest(expected, signature)
    return found


class HmacKey:
    """Key for a keyed hash (HMAC, RFC 2104). The shared secret both signs and verifies."""

    __slots__ = ("_begun", "secret")

    def __init__(self, secret: bytes, *, algorithm: str) -> None:
        self.secret = secret
        self._begun = hmac.new(secret, digestmod=algorithm)

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        return _equals_any(self.sign(content), signatures)

    def sign(self, content: bytes) -> bytes:
        code = self._begun.copy()
        code.update(content)
        return code.digest()


class HashKey:
    """Key for a plain hash of content that contains the secret.

    Such a hash is weaker than HMAC, but some providers use one.
    """

    __slots__ = ("_algorithm", "secret")

    def __init__(self, secret: bytes, *, algorithm: str) -> None:
        self.secret = secret
        self._algorithm = algorithm

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        return _equals_any(self.sign(content), signatures)

    def sign(self, content: bytes) -> bytes:
        return hashlib.new(self._algorithm, content, usedforsecurity=False).digest()


class TokenKey:
    """Static secret that the request itself contains. The secret proves nothing about the body."""

    __slots__ = ("secret",)

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        return _equals_any(self.secret, signatures)

    def sign(self, content: bytes) -> bytes:
        return self.secret


@dataclass(frozen=True, slots=True)
class Scheme:
    """One signature scheme."""

    make: Callable[[bytes], Key]
    """Returns a key from the secret's bytes, or raises ValueError."""
    covers: bool = True
    """True if the signature covers content. If not, the request contains the secret itself."""
    asymmetric: bool = False
    """True if the secret is a public key."""
    encoding: str = "hex"
    """Name of the signature's encoding if the profile states none."""


def _hashed(make: type[HmacKey] | type[HashKey], *algorithms: str) -> dict[str, Scheme]:
    word = "hmac" if make is HmacKey else "hash"
    return {f"{word}-{name}": Scheme(partial(make, algorithm=name)) for name in algorithms}


_DIGESTS: Final = ("md5", "sha1", "sha256", "sha384", "sha512")

SCHEMES: Final[Mapping[str, Scheme]] = {
    **_hashed(HmacKey, *_DIGESTS),
    **_hashed(HashKey, *_DIGESTS),
    "token": Scheme(TokenKey, covers=False, encoding="text"),
    "basic": Scheme(TokenKey, covers=False, encoding="base64"),
    **{name: Scheme(make, asymmetric=True) for name, make in ASYMMETRIC_SCHEMES.items()},
}

TOKENS: Final = frozenset(name for name, scheme in SCHEMES.items() if not scheme.covers)

UNSIGNED: Final = "none"
