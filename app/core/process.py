"""Open files, garbage collection, core dumps and ending signals of a process, and what its child's
end means."""

import gc
import os
import resource
import signal
from typing import Final

SPARE_FILES: Final = 128
"""Open files that the service needs besides one for each connection."""


def affordable(connections: int) -> int:
    """Raise the limit of open files for so many connections; return how many it allows.

    A connection beyond the limit would wait in the kernel, instead of being refused.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - SPARE_FILES)
    return connections


YOUNG_OBJECTS: Final = 50_000
"""New containers before a garbage collection: a pause of some milliseconds."""


def look_seldom() -> None:
    """Make garbage collection rare. Call it before anything large is loaded."""
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def pass_over_start() -> None:
    """Exclude existing objects from garbage collection: nearly all of them stay to the end."""
    gc.freeze()


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process and its children for good: they would contain secrets.

    If `core_pattern` names a program, the kernel hands it the dump anyway, with this limit:
    systemd-coredump then keeps nothing, another program may ignore it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a service.

    SIGHUP comes when a terminal is closed; `nohup` has it ignored.
    """
    asked = (signal.SIGTERM, signal.SIGINT)
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return asked if ignored else (*asked, signal.SIGHUP)


def heed_sigterm_in_container() -> None:
    """Let SIGTERM end a start or a command in a container, too.

    For the first process of a container the kernel ignores it, unless it has a handler.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


_FAULT: Final = (
    "a library or this machine's memory is at fault: see the kernel's log, and report it"
)

_CAUSES: Final = {
    signal.SIGBUS: "a file that it had mapped was cut off, most likely the -shm beside the "
    "database or its inbox, or the disk failed: see the kernel's log, and let nothing else write "
    "to files there",
    signal.SIGKILL: "somebody killed it, or the system did for lack of memory: see the kernel's "
    "log",
    **dict.fromkeys((signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE), _FAULT),
    signal.SIGXFSZ: "a file reached the limit of its size: raise LimitFSIZE or `ulimit -f`",
}
"""Likely causes of a signal, and what to do."""


def why_ended(code: int) -> str:
    """Say what a process's exit code means, one sentence.

    code  as `subprocess` has it: negative for a signal
    """
    if code >= 0:
        return f"it ended with exit code {code}: the lines before this one say why"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"it was ended by signal {-code}"
    cause = _CAUSES.get(number, "somebody ended it")
    return f"it was ended by {number.name} ({signal.strsignal(number)}): {cause}"
