"""Connections, heads and bodies beyond their limits, on a real server: told so, and no harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from app.web.connection import MAX_PIPELINED
from tests.app.web.driving import event, signed
from tests.bench.machine import rss_mib
from tests.bench.slow import SlowClients
from tests.e2e.processes import Process, serving
from tests.e2e.test_service import now
from tests.floods.wire import connect, is_hung_up, post
from tests.waiting import until

CHUNKED = post("/webhooks/shop", "transfer-encoding: chunked", length=-1)
LIMITS = {
    "RECEIVE_DEADLINE_S": "3",
    "SEND_DEADLINE_S": "3",
    "IDLE_DEADLINE_S": "3",
    "MAX_CONNECTIONS": "60",
    "MAX_CONNECTIONS_PER_ADDRESS": "50",
    "MAX_BODY_BYTES": "200000",
    "MAX_BODIES_BYTES": "1000000",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service keeps its database."""
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Process]:
    """One service with small limits; its deadlines are many times what these tests need."""
    with serving(folder, **LIMITS) as process:
        yield process


def until_free(service: Process) -> None:
    """Until the server has closed what earlier tests have left open."""
    until(lambda: b"tallyhook_connections 1.0\n" in service.request("GET", "/metrics")[2])


OPENINGS = [
    b"",
    b"\r\n",
    b"POST /webhooks/shop HT",
    b"POST /webhooks/shop HTTP/1.1\r\nhost: a\r\nx: ",
    post("/webhooks/shop", body=b"{", length=500),
    post("/webhooks/shop", "transfer-encoding: chunked", length=-1) + b"5\r\nab",
    post("/webhooks/shop", "expect: 100-continue", length=500),
    post("/nowhere", body=b"{", length=500),
    b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\nGET /livez HT",
]


def test_a_client_that_does_not_get_on_is_hung_up_on(service: Process) -> None:
    """Silent, slow with its headers or its body, or idle: after its deadline it is gone."""
    opened = [connect(service) for _ in OPENINGS]
    for connection, opening in zip(opened, OPENINGS, strict=True):
        connection.sendall(opening)
    for connection, opening in zip(opened, OPENINGS, strict=True):
        found = is_hung_up(connection)
        assert found.count(b"HTTP/1.1 200") == opening.count(b"GET /livez HTTP"), opening


def test_clients_that_go_on_slowly_are_hung_up_on_all_the_same(service: Process) -> None:
    """A byte now and then is not enough, nor is asking without ever listening; others are served
    meanwhile."""
    with SlowClients(service.port, 40) as clients:
        numbers = count()

        def are_gone() -> bool:
            clients.drip()
            event_id = f"slow-{next(numbers)}"
            assert service.send(event(event_id), at=now())[1]["verdict"] == "stored"
            return not any(clients.still_open().values())

        until(are_gone, otherwise=clients.still_open)


def test_connections_of_one_address_and_of_all(service: Process) -> None:
    """Beyond either limit a connection is told 503 and closed; below it, it is served."""
    until_free(service)
    opened = [connect(service, "127.0.2.1") for _ in range(50)]
    try:
        refused = is_hung_up(connect(service, "127.0.2.1"))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5\r\n" in refused
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["code"] == "too_many_connections"
        assert service.send(event("beside"), at=now())[1]["verdict"] == "stored"
        others = [connect(service, "127.0.2.2") for _ in range(12)]
        answers = [is_hung_up(each)[:12] for each in others]
        # Of the ten that were left, the client before may still hold one.
        assert 2 <= answers.count(b"HTTP/1.1 503") <= 3
    finally:
        for each in opened:
            each.close()
    until_free(service)
    assert service.send(event("after"), at=now())[1]["verdict"] == "stored"
    figures = service.request("GET", "/metrics")[2]
    for reason in (b"too_many_connections", b"too_many_of_one_address", b"receive_deadline"):
        assert b'tallyhook_connections_refused_total{reason="%b"}' % reason in figures


def test_a_head_without_end(service: Process) -> None:
    """More head than is accepted ends the connection, however it is written."""
    for opening in (
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: a\r\n" * 20_000,
        post("/webhooks/shop", "transfer-encoding: chunked", length=-1)
        + b"0\r\nx: "
        + b"a" * 10**5,
    ):
        with connect(service) as connection:
            try:
                connection.sendall(opening)
            except (BrokenPipeError, ConnectionResetError):
                continue
            assert b" 200 " not in is_hung_up(connection)


def test_more_requests_at_once_than_are_taken(service: Process) -> None:
    """Those up to the limit are answered; the others, which would only take memory, are not."""
    with connect(service) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n" * 4_000)
        answers = is_hung_up(connection).count(b"HTTP/1.1 200")
        assert 1 <= answers <= 1 + MAX_PIPELINED


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(200_000, 200), (200_001, 413)])
def test_a_body_at_the_limit_and_one_byte_beyond(
    service: Process, size: int, status: int, chunked: bool
) -> None:
    """The limit is included, whether the length is said or not."""
    body = json.dumps(event(f"at-{size}-{chunked}")).encode().ljust(size)
    headers = [(name.decode(), value.decode()) for name, value in signed(body, at=now())]
    sent = iter([body[:100_000], body[100_000:]]) if chunked else body
    try:
        found, _, _ = service.request("POST", "/webhooks/shop", sent, headers)
    except (BrokenPipeError, ConnectionResetError):
        found = 413  # hung up on while sending
    assert found == status


def test_a_thousand_large_bodies_take_no_memory(service: Process) -> None:
    """Said to be 1 GB, or chunks without end, or packed: none is read beyond its limit."""
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    endless = CHUNKED + chunk * 4
    said = post("/webhooks/shop", body=b"x" * 1000, length=10**9)
    packed = post("/webhooks/shop", "content-encoding: gzip", body=b"\x1f\x8b" + b"x" * 1000)
    before, most = rss_mib(service.popen.pid), 0.0
    for number in range(1000):
        with connect(service, f"127.0.3.{1 + number % 50}") as connection:
            try:
                connection.sendall((said, packed, endless)[number % 3])
                assert b" 200 " not in connection.recv(65_536)[:20]
            except (BrokenPipeError, ConnectionResetError):
                pass
        most = max(most, rss_mib(service.popen.pid))
    print(f"1,000 large bodies: {most - before:.1f} MiB")
    assert most - before <= 8
    assert service.send(event("after-large"), at=now())[1]["verdict"] == "stored"


def test_long_bodies_all_at_once_share_what_there_is_for_them(service: Process) -> None:
    """When long bodies fill their share, another is told 503; a short one still finds its place."""
    until_free(service)
    opening = post("/webhooks/shop", length=200_000) + b"x" * 190_000
    opened = [connect(service, f"127.0.4.{number}") for number in range(1, 21)]
    try:
        for each in opened:
            each.sendall(opening)
        assert service.send(event("short"), at=now())[1]["verdict"] == "stored"
        answers = [is_hung_up(each)[:12] for each in opened]
    finally:
        for each in opened:
            each.close()
    assert b"HTTP/1.1 503" in answers
    assert b"HTTP/1.1 200" not in answers
