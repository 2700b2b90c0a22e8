"""A test's own file systems, for tests that run as root."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S


def ran(*words: str) -> str:
    """Run a command; return what it printed. Fails with its error output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr or done.stdout}"
    return done.stdout.strip()


@contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    """Run `mount WORDS… FOLDER`, or skip if that is not allowed."""
    folder.mkdir()
    try:
        done = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        unmount(folder)


def unmount(folder: Path, options: Sequence[str] = ()) -> None:
    """Unmount, lazily if a failed file system is still in use."""
    done = subprocess.run(["umount", *options, str(folder)], capture_output=True, check=False)
    if done.returncode != 0:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
