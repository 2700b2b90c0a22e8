"""Requests and answers as bytes, from any address of the loopback network."""

import json
import socket

from tests.api.driving import signed
from tests.bench.load import is_whole
from tests.e2e.processes import Process
from tests.e2e.test_service import now
from tests.waiting import PATIENCE_S


def connect(service: Process, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), PATIENCE_S, (address, 0))


def is_hung_up(connection: socket.socket) -> bytes:
    """Return what comes until the server closes, which it must in time."""
    found = b""
    with connection:
        try:
            while part := connection.recv(65_536):
                found += part
        except ConnectionResetError:
            pass
    return found


def ask(service: Process, request: bytes, address: str = "127.0.0.1") -> bytes:
    """Send one request on its own connection; return the answer."""
    with connect(service, address) as connection:
        connection.sendall(request)
        found = b""
        while not (found and is_whole(found)):
            part = connection.recv(65_536)
            if not part:
                break
            found += part
        return found


def status_of(answer: bytes) -> int:
    return int(answer[9:12])


def code_of(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["code"])


def genuine(body: bytes) -> bytes:
    """Return a signed delivery as bytes."""
    fields = [f"{name.decode()}: {value.decode()}" for name, value in signed(body, at=now())]
    return post("/webhooks/shop", *fields, body=body)


def post(path: str, *fields: str, body: bytes = b"", length: int | None = None) -> bytes:
    """Return a request with these fields, and its real or a declared length."""
    said = [] if length == -1 else [f"content-length: {len(body) if length is None else length}"]
    lines = [f"POST {path} HTTP/1.1", "host: a", *fields, *said]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
