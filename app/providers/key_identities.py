"""What tells a source's keys from another's: the keys themselves, however they are written.

Two sources that verify with one key take one delivery for two. Keys are compared as what they are:
a shared secret by its bytes, a public key by its numbers. Nothing here judges a key: one that
cannot be read has no identity, and whoever compiles it says what is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app.providers.encodings import SECRET_ENCODINGS
from app.providers.fingerprints import public_key, public_pem
from app.providers.keys import scheme_of
from app.providers.schemes import NAMED, UNSIGNED
from app.providers.sections import Profile

_NAMED_ENCODINGS: Final[Mapping[str, tuple[str, str]]] = {
    "oppwa": ("", "hex"),
    "rfc9421": ("hmac:", "base64"),
}
"""What marks a shared secret of a named scheme, and how it is written; others are texts."""

_BINDING: Final[Mapping[str, str]] = {"paypal": "webhook_id"}
"""The named part that stands for the whole: it is signed with every delivery, and one account's."""


def key_identities(
    profile: Profile, secrets: Sequence[str] | Mapping[str, str]
) -> frozenset[bytes]:
    """A digest for each key; equal ones are the same key, under whatever profile."""
    if profile.signature.mac == UNSIGNED:
        return frozenset()
    named = secrets if isinstance(secrets, Mapping) else {}
    part = _BINDING.get(profile.signature.mac.removeprefix(NAMED))
    texts = list(named.values()) if named else list(secrets)
    if part is not None:
        texts = [text for name, text in named.items() if name == part]
    return frozenset(digest for text in texts for digest in _identities(profile, text))


def _identities(profile: Profile, secret: str) -> Iterator[bytes]:
    public = public_key(profile, secret) or _json_web_key(profile, secret)
    if public is not None:
        yield _digest(b"public", public)
        return
    # As the text that it is too: one secret that two providers read in two ways was still copied.
    bare = secret.strip().removeprefix("whsec_").rstrip("=")
    yield _digest(b"shared", bare.encode("utf-8", "surrogatepass"))
    decoded = _decoded(profile, secret)
    if decoded:
        yield _digest(b"shared", decoded)


def _json_web_key(profile: Profile, secret: str) -> bytes | None:
    """Of a named scheme, a key written as JSON."""
    if not (profile.signature.mac.startswith(NAMED) and secret.lstrip().startswith("{")):
        return None
    return public_pem(secret, encoding="public_key")


def _decoded(profile: Profile, secret: str) -> bytes | None:
    mac = profile.signature.mac
    if mac.startswith(NAMED):
        mark, encoding = _NAMED_ENCODINGS.get(mac.removeprefix(NAMED), ("", "text"))
        secret = secret.removeprefix(mark)
    else:
        encoding = scheme_of(profile, secret)[1]
    try:
        return SECRET_ENCODINGS[encoding](secret)
    except ValueError:
        return None


def _digest(kind: bytes, key: bytes) -> bytes:
    return hashlib.sha256(kind + b" " + key).digest()
