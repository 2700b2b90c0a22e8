"""One way to write a value as bytes, so that equal knowledge gives equal bytes.

Leaves out: floats. Every number that reaches this module is an integer; money is a decimal string.
The form is that of RFC 8785 for the values used here: sorted keys, no blanks, UTF-8.
RFC 8785 sorts by UTF-16 code units; all keys here are ASCII, for which the orders agree.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn


def canonical_json(value: Any) -> bytes:
    """The canonical JSON bytes of dicts, lists, strings, integers, booleans and None.

    Raises TypeError on a float or anything else that has no single written form.
    """
    text = json.dumps(_checked(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Half a surrogate pair has no UTF-8; its backslash form is the JSON escape of the same text.
    return text.encode("utf-8", "backslashreplace")


def fingerprint(value: Any) -> str:
    """`sha256:` and the hex digest of the canonical JSON."""
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


def _checked(value: Any) -> Any:
    if isinstance(value, float):
        _refuse(value)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                _refuse(key)
            _checked(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _checked(item)
    elif not isinstance(value, str | int | None):
        _refuse(value)
    return value


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} has no canonical written form")
