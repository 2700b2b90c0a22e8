"""How often Python's cycle collector looks through what was made.

Requests, folds and imports make many small values that live, and hardly a cycle. Looking through
all of them every 700 allocations, as is the default, takes a fifth of a start and a third of a
rebuild.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 50_000
"""New containers before the collector looks at them: a pause of some milliseconds."""


def look_seldom() -> None:
    """From now on. To be called before anything large is loaded."""
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def pass_over_start() -> None:
    """Let the collector pass over all that was made so far: nearly all of it stays to the end."""
    gc.freeze()
