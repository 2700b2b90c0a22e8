"""What this process may have and leave behind: open files, the collector's pauses, core dumps; and
which signals end it."""

from __future__ import annotations

import gc
import os
import resource
import signal
from typing import Final

SPARE_FILES: Final = 128
"""Open files that the service needs beside one for each connection."""


def affordable(connections: int) -> int:
    """So many connections, or as many as this process may have open files for; lets it have them.

    One more would be accepted by nobody and wait in the kernel, instead of being refused.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - SPARE_FILES)
    return connections


YOUNG_OBJECTS: Final = 50_000
"""New containers before the collector looks at them: a pause of some milliseconds."""


def look_seldom() -> None:
    """From now on. To be called before anything large is loaded."""
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def pass_over_start() -> None:
    """Let the collector pass over all that was made so far: nearly all of it stays to the end."""
    gc.freeze()


def forbid_core_dumps() -> None:
    """No core dump of this process or of what it starts, and no way back: an image of it would hold
    every secret that was read, and the customers' numbers of the deliveries under way.

    Where `core_pattern` names a program, the kernel hands it the dump all the same and tells it of
    this limit: systemd-coredump then keeps nothing, another program may not care.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ending_signals() -> tuple[signal.Signals, ...]:
    """By which a service is asked to end. SIGHUP says that its terminal was closed, or comes from a
    program that rotates logs and takes us for one that opens a file anew; `nohup` has it ignored.
    """
    asked = (signal.SIGTERM, signal.SIGINT)
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return asked if ignored else (*asked, signal.SIGHUP)


def heed_sigterm_in_container() -> None:
    """Let SIGTERM end a start or a command there, too: the kernel passes it over for a container's
    first process, as long as that has said nothing of it. Whoever stops one would wait in vain."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
