"""Text forms of signatures and secrets, one entry each.

A decoder raises ValueError for all but the canonical spelling.
"""

import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

WHSEC: Final = "whsec_"
"""Prefix of a shared secret of Standard Webhooks 1.0."""

WHPK: Final = "whpk_"
WHSK: Final = "whsk_"
"""Prefixes of ed25519 keys in Standard Webhooks 1.0."""

_SEED_BYTES: Final = 32
_RAW_KEY_IN_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Encoding:
    """Text form of a signature: a decoder from ASCII text to bytes, and an encoder back."""

    decode: Callable[[bytes], bytes]
    encode: Callable[[bytes], bytes]


def _base64(text: bytes) -> bytes:
    value = binascii.a2b_base64(text)
    # The decoder skips other characters, and ignores unused bits of the last digit.
    if _to_base64(value) != text:
        raise ValueError("not the canonical base64 of these bytes")
    return value


def _to_base64(value: bytes) -> bytes:
    return binascii.b2a_base64(value, newline=False)


def _base64_loose(text: bytes) -> bytes:
    return _base64(text if b"=" in text else text + b"=" * (-len(text) % 4))


ENCODINGS: Final[Mapping[str, Encoding]] = {
    "hex": Encoding(binascii.unhexlify, binascii.hexlify),
    "base64": Encoding(_base64, _to_base64),
    "text": Encoding(bytes, bytes),
}


def _base64_secret(secret: str) -> bytes:
    return _base64_loose(secret.encode("ascii"))


def _whsec_secret(secret: str) -> bytes:
    return _base64_secret(secret.removeprefix(WHSEC))


def _whsec_or_text_secret(secret: str) -> bytes:
    return _whsec_secret(secret) if secret.startswith(WHSEC) else secret.encode("utf-8")


def _key_material(secret: str) -> bytes:
    text = secret.strip()
    if text.startswith("-----BEGIN"):
        return text.replace("\\n", "\n").encode("ascii")
    if text.startswith("{"):
        return text.encode("utf-8")
    if _RAW_KEY_IN_HEX.fullmatch(text):
        return binascii.unhexlify(text)
    if text.startswith(WHSK):
        # A private key may be written as its seed alone. Nothing after the seed is read.
        return _base64_secret(text.removeprefix(WHSK)).ljust(2 * _SEED_BYTES, b"\0")
    return _base64_secret("".join(text.removeprefix(WHPK).split()))


SECRET_ENCODINGS: Final[Mapping[str, Callable[[str], bytes]]] = {
    "text": str.encode,
    "hex": binascii.unhexlify,
    "base64": _base64_secret,
    "whsec": _whsec_secret,
    "whsec_or_text": _whsec_or_text_secret,
    "public_key": _key_material,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Label, prefix and separator of a signature; None if not stated."""

    label: bytes | None
    prefix: bytes | None
    separator: bytes | None


@dataclass(frozen=True, slots=True)
class SignatureFormat:
    """One way to write signatures in a header's value."""

    needs: frozenset[str]
    """Parts of `Layout` that this way requires."""
    entries: Callable[[Layout, bytes], list[bytes]]
    """Finds the signatures in a header's value, undecoded, with the layout's label if it has
    one."""
    write: Callable[[Layout, bytes], bytes]
    """Returns the header's value for an encoded signature."""


def _prefixed(layout: Layout, value: bytes) -> list[bytes]:
    prefix, value = layout.prefix or b"", value.strip()
    return [value[len(prefix) :]] if value.startswith(prefix) else []


def _scheme(layout: Layout, value: bytes) -> list[bytes]:
    word, _, text = value.strip().partition(b" ")
    return [text.strip()] if word.lower() == (layout.prefix or b"").lower() else []


def _key_values(layout: Layout, value: bytes) -> list[bytes]:
    pairs = (entry.strip().partition(b"=") for entry in value.split(layout.separator))
    return [text.lstrip() for key, _, text in pairs if key.rstrip() == layout.label]


def _listed(layout: Layout, value: bytes) -> list[bytes]:
    pairs = [entry.partition(b",") for entry in value.split()]
    return [text for label, _, text in pairs if label == layout.label]


def _maybe_listed(layout: Layout, value: bytes) -> list[bytes]:
    pairs = [entry.rpartition(b",") for entry in value.split()]
    return [text for label, _, text in pairs if label in (b"", layout.label)]


def _with_prefix(layout: Layout, text: bytes) -> bytes:
    return (layout.prefix or b"") + text


def _with_label(layout: Layout, text: bytes) -> bytes:
    return (layout.label or b"") + b"," + text


FORMATS: Final[Mapping[str, SignatureFormat]] = {
    # <signature>
    "plain": SignatureFormat(
        frozenset(), lambda layout, value: [value.strip()], lambda layout, text: text
    ),
    # sha256=<signature>; a value without the prefix is no signature
    "prefix": SignatureFormat(frozenset({"prefix"}), _prefixed, _with_prefix),
    # sha256=<signature>, or a signature without the prefix
    "optional_prefix": SignatureFormat(
        frozenset({"prefix"}),
        lambda layout, value: [value.strip().removeprefix(layout.prefix or b"")],
        _with_prefix,
    ),
    # Basic <signature>; the word in any case (RFC 9110, section 11.1)
    "scheme": SignatureFormat(
        frozenset({"prefix"}), _scheme, lambda layout, text: (layout.prefix or b"") + b" " + text
    ),
    # t=1614265330,v1=<signature>,v1=<signature>
    "kv": SignatureFormat(
        frozenset({"label", "separator"}),
        _key_values,
        lambda layout, text: (layout.label or b"") + b"=" + text,
    ),
    # v1,<signature> v1,<signature>
    "list": SignatureFormat(frozenset({"label"}), _listed, _with_label),
    # v1,<signature> v1,<signature>; an entry without a label is ours too
    "optional_list": SignatureFormat(frozenset({"label"}), _maybe_listed, _with_label),
}
