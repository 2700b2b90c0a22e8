"""One way to write a value as bytes, so that equal knowledge gives equal bytes.

Leaves out: floats. Every number that reaches this module is an integer; money is a decimal string.
The form is that of RFC 8785 for the values used here: sorted keys, no blanks, UTF-8.
RFC 8785 sorts by UTF-16 code units; all keys here are ASCII, for which the orders agree.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, NoReturn

_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def canonical_json(value: Any) -> bytes:
    """The canonical JSON bytes of dicts, lists, strings, integers, booleans and None.

    Raises TypeError on a float or anything else that has no single written form.
    """
    _check(value)
    # Half a surrogate pair has no UTF-8; its backslash form is the JSON escape of the same text.
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def fingerprint(value: Any) -> str:
    """`sha256:` and the hex digest of the canonical JSON."""
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


def _check(value: Any) -> None:
    """Raises TypeError for what has no single written form. Most values are plain; those that are
    subclasses of a plain kind are written as that kind is."""
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
