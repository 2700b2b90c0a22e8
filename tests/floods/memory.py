"""A process's memory: a group with a limit, and the peak of a process."""

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
    """A control group whose processes the kernel kills when they take more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def entering(self) -> list[str]:
        """Words in front of a command that let it begin in the group, so that all of it counts."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs")]

    @property
    def members(self) -> list[int]:
        return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]

    @property
    def killed(self) -> int:
        """Number of its processes that were killed for lack of memory."""
        lines = (self._folder / "memory.oom_control").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextmanager
def memory_group(mib: int) -> Iterator[MemoryGroup]:
    """Make a group below our own, or skip if that is impossible."""
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
    """Remove the group, which the kernel keeps while a process in it is ending."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _own() -> Path:
    """Return the group of this process, or the root that a container sees."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next(line.split(":", 2)[2] for line in lines if line.split(":")[1] == "memory")
    found = CONTROLLER / path.lstrip("/")
    return found if found.is_dir() else CONTROLLER


def forget_peak(pid: int) -> None:
    """Reset the process's peak to its present memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
