"""Which texts are one half of a key pair, so that none of them is taken for a shared secret.

A public key is published. As the secret of a keyed hash it would let everyone sign.
"""

from __future__ import annotations

from typing import Final

from app.providers.asymmetric import load_key
from app.providers.encodings import SECRET_ENCODINGS, WHPK, WHSK

_PEM: Final = "-----BEGIN"

_BARE: Final = frozenset({32, 64})
"""Lengths in bytes of ed25519 keys as they are. A shared secret may well be as long."""


def refuse_key_pair(secret: str) -> None:
    """Raises ValueError, with words that show nothing of it, where a shared secret is a key of a
    pair: `whpk_` or `whsk_`, PEM of any kind, a JSON Web Key, or a public key's DER in base64."""
    text = secret.strip()
    if text.startswith((WHPK, WHSK)) or _PEM in text or _is_bare_key(text):
        raise ValueError(
            "is one half of a key pair, whose public half anyone may know, so that anyone could"
            " sign with it; write the secret that only the provider and you have"
        )


def _is_bare_key(text: str) -> bool:
    try:
        material = SECRET_ENCODINGS["public_key"](text)
        if len(material) in _BARE:
            return False
        load_key(material)
    except ValueError:
        return False
    return True
