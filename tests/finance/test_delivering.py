"""Ways of a report to who reads it: mails and signed posts, and what a failure reports."""

import base64
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from app.core.clock import SetClock
from app.core.errors import DeliveryFailed
from app.core.http import outgoing_client
from app.core.mail import MailServer as Server
from app.finance.scheduled_work import MailWay, PostWay, ReportParcel
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import (
    moment_of,
    parse_instant,
)
from tests.certificates import self_signed
from tests.rows import for_each

DUE = parse_instant("2026-11-12T03:00:00Z")


def parcel(files: dict[str, bytes] | None = None) -> ReportParcel:
    return ReportParcel(
        entry="month",
        span="2026-10",
        merchant="Salt & Sons",
        due_at=DUE,
        late=True,
        files=files or {"month-2026-10.pdf": b"%PDF"},
        summary=("All 23 control sums agree.", "No break is open."),
    )


class Session(socketserver.StreamRequestHandler):
    """A mail server's side of one connection (RFC 5321)."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, MailServer)
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            server.said.append(line)
            if word == b"EHLO":
                offered = b"250-STARTTLS\r\n" if server.tls is not None else b""
                self.wfile.write(b"250-here\r\n" + offered + b"250 AUTH PLAIN\r\n")
            elif word == b"STAR" and server.tls is not None:
                self.wfile.write(b"220 go on\r\n")
                self.connection = server.tls.wrap_socket(
                    self.connection, server_side=True, do_handshake_on_connect=False
                )
                try:
                    self.connection.do_handshake()
                except OSError:  # whoever came trusts it not
                    return
                self.rfile = self.connection.makefile("rb")
                self.wfile = self.connection.makefile("wb", buffering=0)
            elif word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                content = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    content += part
                server.mails.append(content)
                self.wfile.write(server.answer + b"\r\n")
            elif word == b"AUTH":
                self.wfile.write(server.signing_in + b"\r\n")
            else:
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return

    def finish(self) -> None:
        super().finish()
        self.connection.close()


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server that takes every mail, unless it is set to another answer."""

    daemon_threads = True
    allow_reuse_address = True
    answer = b"250 ok"
    signing_in = b"235 ok"
    tls: ssl.SSLContext | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Session)
        self.mails: list[bytes] = []
        self.said: list[bytes] = []


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Run a mail server on this machine."""
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def mailing(server: MailServer, **words: str | None) -> MailWay:
    """Mail by this server."""
    host, port = server.server_address[:2]
    sender, to = "reports@shop.example", ("cfo@shop.example", "finance@shop.example")
    ours = Server(host=str(host), port=int(port), **words)  # type: ignore[arg-type]
    return MailWay(server=ours, sender=sender, to=to)


async def test_a_mail_has_the_files_and_says_what_they_are() -> None:
    with mail_server() as server:
        way = mailing(server, user="tallyhook", password="pw")
        await way.deliver(parcel(), ["month-2026-10.pdf"])
        await way.deliver(parcel(), ["month-2026-10.pdf"])
    first, second = (message_from_bytes(each) for each in server.mails)
    assert first["Subject"] == "Salt & Sons: report 2026-10 (late)"
    assert first["To"] == "cfo@shop.example, finance@shop.example"
    assert first["Message-ID"] == second["Message-ID"]
    assert parsedate_to_datetime(first["Date"]) == moment_of(DUE)
    _, text, file = first.walk()
    assert "All 23 control sums agree." in str(text.get_payload())
    assert "made late" in str(text.get_payload())
    assert file.get_filename() == "month-2026-10.pdf"
    assert file.get_payload(decode=True) == b"%PDF"


@for_each(
    ("changed", "words", "said"),
    [
        ({"answer": b"552 secret of the server"}, {}, "the error code 552"),
        (
            {"signing_in": b"535 pw is wrong"},
            {"user": "u", "password": "pw"},
            "refuses the user or",
        ),
    ],
)
async def test_a_mail_server_that_refuses_is_reported_without_its_words_and_our_secrets(
    changed: dict[str, bytes], words: dict[str, str], said: str
) -> None:
    with mail_server() as server:
        for name, value in changed.items():
            setattr(server, name, value)
        with pytest.raises(DeliveryFailed, match=said) as raised:
            await mailing(server, **words).deliver(parcel(), ["month-2026-10.pdf"])
    assert "pw" not in str(raised.value)
    assert "secret" not in str(raised.value)


async def test_nothing_is_said_unencrypted_to_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.core.mail.is_loopback", lambda host: False)
    with mail_server() as server:
        way = mailing(server, user="tallyhook", password="pw")
        with pytest.raises(DeliveryFailed, match="lacks encryption"):
            await way.deliver(parcel(), ["month-2026-10.pdf"])
    assert server.mails == []
    assert [line for line in server.said if line[:4].upper() in (b"AUTH", b"MAIL")] == []


@pytest.mark.parametrize("trusted", [True, False])
async def test_what_goes_to_another_machine_is_encrypted_for_whom_we_trust(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.mail.is_loopback", lambda host: False)
    certificate = self_signed(tmp_path, began=datetime.now(UTC) - timedelta(days=1), days=2)
    with mail_server() as server:
        server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.tls.load_cert_chain(certificate)
        way = mailing(server, user="tallyhook", password="pw")
        if trusted:
            known = ssl.create_default_context(cafile=str(certificate))
            way = replace(way, server=replace(way.server, trusted=known))
            await way.deliver(parcel(), ["month-2026-10.pdf"])
        else:
            with pytest.raises(DeliveryFailed, match="certificate is not trusted"):
                await way.deliver(parcel(), ["month-2026-10.pdf"])
    words = [line[:4].upper() for line in server.said]
    assert len(server.mails) == trusted
    assert (b"AUTH" in words) is trusted
    if trusted:
        assert words.index(b"STAR") < words.index(b"AUTH")


async def test_a_mail_server_that_is_not_there() -> None:
    with mail_server() as server:
        way = mailing(server)
    with pytest.raises(DeliveryFailed, match="cannot be reached"):
        await way.deliver(parcel(), ["month-2026-10.pdf"])


async def test_files_that_are_too_large_for_a_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.finance.scheduled_work.BYTES_MAX", 3)
    with mail_server() as server, pytest.raises(DeliveryFailed, match="too large for one mail"):
        await mailing(server).deliver(parcel(), ["month-2026-10.pdf"])


SECRET = "whsec_cmVwb3J0cy1zZWNyZXQtb2YtMzAtYnl0ZXMtIQ=="


def posting(answers: list[int], seen: list[httpx2.Request]) -> PostWay:
    """Build a way that posts to a server with these answers, one after the other."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(answers.pop(0), stream=httpx2.ByteStream(b""))

    return PostWay(
        url="https://shop.example/reports",
        signer=Source(name="reports", profile=load_profile("checkout"), secrets=[SECRET]),
        client=outgoing_client(timeout_s=5, transport=httpx2.MockTransport(answer)),
        clock=SetClock(DUE),
    )


async def test_a_post_is_signed_and_bears_the_same_id_at_every_try() -> None:
    seen: list[httpx2.Request] = []
    way = posting([503, 200], seen)
    with pytest.raises(DeliveryFailed, match=r"did not accept the file \(status 503\)"):
        await way.deliver(parcel(), ["month-2026-10.pdf"])
    await way.deliver(parcel(), ["month-2026-10.pdf"])
    first, second = seen
    assert first.content == second.content
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    headers = [(name.encode(), value.encode()) for name, value in second.headers.items()]
    assert way.signer.verify(Incoming(headers, second.content), now=DUE) is None
    data = json.loads(second.content)["data"]
    assert base64.b64decode(data["content"]) == b"%PDF"
    assert data["sha256"] == sha256(b"%PDF").hexdigest()
    assert (data["file"], data["span"], data["late"]) == ("month-2026-10.pdf", "2026-10", True)
