"""Ambiguous requests, which two programs could read in two ways: never a second answer, never a
5xx.

Each is sent alone, with a whole request behind it in the same bytes, and with one sent after it.
What stands behind a refused request is never answered, since it could be taken for another
sender's.
"""

import re
import socket
from collections.abc import Iterator

import pytest

from app.receiving.guard import MAX_PIPELINED
from tests.e2e.processes import Process, serving
from tests.waiting import PATIENCE_S

BEHIND = b"GET /livez HTTP/1.1\r\nhost: behind\r\n\r\n"
TO = b"POST /webhooks/shop HTTP/1.1\r\n"
HOST = b"host: a\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
END = b"0\r\n\r\n"

REFUSED = {
    "no host": TO + b"content-length: 0\r\n\r\n",
    "two hosts": TO + HOST + b"host: b\r\ncontent-length: 0\r\n\r\n",
    "the same host twice": TO + HOST + HOST + b"content-length: 0\r\n\r\n",
    "an empty host": TO + b"host: \r\ncontent-length: 0\r\n\r\n",
    "a host with a path": TO + b"host: a/../b\r\ncontent-length: 0\r\n\r\n",
    "a host with a user": TO + b"host: a@b\r\ncontent-length: 0\r\n\r\n",
    "two hosts in one": TO + b"host: a, b\r\ncontent-length: 0\r\n\r\n",
    "a host with a blank": TO + b"host: a b\r\ncontent-length: 0\r\n\r\n",
    "length and chunks": TO + HOST + b"content-length: 5\r\n" + CHUNKED + b"\r\n" + END,
    "chunks and length": TO + HOST + CHUNKED + b"content-length: 5\r\n\r\n" + END,
    "chunks and no length": TO + HOST + CHUNKED + b"content-length: 0\r\n\r\n" + END,
    "two lengths": TO + HOST + b"content-length: 3\r\ncontent-length: 5\r\n\r\nabcde",
    "one length twice": TO + HOST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "lengths in a list": TO + HOST + b"content-length: 3, 3\r\n\r\nabc",
    "a negative length": TO + HOST + b"content-length: -1\r\n\r\n",
    "a signed length": TO + HOST + b"content-length: +3\r\n\r\nabc",
    "a length in hex": TO + HOST + b"content-length: 0x3\r\n\r\nabc",
    "a length beyond numbers": TO + HOST + b"content-length: 99999999999999999999999\r\n\r\n",
    "a length with a blank": TO + HOST + b"content-length: 1 0\r\n\r\n",
    "an empty length": TO + HOST + b"content-length:\r\n\r\n",
    "a coding nobody knows": TO + HOST + b"transfer-encoding: xchunked\r\n\r\n" + END,
    "identity": TO + HOST + b"transfer-encoding: identity\r\n\r\n" + END,
    "gzip and chunks": TO + HOST + b"transfer-encoding: gzip, chunked\r\n\r\n" + END,
    "chunks and identity": TO + HOST + b"transfer-encoding: chunked, identity\r\n\r\n" + END,
    "chunks twice": TO + HOST + CHUNKED + CHUNKED + b"\r\n" + END,
    "chunks in quotes": TO + HOST + b'transfer-encoding: "chunked"\r\n\r\n' + END,
    "chunks after a tab": TO + HOST + b"transfer-encoding:\x0bchunked\r\n\r\n" + END,
    "a blank before the colon": TO + HOST + b"content-length : 0\r\n\r\n",
    "a folded field": TO + HOST + b"transfer-encoding:\r\n chunked\r\n\r\n" + END,
    "a folded host": TO + b"host: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "a field without a name": TO + HOST + b": x\r\ncontent-length: 0\r\n\r\n",
    "a field without a colon": TO + HOST + b"content-length 0\r\n\r\n",
    "a field with NUL": TO + HOST + b"x: a\x00b\r\ncontent-length: 0\r\n\r\n",
    "a field with a bare CR": TO + HOST + b"x: a\rb\r\ncontent-length: 0\r\n\r\n",
    "lines that end in LF": TO.replace(b"\r", b"") + b"host: a\ncontent-length: 0\n\n",
    "another protocol's version": b"POST / HTTP/9.9\r\n" + HOST + b"content-length: 0\r\n\r\n",
    "a version in small letters": b"POST / http/1.1\r\n" + HOST + b"content-length: 0\r\n\r\n",
    "no version": b"GET /livez\r\n" + HOST + b"\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method nobody knows": b"SMUGGLE / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a blank in the path": b"POST /web hooks HTTP/1.1\r\n" + HOST + b"content-length: 0\r\n\r\n",
    "bytes beyond ASCII in the path": b"POST /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a chunk's size that is none": TO + HOST + CHUNKED + b"\r\nxyz\r\nabc\r\n" + END,
    "a signed chunk's size": TO + HOST + CHUNKED + b"\r\n-1\r\nabc\r\n" + END,
    "a chunk's size beyond numbers": TO + HOST + CHUNKED + b"\r\nfffffffffffffffff\r\n" + END,
    "a chunk longer than it says": TO + HOST + CHUNKED + b"\r\n2\r\nabcde\r\n" + END,
    "a chunk that ends in LF": TO + HOST + CHUNKED + b"\r\n3\nabc\n0\n\n",
    "fields behind the body": TO + HOST + CHUNKED + b"\r\n3\r\nabc\r\n0\r\nhost: b\r\n\r\n",
    "a tunnel": b"CONNECT a:80 HTTP/1.1\r\n" + HOST + b"\r\n",
}
"""Refused with 400 and a closed connection."""

