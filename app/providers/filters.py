"""What a template may do with a reference: `{body|sha256_hex}`. One entry for each filter."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from app.providers.forms import php_urlencode

Filter = Callable[[bytes], bytes]


def _hex_digest(value: bytes, *, algorithm: str) -> bytes:
    return hashlib.new(algorithm, value, usedforsecurity=False).hexdigest().encode("ascii")


def _base64_digest(value: bytes, *, algorithm: str) -> bytes:
    return base64.b64encode(hashlib.new(algorithm, value, usedforsecurity=False).digest())


def _crc32(value: bytes) -> bytes:
    return b"%d" % binascii.crc32(value)


def _last_segment(value: bytes) -> bytes:
    return value.rpartition(b"/")[2]


_DIGESTS = ("md5", "sha1", "sha256", "sha384", "sha512")

FILTERS: Final[Mapping[str, Filter]] = {
    "upper": bytes.upper,
    "lower": bytes.lower,
    "strip": bytes.strip,
    "urlencode": php_urlencode,
    "base64": base64.b64encode,
    "crc32": _crc32,
    "last_segment": _last_segment,
    **{f"{name}_hex": partial(_hex_digest, algorithm=name) for name in _DIGESTS},
    **{f"{name}_base64": partial(_base64_digest, algorithm=name) for name in ("sha256", "sha512")},
}


def compile_filters(names: tuple[str, ...]) -> tuple[Filter, ...]:
    """The filters of these names. Raises ValueError with a sentence."""
    for name in names:
        if name not in FILTERS:
            raise ValueError(f"has an unknown filter; known are {', '.join(FILTERS)}")
    return tuple(FILTERS[name] for name in names)
