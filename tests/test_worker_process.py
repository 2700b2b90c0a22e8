"""The process behind a receiver, played by a script."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from app import worker_process
from app.core.signals import Signal
from app.worker_process import WorkerProcess
from tests.waiting import soon

CHILD = """#!{python}
import os, sys
with open({started!r}, "a") as file:
    file.write("x")
os.write(int(sys.argv[-1]), {says!r})
"""
"""A child that notes that it was started, says something to its parent, and ends."""


def child(folder: Path, monkeypatch: pytest.MonkeyPatch, *, says: bytes) -> Path:
    """Puts such a child in place of the real one. Returns the file in which its starts are noted,
    one character each."""
    started, program = folder / "started", folder / "child"
    started.touch()
    program.write_text(CHILD.format(python=sys.executable, started=str(started), says=says))
    program.chmod(0o700)
    monkeypatch.setattr("app.worker_process.sys.executable", str(program))
    monkeypatch.setattr(worker_process, "AGAIN_S", 0.01)
    monkeypatch.setattr(worker_process, "MOST_S", 0.01)
    return started


async def test_one_that_ends_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it died of."""
    started = child(tmp_path, monkeypatch, says=b"r")
    failures: list[str] = []
    async with WorkerProcess(read=Signal(), news=(), failed=failures.append).running():
        await soon(lambda: len(started.read_text()) >= 3)
    assert failures == []


async def test_one_whose_disk_has_failed_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver may need a while to end; a start meanwhile would write to the failed disk."""
    started = child(tmp_path, monkeypatch, says=b"r!")
    failures: list[str] = []
    async with WorkerProcess(read=Signal(), news=(), failed=failures.append).running():
        await soon(lambda: bool(failures))
        await asyncio.sleep(0.5)  # fifty times as long as one that may be started again needs
    assert started.read_text() == "x"
    assert len(failures) == 1
