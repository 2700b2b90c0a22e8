"""Connections, heads and bodies beyond their limits, on a real server."""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from select import select

import pytest

from app.receiving.endpoint import FREE_BYTES
from app.receiving.guard import MAX_PIPELINED
from tests.api.driving import event, signed
from tests.e2e.processes import Process, serving
from tests.e2e.test_service import now
from tests.floods.memory import forget_peak, peak_mib
from tests.floods.slow import SlowClients
from tests.floods.wire import connect, is_hung_up, post, status_of
from tests.waiting import PATIENCE_S, until

CHUNKED = post("/webhooks/shop", "transfer-encoding: chunked", length=-1)
MOST = 64 * 1024 * 1024
"""Limit in bytes of a sender of endless bodies."""

OWN_BUFFER = 65_536
"""Buffer of such a sender; the kernel takes twice as much."""

LATE = b'tallyhook_connections_refused_total{reason="receive_deadline"}'
LIMITS = {
    "RECEIVE_DEADLINE_S": "2",
    "SEND_DEADLINE_S": "2",
    "IDLE_DEADLINE_S": "2",
    "MAX_CONNECTIONS": "60",
    "MAX_CONNECTIONS_PER_ADDRESS": "50",
    "MAX_BODY_BYTES": "200000",
    "MAX_BODIES_BYTES": "1000000",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Process]:
    """Run one service with small limits and short deadlines."""
    with serving(folder, **LIMITS) as process:
        yield process


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Run one with the same limits and long deadlines."""
    deadlines = {name: "120" for name in LIMITS if name.endswith("_DEADLINE_S")}
    with serving(tmp_path_factory.mktemp("patient"), **LIMITS | deadlines) as process:
        yield process


def until_free(service: Process) -> None:
    """Wait until the server has closed the connections of earlier tests."""
    until(lambda: b"tallyhook_connections 1.0\n" in service.request("GET", "/metrics")[2])


def figure(service: Process, name: bytes) -> float:
    """Return one metric; 0 if it is not there yet."""
    lines = service.request("GET", "/metrics")[2].splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


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
    """It is silent, slow with its headers or its body, or idle."""
    opened = [connect(service) for _ in OPENINGS]
    for connection, opening in zip(opened, OPENINGS, strict=True):
        connection.sendall(opening)
    for connection, opening in zip(opened, OPENINGS, strict=True):
        found = is_hung_up(connection)
        assert found.count(b"HTTP/1.1 200") == opening.count(b"GET /livez HTTP"), opening
    assert figure(service, LATE) >= 1


def test_clients_that_go_on_slowly_are_hung_up_on_all_the_same(service: Process) -> None:
    """They send a byte now and then, or ask without reading; others are served meanwhile."""
    with SlowClients(service.port, 16) as clients:
        numbers = count()

        def are_gone() -> bool:
            clients.drip()
            event_id = f"slow-{next(numbers)}"
            assert service.send(event(event_id), at=now())[1]["verdict"] == "accepted"
            return not any(clients.still_open().values())

        until(are_gone, otherwise=clients.still_open)


def test_connections_of_one_address_and_of_all(patient: Process) -> None:
    """Beyond either limit a connection is answered 503 and closed; below it, it is served."""
    until_free(patient)
    opened = [connect(patient, "127.0.2.1") for _ in range(50)]
    try:
        refused = is_hung_up(connect(patient, "127.0.2.1"))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5\r\n" in refused
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["code"] == "too_many_connections"
        assert patient.send(event("beside"), at=now())[1]["verdict"] == "accepted"
        opened += (others := [connect(patient, "127.0.2.2") for _ in range(12)])
        answers = [status_of(asked(each)) for each in others]
        assert set(answers) == {200, 503}
        # Of the ten that were left, the client before may still hold one.
        assert 2 <= answers.count(503) <= 3
    finally:
        for each in opened:
            each.close()
    until_free(patient)
    assert patient.send(event("after"), at=now())[1]["verdict"] == "accepted"
    for reason in (b"too_many_connections", b"too_many_of_one_address"):
        assert figure(patient, b'tallyhook_connections_refused_total{reason="%b"}' % reason) >= 1


def asked(connection: socket.socket) -> bytes:
    """Return the first answer, even if it says that there are too many; keep the connection."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
    return connection.recv(65_536)


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
    """Requests up to the limit are answered; the others would only take memory."""
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
    """The limit is included, with or without a declared length."""
    body = json.dumps(event(f"at-{size}-{chunked}")).encode().ljust(size)
    fields = [f"{name.decode()}: {value.decode()}" for name, value in signed(body, at=now())]
    fields += ["connection: close", *(["transfer-encoding: chunked"] if chunked else [])]
    pieces = [body]
    if chunked:
        pieces = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:100_000], body[100_000:])]
        pieces.append(b"0\r\n\r\n")
    with connect(service) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not be read to its end
            for piece in (post("/webhooks/shop", *fields, length=-1 if chunked else size), *pieces):
                connection.sendall(piece)
        assert status_of(is_hung_up(connection)) == status


