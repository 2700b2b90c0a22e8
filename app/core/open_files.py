"""How many files this process may have open: each connection is one."""

from __future__ import annotations

import resource
from typing import Final

SPARE_FILES: Final = 128
"""Open files that the service needs beside one for each connection."""


def affordable(connections: int) -> int:
    """So many connections, or as many as this process may have open files for; lets it have them.

    One more would be accepted by nobody and wait in the kernel, instead of being told so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - SPARE_FILES)
    return connections
