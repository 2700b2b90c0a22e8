"""The rehearsal and the checklist over real HTTP, against the simulated provider."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.sandbox.settings import SANDBOX_SECRET, SANDBOX_TOKEN
from tests.e2e.processes import Process, command, serving
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.slow

NUMBERS = {
    "success": "254700000001",
    "decline": "254700000002",
    "duplicate webhook": "254700000004",
    "delayed webhook": "254700000005",
}


def is_open(port: int) -> bool:
    """Return whether anybody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def provider(port: int, receiver: str) -> Iterator[None]:
    """Run the simulated provider, thirty times as fast, delivering to an address."""
    words = ["sandbox", "--port", str(port), "--unit", "0.03", "--webhook-url", receiver]
    process = Process([sys.executable, "-m", "app", *words], {})
    try:
        until(lambda: is_open(port), otherwise=lambda: process.log)
        yield
    finally:
        process.popen.kill()
        process.code()
        assert process.popen.stderr is not None
        process.popen.stderr.close()


def settings(port: int, numbers: dict[str, str]) -> dict[str, str]:
    """Return the provider's address and credentials, and the scenarios to be played."""
    return {
        "SOURCES__SHOP__SECRETS": SANDBOX_SECRET,
        "CHECKOUT__BASE_URL": f"http://127.0.0.1:{port}",
        "CHECKOUT__TOKEN": SANDBOX_TOKEN,
        "REHEARSAL__NUMBERS": json.dumps(numbers),
    }


def rehearsed(folder: Path, **more: str) -> tuple[int, list[dict[str, Any]]]:
    """Return exit code and document of a rehearsal."""
    ended = command(folder, "rehearse", "--patience", "60", "--format", "json", **more)
    assert ended.returncode in (0, 1), ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def listed(folder: Path, *words: str, **more: str) -> tuple[int, dict[str, str]]:
    """Return the checklist's exit code, and the state of each item."""
    ended = command(folder, "golive", *words, "--format", "json", **more)
    return ended.returncode, {each["item"]: each["state"] for each in json.loads(ended.stdout)}


def test_a_rehearsal_and_the_checklist(tmp_path: Path) -> None:
    """Each configured scenario is played to its verified end, beside the running service; the
    checklist takes what it found, and is complete once the rest is signed."""
    port = free_port()
    more = settings(port, NUMBERS)
    with (
        serving(tmp_path, **more) as service,
        provider(port, f"http://127.0.0.1:{service.port}/webhooks/shop"),
    ):
        code, played = rehearsed(tmp_path, **more)
        assert code == 0, played
        more["PUBLIC_URL"] = f"http://127.0.0.1:{service.port}"
        rules = tmp_path / "rules.toml"
        rules.write_text('[accept_alone_max]\nKES = "1000.00"\n')
        saved = command(tmp_path, "reconcile", "rules", "save", str(rules), "--by", "Ann", **more)
        assert saved.returncode == 0, saved.stderr
        code, states = listed(tmp_path, **more)
        assert code == 1
        left = [item for item, state in states.items() if state != "passed"]
        assert left == ["account_sharing", "support_ownership", "legal_documents", "rollback"]
        for item in left:
            signing = ("golive", "sign", item, "--by", "Ann", "--note", "done")
            assert command(tmp_path, *signing, **more).returncode == 0
        page = tmp_path / "page.html"
        assert listed(tmp_path, "-o", str(page), **more)[0] == 0
        assert "Complete." in page.read_text()
    assert [each["scenario"] for each in played] == [
        "success",
        "same start twice",
        "decline",
        "duplicate webhook",
        "delayed webhook",
    ]
    for each in played:
        assert list(each) == ["scenario", "expected", "seen", "passed", "seconds", "explanation"]
        assert each["passed"] is True
        assert each["expected"] == each["seen"]


def test_a_provider_that_delivers_elsewhere(tmp_path: Path) -> None:
    """Nothing is heard: exit 1, and the explanation says where to look."""
    port = free_port()
    more = settings(port, {"success": "254700000001"})
    with (
        serving(tmp_path, **more),
        provider(port, f"http://127.0.0.1:{free_port()}/webhooks/shop"),
    ):
        ended = command(tmp_path, "rehearse", "--patience", "1", "--format", "json", **more)
    first = json.loads(ended.stdout)[0]
    assert ended.returncode == 1
    assert (first["passed"], first["seen"]) == (False, "pending, do not ship")
    assert "check that `tallyhook serve` runs" in first["explanation"]
