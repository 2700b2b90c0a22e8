"""What a start loads, and what it does when it is interrupted before it has begun."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

SELDOM = ("sqlmodel", "alembic", "asyncpg", "jwt", "cryptography.x509", "http_sf")
"""What only some installations or commands need. Each takes a part of a second of every start."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.parametrize("module", ["app.cli.main", "app.bootstrap_serving"])
def test_a_start_loads_nothing_that_only_some_need(module: str) -> None:
    done = run(f"import sys, {module}; print([m for m in {SELDOM} if m in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_interrupted_while_it_loads() -> None:
    """As a person who changes her mind at once does it: no traceback, the usual code."""
    done = run(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'app.cli.main':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from app.__main__ import main\n"
        "main()\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
