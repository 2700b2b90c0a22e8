"""Headers as they came, and how one is found among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

Headers = Sequence[tuple[bytes, bytes]]
"""Raw headers as ASGI gives them: lower-case names, in the order they came, repeats kept."""

_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")


def header_values(names: str) -> Callable[[Headers], list[bytes]]:
    """A function that gives every value of a header; of `a,b` those of the first that came.

    Raises ValueError for what is no header name in lower case.
    """
    for name in names.split(","):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header name in lower case")
    wanted, *others = (name.encode("ascii") for name in names.split(","))
    if not others:
        return lambda headers: [value for key, value in headers if key == wanted]

    def values(headers: Headers) -> list[bytes]:
        for name in (wanted, *others):
            found = [value for key, value in headers if key == name]
            if found:
                return found
        return []

    return values
