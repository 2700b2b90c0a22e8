"""The cryptography: how signed content and a key give a signature. One entry for each scheme."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from app.providers.asymmetric import ASYMMETRIC_SCHEMES


class Key(Protocol):
    """One secret made ready for one scheme.

    secret  the shared secret's bytes, what `{secret}` stands for; empty where there is none
    """

    secret: bytes

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Whether any of the signatures is this key's of `content`. Never raises; tries all."""
        ...

    def sign(self, content: bytes) -> bytes:
        """This key's signature of `content`."""
        ...


def _equals_any(expected: bytes, signatures: Sequence[bytes]) -> bool:
    """In constant time for each signature, whichever byte differs."""
    found = False
    for signature in signatures:
        # No early return: the time must not tell which of several signatures was right.
        found |= hmac.compare_digest(expected, signature)
    return found


class HmacKey:
    """A keyed hash (RFC 2104). The shared secret both signs and verifies."""

    __slots__ = ("_begun", "secret")

    def __init__(self, secret: bytes, *, algorithm: str) -> None:
        self.secret = secret
        self._begun = hmac.new(secret, digestmod=algorithm)

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Whether one of them is the keyed hash of `content`."""
        return _equals_any(self.sign(content), signatures)

    def sign(self, content: bytes) -> bytes:
        """The keyed hash itself."""
        code = self._begun.copy()
        code.update(content)
        return code.digest()


class HashKey:
    """A plain hash of content that holds the secret. Weaker than a keyed one, and still in use."""

    __slots__ = ("_algorithm", "secret")

    def __init__(self, secret: bytes, *, algorithm: str) -> None:
        self.secret = secret
        self._algorithm = algorithm

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Whether one of them is the hash of `content`."""
        return _equals_any(self.sign(content), signatures)

    def sign(self, content: bytes) -> bytes:
        """The hash itself."""
        return hashlib.new(self._algorithm, content, usedforsecurity=False).digest()


class TokenKey:
    """A static word: the request brings the secret itself. It proves nothing about the body."""

    __slots__ = ("secret",)

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Whether one of them is the secret."""
        return _equals_any(self.secret, signatures)

    def sign(self, content: bytes) -> bytes:
        """The secret itself."""
        return self.secret


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to sign.

    make        the secret's bytes to a key; ValueError with a sentence for what is none
    covers      whether it signs content at all
    asymmetric  whether the secret is a public key
    """

    make: Callable[[bytes], Key]
    covers: bool = True
    asymmetric: bool = False


def _hashed(make: type[HmacKey] | type[HashKey], *algorithms: str) -> dict[str, Scheme]:
    word = "hmac" if make is HmacKey else "hash"
    return {f"{word}-{name}": Scheme(partial(make, algorithm=name)) for name in algorithms}


_DIGESTS: Final = ("md5", "sha1", "sha256", "sha384", "sha512")

SCHEMES: Final[Mapping[str, Scheme]] = {
    **_hashed(HmacKey, *_DIGESTS),
    **_hashed(HashKey, *_DIGESTS),
    "token": Scheme(TokenKey, covers=False),
    "basic": Scheme(TokenKey, covers=False),
    **{name: Scheme(make, asymmetric=True) for name, make in ASYMMETRIC_SCHEMES.items()},
}

TOKENS: Final = frozenset({"token", "basic"})
"""Schemes under which a request brings the secret itself."""

UNSIGNED: Final = "none"
NAMED: Final = "named:"
