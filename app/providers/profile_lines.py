"""On which line of a profile file a key stands, so that a mistake can be found at once.

A TOML reader keeps no lines. Files of this format have headers and keys at the beginning of their
lines, which is enough to find them again; texts over several lines are skipped.
"""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY: Final = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_.-]+)\s*=""")
_LONG_TEXT: Final = re.compile(r"\"\"\"|'''")


def line_of(text: str, key: str) -> str:
    """`:12` for the key `signature.mac`, else for its section's header; empty where neither is."""
    section = ""
    best, depth = 0, 0
    wanted = _names(key)
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        was_inside, inside = inside, inside ^ (len(_LONG_TEXT.findall(line)) % 2 == 1)
        if was_inside:
            continue
        header, entry = _HEADER.match(line), _KEY.match(line)
        if header:
            section = header[1]
        elif not entry:
            continue
        names = _names(section) + (_names(entry[1]) if entry and not header else ())
        shared = len(names)
        if names == wanted[:shared] and shared > depth:
            best, depth = number, shared
    return f":{best}" if best else ""


def _names(dotted: str) -> tuple[str, ...]:
    """The names of a dotted key: `a."b.c"` is `a` and `b.c`."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^."\']+)', dotted)
    return tuple("".join(part).strip() for part in parts)
