"""The cryptography: how signed content and a key give a signature. One entry for each scheme."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol


class Key(Protocol):
    """One secret made ready for one scheme."""

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """Whether any of the signatures is this key's of `content`. Never raises; tries all."""
        ...

    def sign(self, content: bytes) -> bytes:
        """This key's signature of `content`."""
        ...


class HmacKey:
    """A keyed hash (RFC 2104). The shared secret both signs and verifies."""

    __slots__ = ("_algorithm", "_secret")

    def __init__(self, secret: bytes, *, algorithm: str) -> None:
        self._secret = secret
        self._algorithm = algorithm

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        """In constant time for each signature, whichever byte differs."""
        expected = hmac.digest(self._secret, content, self._algorithm)
        found = False
        for signature in signatures:
            # No early return: the time must not tell which of several signatures was right.
            found |= hmac.compare_digest(expected, signature)
        return found

    def sign(self, content: bytes) -> bytes:
        """The keyed hash itself."""
        return hmac.digest(self._secret, content, self._algorithm)


SCHEMES: Final[Mapping[str, Callable[[bytes], Key]]] = {
    "hmac-sha1": partial(HmacKey, algorithm="sha1"),
    "hmac-sha256": partial(HmacKey, algorithm="sha256"),
    "hmac-sha512": partial(HmacKey, algorithm="sha512"),
}