def stream(service: Process, address: str, head: bytes, piece: bytes) -> tuple[bytes, int]:
    """Send a head, then pieces until the server answers, closes, or has had enough; return the
    answer and the bytes that it took."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, OWN_BUFFER)
        connection.settimeout(PATIENCE_S)
        connection.bind((address, 0))
        connection.connect(("127.0.0.1", service.port))
        taken = 0
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head)
            while taken < MOST and not select([connection], [], [], 0)[0]:
                connection.sendall(piece)
                taken += len(piece)
        # What was answered before the server hung up is there even where we sent on.
        return is_hung_up(connection), taken


@pytest.mark.parametrize("bodies", [300, pytest.param(1_000, marks=pytest.mark.soak)])
def test_many_large_bodies_take_no_memory(service: Process, bodies: int) -> None:
    """None is read beyond its limit: declared as 1 GB, in endless chunks, or packed."""
    until_free(service)
    plain = b"x" * 65_536
    kinds = (
        (413, post("/webhooks/shop", length=10**9), plain),
        (413, CHUNKED, b"10000\r\n" + plain + b"\r\n"),
        (415, post("/webhooks/shop", "content-encoding: gzip", length=10**9), plain),
    )
    bound = int(LIMITS["MAX_BODY_BYTES"]) + len(kinds[1][2]) + 2 * OWN_BUFFER + kernel_bytes()
    late = figure(service, LATE)
    forget_peak(service.popen.pid)
    before, most, answers = peak_mib(service.popen.pid), 0, Counter[tuple[int, int]]()
    for number in range(bodies):
        status, head, piece = kinds[number % 3]
        answer, taken = stream(service, f"127.0.3.{1 + number % 50}", head, piece)
        answers[status, status_of(answer) if answer else 0] += 1
        most = max(most, taken)
        assert most <= bound, (head, answer)
        assert not answer or status_of(answer) == status, answer
    grown = peak_mib(service.popen.pid) - before
    print(f"{bodies:,} large bodies: {grown:.1f} MiB, {most:,} bytes taken of one; {dict(answers)}")
    # Where the machine stood still, a sender may have been too late for an answer.
    silent = answers.pop((413, 0), 0) + answers.pop((415, 0), 0)
    assert silent <= figure(service, LATE) - late
    assert set(answers) == {(413, 413), (415, 415)}
    assert grown <= 8
    assert service.send(event("after-large"), at=now())[1]["verdict"] == "accepted"


def kernel_bytes() -> int:
    """Return what the kernel may hold for a server that does not read."""
    return int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2])


def test_long_bodies_all_at_once_share_what_there_is_for_them(patient: Process) -> None:
    """When they fill their share, another gets 503; a short one still finds its place."""
    until_free(patient)
    opening = post("/webhooks/shop", length=200_000) + b"x" * 190_000
    opened = [connect(patient, f"127.0.4.{number}") for number in range(1, 21)]
    # The first part of each body is not counted.
    room = int(LIMITS["MAX_BODIES_BYTES"]) // (190_000 - FREE_BYTES)
    try:
        for each in opened:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before its end
                each.sendall(opening)
        until(lambda: len(select(opened, [], [], 0)[0]) >= len(opened) - room)
        assert patient.send(event("short"), at=now())[1]["verdict"] == "accepted"
        answers = {each.recv(65_536)[:12] for each in select(opened, [], [], 0)[0]}
    finally:
        for each in opened:
            each.close()
    assert answers == {b"HTTP/1.1 503"}
