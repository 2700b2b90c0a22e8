"""Name, open files, garbage collection, core dumps and ending signals of a process, and the meaning
of a child's exit code."""

import gc
import os
import resource
import signal
from functools import cache
from pathlib import Path
from typing import Final


@cache
def _place() -> str:
    """Return the machine's boot id and the name space of process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"


def _started(process: int) -> str | None:
    """Return when a process of this machine started, in ticks since the boot; an empty text if it
    has ended, None if that cannot be seen."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    try:
        state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if state == "Z" else rest[18]


def process_name() -> str:
    """Return a name of this process that no other has, on any machine, before or after it."""
    return f"{_place()}:{os.getpid()}:{_started(os.getpid())}"


def has_ended(name: str) -> bool:
    """Return whether a named process has surely ended: it ran on this machine, since its boot, and
    where its number can be seen from here."""
    place, process, started = name.rsplit(":", 2)
    return place == _place() and _started(int(process)) not in (started, None)


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
    """Return the meaning of a process's exit code, as a sentence.

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
