"""Tests that are shared among forks are reported as in one process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

TESTS = """
import os, pytest

@pytest.fixture
def left():
    yield
    raise ValueError("not ended")

def test_passes(): os.write(1, b"captured")

@pytest.mark.skip(reason="not today")
def test_is_skipped(): ...

def test_is_not_ended(left): ...

def test_fails():
    print("said before")
    assert os.environ["TEST_WORKER"] == "x"

def test_ends(): os._exit(3)
"""


def test_each_result_is_reported_and_whoever_dies(tmp_path: Path) -> None:
    """So is the output of a failing test, and no other output."""
    (tmp_path / "test_a.py").write_text(TESTS)
    words = ["-q", "-ra", "-c", os.devnull, "-p", "tests.workers", "--workers", "2", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
    assert "2 failed, 2 passed, 1 skipped, 1 error" in done.stdout
    for said in ("not today", "not ended", "said before", "the worker has ended during this test"):
        assert said in done.stdout
    assert "captured" not in done.stdout
