"""Canonical JSON: equal values give equal bytes.

Leaves out: floats. Every number here is an integer; money is a decimal string. The form is RFC 8785
(JCS) for these values: sorted keys, no blanks, UTF-8. RFC 8785 sorts keys by UTF-16 code units,
Python by code points. The result is the same, because all keys here are ASCII.
"""

import hashlib
import json
from typing import Any, Final, NoReturn

_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def canonical_json(value: Any) -> bytes:
    """Encode dicts, lists, strings, integers, booleans and None as canonical JSON.

    Raises TypeError for a float or any other type that has no canonical form.
    """
    _check(value)
    # Half a surrogate pair has no UTF-8; its backslash form is the JSON escape of the same text.
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def fingerprint(value: Any) -> str:
    """Return `sha256:` and the hex digest of the canonical JSON."""
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


_OF_VALUES: Final = json.JSONEncoder(
    separators=(",", ":"),
    ensure_ascii=False,
    default=lambda value: [getattr(value, name) for name in value.__slots__],
)


def values_json(value: Any) -> str:
    """Encode a value as JSON without blanks. A slotted dataclass becomes a list of its values."""
    return _OF_VALUES.encode(value)


def _check(value: Any) -> None:
    """Raise TypeError for a value without a canonical form."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                _refuse(key)
            if type(item) not in _PLAIN:
                _check(item)
    elif isinstance(value, list | tuple):
        for item in value:
            if type(item) not in _PLAIN:
                _check(item)
    elif not isinstance(value, str | int | None):
        _refuse(value)


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} has no canonical written form")
