"""Set how long tests search: in the gate for a part of the long form's time."""

import os

PART = 1 if os.environ.get("TALLYHOOK_LONG") else 5

LONG = PART == 1
"""True in the long form. It is read at import, because a session removes all settings."""


def examples(whole: int) -> int:
    """Return this number of examples in the long form, a fifth of it in the gate."""
    return whole // PART


def every(number: int) -> int:
    """Return 1, for each case, in the long form; this number, for one case in so many, in the gate.

    A prime number of permutations puts each member at every place, before and after each other.
    """
    return 1 if PART == 1 else number
