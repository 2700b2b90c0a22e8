"""The sandbox in a process of its own, over real sockets: what no in-process client can show."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.ports import free_port
from tests.sandbox.harness import AUTH, URL, session_body
from tests.waiting import PATIENCE_S, until

_SERVE = """
import sys, anyio
from pathlib import Path
from app.providers.profile import load_profile
from app.providers.source import Source
from app.sandbox.server import build_sandbox, serve_sandbox
from app.sandbox.settings import SandboxSettings
port, webhook_url, truth = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
settings = SandboxSettings(webhook_url=webhook_url, unit_s=0.02, truth_path=truth)
source = Source(name="checkout", profile=load_profile("checkout"), secrets=settings.secrets)
anyio.run(lambda: serve_sandbox(build_sandbox(settings, signer=source), port=port))
"""


class _Receiver(BaseHTTPRequestHandler):
    """Handler that refuses the first delivery of all."""

    seen: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.headers["webhook-signature"], body))
        self.send_response(503 if len(self.seen) == 1 else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def receiver() -> Iterator[ThreadingHTTPServer]:
    """Run a plain HTTP server that takes webhooks; `RequestHandlerClass.seen` has them."""
    handler = type("Handler", (_Receiver,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(PATIENCE_S)


@pytest.fixture
def sandbox(receiver: ThreadingHTTPServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a sandbox on a free port; `args[-3]` is the port, `args[-1]` the truth."""
    port = free_port()
    url = f"http://127.0.0.1:{receiver.server_port}/webhooks/checkout"
    arguments = [sys.executable, "-c", _SERVE, str(port), url, str(tmp_path / "truth.json")]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        _wait_until_up(process, port)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    def answers() -> bool:
        assert process.poll() is None, process.communicate()[0].decode()
        with suppress(httpx2.ConnectError):
            url = f"http://127.0.0.1:{port}/livez"
            return httpx2.get(url, trust_env=False, timeout=PATIENCE_S).status_code == 200
        return False

    until(answers)


def _is_all_delivered(client: httpx2.Client) -> bool:
    state = client.get("/sandbox/state").json()
    return bool(state["pending_events"] == state["undelivered"] == 0)


def test_a_dropped_answer_is_a_connection_error_and_the_repeat_is_the_replay(
    sandbox: subprocess.Popen[bytes], receiver: ThreadingHTTPServer
) -> None:
    arguments: Any = sandbox.args
    port, truth = int(arguments[-3]), Path(arguments[-1])
    headers = {**AUTH, "Idempotency-Key": "k"}
    body = session_body("254700000015")
    base = f"http://127.0.0.1:{port}"
    with httpx2.Client(
        base_url=base, headers=headers, trust_env=False, timeout=PATIENCE_S
    ) as client:
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            client.post(URL, json=body)
        repeat = client.post(URL, json=body)
        until(lambda: _is_all_delivered(client))
        (entry,) = json.loads(truth.read_text())
    assert repeat.status_code == 201
    assert repeat.headers["idempotent-replayed"] == "true"
    assert "server" not in repeat.headers
    assert (entry["session"], entry["outcome"]) == (repeat.json()["reference"], "succeeded")
    seen = receiver.RequestHandlerClass.seen  # type: ignore[attr-defined]
    kinds = [json.loads(sent)["type"] for _, sent in seen]
    assert sorted(kinds) == ["payment.pending", "payment.pending", "payment.succeeded"]
    _assert_ends_quietly(sandbox)


def _assert_ends_quietly(sandbox: subprocess.Popen[bytes]) -> None:
    sandbox.send_signal(signal.SIGTERM)
    output = sandbox.communicate(timeout=PATIENCE_S)[0]
    assert output == b"", "the sandbox prints and logs nothing of its own"
    assert sandbox.returncode == 0
