"""A test's own disk with a file system, which fails and loses its power.

nbdkit  the disk (block_plugin.py)  ──▶  nbdfuse  a file  ──▶  loop device  ──▶  ext4
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.mounts import ran, unmount
from tests.waiting import until

SIZE = 64 * 1024 * 1024
PLUGIN = Path(__file__).with_name("block_plugin.py")
TOOLS = ("nbdkit", "nbdfuse", "losetup", "mkfs.ext4", "e2fsck", "mount")


def reason_against() -> str:
    """Return why there can be no such disk here, or nothing."""
    if os.geteuid() != 0:
        return "needs root: it mounts a disk that fails"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install nbdkit-plugin-python libnbd-bin"
    if not Path("/dev/fuse").exists() or not Path("/dev/loop-control").exists():
        return "needs FUSE and loop devices"
    return ""


class Disk:
    """The disk, attached and mounted at `folder`, or detached."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.folder = place / "mounted"
        self._file, self._socket = place / "file", place / "socket"
        self._fuse: subprocess.Popen[bytes] | None = None
        self._loop = ""
        for each in (place, self.folder, place / "told"):
            each.mkdir()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the disk's process; detach everything afterwards."""
        told = ["folder=" + str(self._place / "told"), f"size={SIZE}"]
        words = ["nbdkit", "-f", "-U", str(self._socket), "python", str(PLUGIN), *told]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as disk:
            try:
                until(self._socket.exists, otherwise=lambda: "nbdkit does not start")
                yield
            finally:
                self.take_away()
                disk.kill()

    def attach(self, *, new: bool = False) -> None:
        """Power on and mount; a file system that was cut off replays its journal."""
        self._file.touch()
        words = ["nbdfuse", str(self._file), "--unix", str(self._socket)]
        self._fuse = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        until(self._is_there, otherwise=lambda: "nbdfuse does not start")
        self._loop = ran("losetup", "--find", "--show", str(self._file))
        if new:
            ran("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self._loop)
        else:
            subprocess.run(["e2fsck", "-fy", self._loop], capture_output=True, check=False)
        ran("mount", self._loop, str(self.folder))

    def _is_there(self) -> bool:
        try:
            return self._file.stat().st_size == SIZE
        except OSError:  # it is being mounted over
            return False

    def take_away(self) -> None:
        """Unmount and detach, whatever state it is in."""
        if self._fuse is None:
            return
        unmount(self.folder)
        if self._loop:
            subprocess.run(["losetup", "-d", self._loop], capture_output=True, check=False)
        subprocess.run(["umount", "-l", str(self._file)], capture_output=True, check=False)
        self._fuse.kill()
        self._fuse.wait()
        self._fuse = None

    @contextmanager
    def told(self, word: str) -> Iterator[None]:
        """Let the disk be `failing` or `cut` until the block ends."""
        path = self._place / "told" / word
        path.touch()
        try:
            yield
        finally:
            path.unlink()


@contextmanager
def a_disk(place: Path) -> Iterator[Disk]:
    """Mount a new disk with an empty file system, or skip."""
    reason = reason_against()
    if reason:
        pytest.skip(reason)
    disk = Disk(place)
    with disk.running():
        disk.attach(new=True)
        yield disk
