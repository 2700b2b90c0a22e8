"""Probing a service: real sockets on the loopback address, with and without TLS."""

import datetime
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.core import http
from app.core.http import outgoing_client
from app.providers import provider_client
from app.providers.provider_client import Probe, date_of, probe
from reconcile.instants import DAY, EARLIEST, SECOND
from tests.certificates import self_signed
from tests.reconcile.build import T
from tests.rows import for_each


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response_only(404)
        self.send_header("Date", "Fri, 20 Nov 2026 10:00:00 GMT")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, address: object) -> None:
        """Ignore a handshake that the caller aborted."""


@contextmanager
def served(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run a server on a free port."""
    server = _Server(("127.0.0.1", 0), _Answer)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    began = datetime.datetime.fromtimestamp((T - 400 * DAY) // SECOND, datetime.UTC)
    return self_signed(tmp_path, began=began, days=4_000)


async def seen(url: str) -> Probe:
    async with outgoing_client(timeout_s=10) as client:
        return await probe(client, url)


async def test_a_plain_service_is_probed_without_tls() -> None:
    with served() as port:
        sight = await seen(f"http://127.0.0.1:{port}/")
    assert (sight.status, sight.date, sight.tls) == (404, EARLIEST + 1_795_168_800 * SECOND, None)


async def test_a_closed_port_is_a_problem_and_no_exception() -> None:
    with served() as port:
        pass
    assert await seen(f"https://127.0.0.1:{port}/") == Probe(
        url=f"https://127.0.0.1:{port}/", problem="connection_failed"
    )


async def test_an_untrusted_certificate_is_reported_in_words(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with served(context) as port:
        sight = await seen(f"https://127.0.0.1:{port}/")
    assert "self" in (sight.tls_problem or "")
    assert sight.status is None


async def test_a_trusted_certificate_is_reported_with_its_end(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trusted = ssl.create_default_context(cafile=str(certificate))
    for module in (http, provider_client):
        monkeypatch.setattr(module, "trusting", lambda: trusted)
    with served(context) as port:
        sight = await seen(f"https://127.0.0.1:{port}/")
    assert (sight.tls, sight.tls_problem, sight.status) == ("TLSv1.3", None, 404)
    assert sight.certificate_ends == EARLIEST + (T - 400 * DAY) // SECOND * SECOND + 4000 * DAY


async def test_a_certificate_trusted_by_the_environment_alone_is_reported(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests ignore the environment's certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with served(context) as port:
        sight = await seen(f"https://127.0.0.1:{port}/")
    assert "self" in (sight.tls_problem or "")


@for_each(
    "header",
    [
        "",
        "yesterday",
        "Fri, 20 Nov 99999999999999999999 10:00:00 GMT",
        "Fri, 20 Nov 2026 99999999999999999999:00:00 GMT",
        "Fri, 20 Nov 2026 10:00:00 +99999999999999",
        "Fri, 31 Dec 9999 23:59:59 -2359",
    ],
)
def test_an_invalid_date_header_is_none(header: str) -> None:
    assert date_of(header) is None