IN_THE_BODY = {
    "a chunk's size that is none",
    "a signed chunk's size",
    "a chunk's size beyond numbers",
    "a chunk longer than it says",
    "a chunk that ends in LF",
    "fields behind the body",
}
"""Names of requests whose head is certain."""

TRIES = 3
"""Attempts: on a machine that stands still, a request may come after its deadline."""

ANSWERED = {
    "an upgrade to WebSocket": (
        b"GET /livez HTTP/1.1\r\n"
        + HOST
        + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: AAAA\r\n\r\n"
    ),
    "an upgrade to HTTP/2": (
        b"GET /livez HTTP/1.1\r\n"
        + HOST
        + b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n\r\n"
    ),
    "the last of a connection": (b"GET /livez HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"),
    "an older version": b"GET /livez HTTP/1.0\r\n\r\n",
    "a body nobody waits for": (
        b"POST /nowhere HTTP/1.1\r\n" + HOST + b"content-length: 900000000\r\n\r\n"
    ),
}
"""Answered once, by what stands before the doubt; nothing behind them is."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Run one service for all of them: none may harm it."""
    with serving(tmp_path_factory.mktemp("ambiguous"), RECEIVE_DEADLINE_S="1") as process:
        yield process


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def answers_to(service: Process, *pieces: bytes) -> list[int]:
    """Return all statuses until the server closes; each piece but the first follows an answer."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as connection:
        found = b""
        try:
            for number, piece in enumerate(pieces):
                if number:
                    found += connection.recv(65_536)
                connection.sendall(piece)
            while part := connection.recv(65_536):
                found += part
        except (BrokenPipeError, ConnectionResetError):
            pass
        return statuses(found)


@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_request_is_refused_with_all_that_is_behind_it(
    service: Process, name: str
) -> None:
    """One 400 closes the connection, whatever comes behind it."""
    request = REFUSED[name]
    assert answers_to(service, request) == [400]
    for pieces in ([request + BEHIND * 3], [request, BEHIND]):
        # Whoever sends on while the door closes may not hear the answer.
        assert answers_to(service, *pieces) in ([400], [])


@pytest.mark.parametrize("name", REFUSED)
def test_what_came_before_it_is_still_answered(service: Process, name: str) -> None:
    """A whole request before it gets the last answer; if the doubt is in a body that has begun, it
    may get none."""
    for _ in range(TRIES):
        found = answers_to(service, BEHIND + REFUSED[name] + BEHIND)
        if found:
            break
    assert found in ([200], [200, 400], *([[]] if name in IN_THE_BODY else []))


@pytest.mark.parametrize("name", ANSWERED)
def test_what_is_behind_the_last_request_is_not_answered(service: Process, name: str) -> None:
    for pieces in ([ANSWERED[name] + BEHIND * 3], [ANSWERED[name], BEHIND]):
        found = answers_to(service, *pieces)
        assert len(found) == 1, (name, found)
        assert found[0] < 500


def test_requests_that_are_certain_share_a_connection(service: Process) -> None:
    """As a control, as many whole requests as may wait are all answered."""
    last = BEHIND.replace(b"behind\r\n", b"behind\r\nconnection: close\r\n")
    assert answers_to(service, BEHIND * MAX_PIPELINED + last) == [200] * (MAX_PIPELINED + 1)


def test_none_of_them_harmed_the_service(service: Process) -> None:
    ready = service.get("/readyz")
    assert (ready["status"], ready["reasons"]) == ("ready", [])
    assert [line for line in service.lines if line["level"] in ("error", "critical")] == []
