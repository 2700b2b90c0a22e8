"""Encode values as canonical JSON (RFC 8785), so that equal values give equal bytes.

Numbers are integers, and money is a decimal string. Floats are refused. Keys are ASCII, so Python's
order equals the RFC's order by UTF-16 code units.
"""

import hashlib
import json
from typing import Any, Final, NoReturn

_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def canonical_json(value: Any) -> bytes:
    """Encode a value as canonical JSON.

    The value may consist of dicts, lists, strings, integers, booleans and None. Raises TypeError
    for a float or any other type.
    """
    _check(value)
    # Half a surrogate pair has no UTF-8; its backslash form is the JSON escape of the same text.
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def fingerprint(value: Any) -> str:
    """Return `sha256:` and the hex digest of the value's canonical JSON."""
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


_OF_VALUES: Final = json.JSONEncoder(
    separators=(",", ":"),
    ensure_ascii=False,
    default=lambda value: [getattr(value, name) for name in value.__slots__],
)


def values_json(value: Any) -> str:
    """Encode a value as JSON without blanks. A dataclass with slots becomes a list of its field
    values."""
    return _OF_VALUES.encode(value)


def _check(value: Any) -> None:
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
