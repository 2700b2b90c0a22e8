"""Start of a process: the modules that it loads, and an interruption while it loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.driving import environ
from tests.e2e.processes import command
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SELDOM = (
    "sqlmodel",
    "alembic",
    "asyncpg",
    "jwt",
    "cryptography.x509",
    "http_sf",
    "rich",
    "app.console",
)
"""Modules that only some installations or commands need. Each delays every start by a part of a
second."""


LATER = ("pydantic", "sqlalchemy", "structlog", "jinja2")
"""Modules that no command needs before it runs. Help and unknown words are answered at once."""

READING = """
import sys
from app.cli.main import run
assert run(["orders", "list"]) == 0"""
UNREAD = ("starlette", "uvicorn", "httpx2", "prometheus_client", "cryptography", "jinja2")
"""Modules that are useless to a command that only reads the database."""

IN_NO_WORKER = (
    "starlette", "uvicorn", "app.api.application", "app.finance.match_rules",
    "reconcile.matching.bank", "reconcile.reporting.closing",
)  # fmt: skip

RECEIVING = """
import asyncio, sys, httpx2
from app.config.load import load_settings
from app.golive.examine import problems_of_sources
from app.wiring.serving import open_service

async def ask():
    settings = load_settings(serving=True, also=problems_of_sources)
    async with open_service(settings, work="none") as service:
        to = httpx2.ASGITransport(app=service.application)
        async with httpx2.AsyncClient(transport=to, base_url="http://service") as client:
            for path in ("/webhooks/other", "/livez", "/readyz", "/metrics", "/api/v1/orders"):
                found = [m for m in LATER if m in sys.modules]
                print((await client.get(path)).status_code, len(found), file=sys.stderr)
    print([m for m in LATER if m not in sys.modules], file=sys.stderr)
"""
IN_NO_RECEIVER = (
    "jinja2", "app.api.api_routes", "app.api.operations", "app.finance.match_rules",
    "app.finance.break_store", "app.evidence.bundle", "reconcile.matching.bank",
    "reconcile.reporting.closing",
)  # fmt: skip
"""Modules that a receiver loads at the first request of its API."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.parametrize("module", ["app.cli.main", "app.wiring.serving"])
def test_a_start_loads_nothing_that_only_some_need(module: str) -> None:
    done = run(f"import sys, {module}; print([m for m in {SELDOM} if m in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_worker_loads_neither_the_api_nor_what_finance_computes() -> None:
    code = f"import sys, app.wiring.worker; print([m for m in {IN_NO_WORKER} if m in sys.modules])"
    done = run(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_receiver_loads_the_api_at_its_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    done = run(f"LATER = {IN_NO_RECEIVER}{RECEIVING}asyncio.run(ask())")
    assert done.stderr.splitlines() == ["405 0", "200 0", "200 0", "200 0", "401 0", "[]"], done


def test_showing_an_order_loads_no_client_for_http() -> None:
    done = run("import sys, app.orders.delivery_log; print('httpx2' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_child_that_is_given_settings_builds_no_validator() -> None:
    """Building it takes a twentieth of a worker's start."""
    done = run("from app.config.settings import Settings as s; print(s.__pydantic_complete__)")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_the_commands_load_nothing_before_one_runs() -> None:
    done = run(f"import sys, app.cli.main; print([m for m in {LATER} if m in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_command_that_reads_loads_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(tmp_path, "tokens", "add", "shop").returncode == 0  # which makes the database
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    done = run(f"{READING}; print([m for m in {UNREAD} if m in sys.modules])")
    assert (done.stdout.splitlines()[-1:], done.returncode) == (["[]"], 0), done.stderr


def test_interrupted_while_it_loads() -> None:
    """No traceback, and the usual exit code."""
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
