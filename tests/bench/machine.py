"""Facts about the measured machine, to compare two runs."""

import contextlib
import os
import platform
import sqlite3
import time
from pathlib import Path

MIB = 1024 * 1024


def machine(folder: Path) -> dict[str, object]:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    return {
        "processor": _processor(),
        "cores": f"{cores} of {os.cpu_count()}",
        "20,000,000 additions, s": pace_s(),
        "load average before": os.getloadavg()[0],
        "memory": f"{memory:,} MiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "file system": filesystem(folder),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def filesystem(folder: Path) -> str:
    """Return kind and device of a folder's file system, from the longest mount point above it."""
    place = str(folder.resolve())
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        device, point, kind, *_ = line.split()
        above = place == point or place.startswith(point.rstrip("/") + "/")
        if above and len(point) >= len(best[0]):
            best = (point, f"{kind} on {device}")
    return best[1]


def cpu_seconds(pid: int, *, ended: bool = False) -> float:
    """Return the processor time of all threads of a process, user and system.

    ended  also of its child processes that it has waited for
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended else 13])) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return a process and all of its living descendants."""
    found = [pid]
    for each in found:
        children = Path(f"/proc/{each}/task/{each}/children")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found += map(int, children.read_text().split())
    return found


def family_seconds(pid: int) -> float:
    """Return the processor time of a process and its descendants, those that ended too."""
    while True:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return sum(cpu_seconds(each, ended=True) for each in family(pid))


def pace_s() -> float:
    """Return the processor seconds of 20,000,000 additions in a loop of a script: the pace."""
    began = time.process_time()
    exec("for number in range(20_000_000): total += number", {"total": 0})
    return time.process_time() - began


def rss_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def family_mib(pid: int) -> float:
    """Return the memory of a process and its descendants; what they share counts once (PSS)."""
    total = 0.0
    for each in family(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found = Path(f"/proc/{each}/smaps_rollup").read_text(encoding="utf-8")
            total += int(found.partition("\nPss:")[2].split()[0]) / 1024
    return total


def peak_rss_mib(pid: int) -> float | None:
    """Return the process's peak memory; None once it has ended.

    Not from getrusage, where a child starts with the peak of the process that started it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None
