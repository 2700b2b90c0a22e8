"""How long hypothesis searches: a third in the gate of what it does in the long form."""

from __future__ import annotations

import os

PART = 1 if os.environ.get("TALLYHOOK_LONG") else 3


def examples(whole: int) -> int:
    """So many in the long form, a third of them in the gate."""
    return whole // PART
