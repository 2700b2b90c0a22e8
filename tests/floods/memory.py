"""A process's memory: a group that may take so much and no more, and the most that it held."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until

CONTROLLER = Path("/sys/fs/cgroup/memory")
"""The memory controller of control groups, version 1, where it is commonly mounted."""

MIB = 1024 * 1024


class MemoryGroup:
    """A control group. Whatever is started in it is killed by the kernel when it takes more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def entering(self) -> list[str]:
        """The words in front of a command that has it begin in the group: what a process took
        before it came would not be counted."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs")]

    @property
    def members(self) -> list[int]:
        """The processes that are in it."""
        return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]

    @property
    def killed(self) -> int:
        """How many of its processes were killed for want of memory."""
        lines = (self._folder / "memory.oom_control").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextmanager
def memory_group(mib: int) -> Iterator[MemoryGroup]:
    """A group of our own, below the one that we are in; skips where none can be made."""
    if not (CONTROLLER / "memory.oom_control").exists():
        pytest.skip(f"no memory controller of control groups, version 1, at {CONTROLLER}")
    folder = _own() / f"tallyhook-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made for memory, which takes root: {error.strerror}")
    try:
        (folder / "memory.limit_in_bytes").write_text(str(mib * MIB))
        # What could be swapped out would never run out.
        (folder / "memory.swappiness").write_text("0")
        yield MemoryGroup(folder)
    finally:
        until(lambda: _is_gone(folder), otherwise=lambda: f"{folder} is still in use")


def _is_gone(folder: Path) -> bool:
    """Remove the group; the kernel keeps it for as long as a process in it is ending."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _own() -> Path:
    """The group that this process is in, or the root of what a container sees."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next(line.split(":", 2)[2] for line in lines if line.split(":")[1] == "memory")
    found = CONTROLLER / path.lstrip("/")
    return found if found.is_dir() else CONTROLLER


def forget_peak(pid: int) -> None:
    """From now on the most memory that it has held is what it holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    """The most memory that the process has held: what it took and gave back is in it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
