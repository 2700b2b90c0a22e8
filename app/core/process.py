"""Properties of processes: names, memory, open files, garbage collection, core dumps, signals and
exit codes."""

import gc
import os
import resource
import signal
from functools import cache
from pathlib import Path
from typing import Final


@cache
def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"


def _started(process: int) -> str | None:
    """Return the start of a process, in ticks since the boot; "" if ended, None if unknown."""
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
    """Return a name for this process that no other process has on any machine at any time."""
    return f"{_place()}:{os.getpid()}:{_started(os.getpid())}"


def process_id(name: str) -> int | None:
    """Return the id of the process that has this unique name. Return None if the process no longer
    runs on this machine."""
    place, process, started = name.rsplit(":", 2)
    return int(process) if place == _place() and _started(int(process)) == started else None


def has_ended(name: str) -> bool:
    """Return whether the process with this unique name has certainly ended.

    False for a process of another machine or boot, or an invisible one.
    """
    place, process, started = name.rsplit(":", 2)
    return place == _place() and _started(int(process)) not in (started, None)


def is_running(process: int) -> bool:
    """Return whether a process of this machine is running. Return False for process id 0, which
    stands for an invisible process."""
    return process > 0 and _started(process) != ""


def process_ids_of(process: int) -> list[int]:
    """Return the ids of a process and of all its visible, running descendants."""
    try:
        started = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        started = []
    return [process, *(each for child in started for each in process_ids_of(int(child)))]


def memory_bytes(process: int) -> int | None:
    """Return a process's memory in bytes, including its share of shared pages. Return None if
    unknown."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return None
    lines = (line.split() for line in rollup.splitlines())
    return next((int(line[1]) * 1024 for line in lines if line[0] == "Pss:"), None)


SPARE_FILES: Final = 128
"""Number of open files that the service needs in addition to its connections."""


def affordable(connections: int) -> int:
    """Raise the limit of open files for this many connections. Return how many it allows.

    More connections than returned would wait in the kernel instead of being refused.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - SPARE_FILES)
    return connections


YOUNG_OBJECTS: Final = 50_000
"""Number of new container objects after which Python collects garbage. A collection takes some
milliseconds."""


def collect_garbage_rarely() -> None:
    """Make garbage collections rare. Call this function before loading large modules."""
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection, because nearly all of them live until
    the process ends."""
    gc.freeze()


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process and its children, because core dumps contain secrets.

    If `core_pattern` names a program, the kernel still passes the dump to it with the limit 0.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a service, without SIGHUP if it is ignored, as under `nohup`."""
    asked = (signal.SIGTERM, signal.SIGINT)
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return asked if ignored else (*asked, signal.SIGHUP)


def heed_sigterm_in_container() -> None:
    """Make SIGTERM end this process even if it is the first process of a container. Otherwise the
    kernel would ignore SIGTERM there."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


_FAULT: Final = (
    "a library or this machine's memory is at fault: see the kernel's log, and report the error"
)

_CAUSES: Final = {
    signal.SIGBUS: (
        "a file that it had mapped was truncated, most likely the -shm file of the "
        "database or the inbox, or the disk failed: see the kernel's log, and let no other "
        "program write to these files"
    ),
    signal.SIGKILL: "a person killed it, or the system did for lack of memory: see the "
    "kernel's "
    "log",
    **dict.fromkeys((signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE), _FAULT),
    signal.SIGXFSZ: "a file reached the maximum size: raise LimitFSIZE or `ulimit -f`",
}


def why_ended(code: int) -> str:
    """Return a sentence that explains a process's exit code.

    code  exit code from `subprocess`, which is negative for a signal
    """
    if code >= 0:
        return f"it ended with exit code {code}: the lines before this one say why"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"it was ended by signal {-code}"
    cause = _CAUSES.get(number, "somebody ended it")
    return f"it was ended by {number.name} ({signal.strsignal(number)}): {cause}"
