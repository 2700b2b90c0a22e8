"""Requests as bytes, and what comes back, from any address of the loopback network."""

from __future__ import annotations

import json
import socket

from tests.api.driving import signed
from tests.bench.load import is_whole
from tests.e2e.processes import Process
from tests.e2e.test_service import now
from tests.waiting import PATIENCE_S


def connect(service: Process, address: str = "127.0.0.1") -> socket.socket:
    """A connection from an address of the loopback network."""
    return socket.create_connection(("127.0.0.1", service.port), PATIENCE_S, (address, 0))


def is_hung_up(connection: socket.socket) -> bytes:
    """What comes until the server hangs up; it must, in the time of a connection's patience."""
    found = b""
    with connection:
        try:
            while part := connection.recv(65_536):
                found += part
        except ConnectionResetError:
            pass
    return found


def ask(service: Process, request: bytes, address: str = "127.0.0.1") -> bytes:
    """The answer to one request on a connection of its own."""
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
    """The status of an answer."""
    return int(answer[9:12])


def code_of(answer: bytes) -> str:
    """The code of a problem."""
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["code"])


def genuine(body: bytes) -> bytes:
    """A signed delivery, as it goes over the wire."""
    fields = [f"{name.decode()}: {value.decode()}" for name, value in signed(body, at=now())]
    return post("/webhooks/shop", *fields, body=body)


def post(path: str, *fields: str, body: bytes = b"", length: int | None = None) -> bytes:
    """A request with these fields, its length as it is or as it is said to be."""
    said = [] if length == -1 else [f"content-length: {len(body) if length is None else length}"]
    lines = [f"POST {path} HTTP/1.1", "host: a", *fields, *said]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
