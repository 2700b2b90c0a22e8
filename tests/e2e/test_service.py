"""A real service process: it answers over sockets, survives its end, and ends as it must."""

import json
import os
import resource
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SystemClock
from reconcile.instants import Instant, format_instant
from tests.api.driving import SECRET, event, of_order, signed
from tests.e2e.processes import Process, command, serving, token
from tests.faults.check import assert_kept
from tests.faults.service import a_service
from tests.waiting import PATIENCE_S, until

PHONE = "254711223344"


def now() -> Instant:
    """Return the machine's own time, by which a real process judges ages."""
    return SystemClock().now()


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask the database from this process."""
    with closing(sqlite3.connect(folder / "t.db")) as database:
        return database.execute(sql).fetchall()


def feed(process: Process, shop: str, *, least: int) -> list[dict[str, object]]:
    """Return the whole feed, once it has at least so many changes and none came for a second."""
    found: list[dict[str, object]] = []

    def ended() -> bool:
        after = found[-1]["id"] if found else 0
        page = process.get(f"/api/v1/outcomes?after={after}&limit=1000&wait=1", shop)
        found.extend(page["outcomes"])
        return not page["outcomes"] and len(found) >= least

    until(ended, otherwise=lambda: found)
    return found


def test_a_day_of_a_service(tmp_path: Path) -> None:
    """It starts, receives, explains, publishes and stops; its log is JSON and keeps secrets."""
    with serving(tmp_path) as process:
        ready = process.get("/readyz")
        assert (ready["status"], ready["reasons"]) == ("ready", [])
        body = event("e1", occurred_at=format_instant(now()), customer={"phone": PHONE})
        answers = [process.send(body, at=now())[1] for _ in range(2)]
        assert [process.became(each) for each in answers] == ["stored", "duplicate"]
        assert process.send(b'{"phone": "%s"' % PHONE.encode(), at=now())[0] == 200
        assert process.send(body, at=now() - 10**9)[0] == 401
        shop = token(tmp_path)
        assert process.get("/api/v1/orders/ORD-1", shop)["outcome"] == "succeeded"
        (change,) = feed(process, shop, least=1)
        assert (change["id"], change["outcome"]) == (1, "succeeded")
        listed = json.loads(command(tmp_path, "orders", "list", "--format", "json").stdout)
        assert [each["order"] for each in listed] == ["ORD-1"]
        assert process.end() == 0
    assert any("one merchant" in line["event"] for line in process.lines)
    deliveries = [line for line in process.lines if line["event"] == "delivery"]
    assert sorted(line["verdict"] for line in deliveries) == [
        "duplicate",
        "stored",
        "timestamp_too_old",
        "unreadable",
    ]
    for canary in (PHONE, SECRET, shop):
        assert canary.encode() not in process.log


NO_FOLDING = """
import app.orders.worker as worker

async def refold_due(context, *, limit):
    return 0

worker.refold_due = refold_due
"""
"""A service that reads and never folds."""


def test_killed_between_acknowledgement_and_fold(tmp_path: Path) -> None:
    """What was acknowledged and not yet folded is folded after the restart, once."""
    with a_service(tmp_path, script=NO_FOLDING) as service:
        process = service.process
        for number in range(5):
            assert process.send(of_order(f"O-{number}", f"e{number}"), at=now())[0] == 200
        process.end(signal.SIGKILL)
    assert rows(tmp_path, "SELECT count(*) FROM revisions") == [(0,)]
    shop = token(tmp_path)
    for _ in range(2):
        with serving(tmp_path) as process:
            changes = feed(process, shop, least=5)
            assert [change["id"] for change in changes] == [1, 2, 3, 4, 5]
            assert {change["order"] for change in changes} == {f"O-{n}" for n in range(5)}
            again = process.send(of_order("O-0", "e0"), at=now())[1]
            assert process.became(again) == "duplicate"
            process.end(signal.SIGKILL)


def send_if_alive(process: Process, name: str, acknowledged: set[str]) -> None:
    """Deliver one event; note the delivery if it was acknowledged."""
    body = of_order(f"O-{int(name.partition('-')[2]) % 20}", name, "pending")
    try:
        status, answer = process.send(body, at=now())
    except (OSError, ValueError, HTTPException):
        return
    if status == 200:
        acknowledged.add(answer["delivery"])


@pytest.mark.soak
def test_killed_under_load(tmp_path: Path) -> None:
    """Killed under load it has kept all that it acknowledged, and the feed repeats nothing."""
    shop, acknowledged = "", set[str]()
    for round_number in range(3):
        with serving(tmp_path) as process:
            shop = shop or token(tmp_path)
            wanted = len(acknowledged) + 60
            with ThreadPoolExecutor(8) as pool:
                for number in range(400):
                    name = f"{round_number}-{number}"
                    pool.submit(send_if_alive, process, name, acknowledged)
                until(lambda wanted=wanted: len(acknowledged) >= wanted)
                process.end(signal.SIGKILL)
    assert len(acknowledged) >= 180
    assert_kept(tmp_path / "t.db", acknowledged)
    assert rows(tmp_path, "PRAGMA integrity_check") == [("ok",)]
    with serving(tmp_path) as process:
        changes = feed(process, shop, least=20)
        assert [change["id"] for change in changes] == list(range(1, len(changes) + 1))
        said = [(change["order"], change["outcome"]) for change in changes]
        assert len(said) == len(set(said)) == 20
        assert process.end() == 0
    checked = command(tmp_path, "db", "check", "--format", "json")
    assert (checked.returncode, json.loads(checked.stdout)["problems"]) == (0, [])


def test_it_says_where_its_database_is_and_whether_it_was_there(tmp_path: Path) -> None:
    """By its whole path, also where the setting's is relative: who starts the service in another
    folder, or mistypes the path, has an empty one."""
    relative = f"sqlite+aiosqlite:///{os.path.relpath(tmp_path / 't.db')}"
    for made in (["there was no database, so a new one is created"], []):
        with serving(tmp_path, DATABASE_URL=relative) as process:
            assert process.end() == 0
        said = [line for line in process.lines if "database" in line]
        assert {line["database"] for line in said} == {str(tmp_path / "t.db")}
        assert [line["event"] for line in said] == [*made, "serving"]


def test_a_second_service_and_a_taken_port(tmp_path: Path) -> None:
    """A second service on one database ends with 3; on a taken port, with 4. The first goes on."""
    with serving(tmp_path) as process:
        second = command(tmp_path, "serve", "--port", "0")
        assert second.returncode == 3
        assert b"another process already serves" in second.stderr
        reindexed = command(tmp_path, "reindex")
        assert reindexed.returncode == 3
        other = tmp_path / "other"
        other.mkdir()
        taken = command(other, "serve", "--port", str(process.port))
        assert taken.returncode == 4
        assert b"Traceback" not in taken.stderr
        assert b"in use" in taken.stderr
        assert process.get("/livez") == {"status": "alive"}


@pytest.mark.parametrize("words", [("worker",), ("serve", "--port", "0", "--no-worker")])
def test_on_sqlite_the_service_has_its_own_worker(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Neither one by itself nor a service without one: nobody would read what is accepted."""
    ended = command(tmp_path, *words)
    assert (ended.returncode, b"on SQLite `" in ended.stderr) == (2, True)


@pytest.fixture
def dumps_are_allowed() -> Iterator[None]:
    """Let processes that are started here leave core dumps, unless they themselves forbid it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("this machine allows no core dumps anyway")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.mark.usefixtures("dumps_are_allowed")
def test_a_crash_leaves_no_core_dump(tmp_path: Path) -> None:
    """Where core dumps are allowed, service and worker still leave none: it would hold secrets."""
    with serving(tmp_path) as process:
        service = process.popen.pid
        children = Path(f"/proc/{service}/task/{service}/children")
        process.became(process.send(event("e1"), at=now())[1])  # so that the worker is there
        for number in (service, *children.read_text().split()):
            limits = Path(f"/proc/{number}/limits").read_text()
            (line,) = (each for each in limits.splitlines() if each.startswith("Max core file"))
            assert line.split()[4:6] == ["0", "0"]
        assert process.end() == 0


def test_the_receiver_has_the_processor_before_its_reader(tmp_path: Path) -> None:
    """Where both want it: a sender waits for the one, nobody for the other."""
    with serving(tmp_path) as process:
        service = process.popen.pid
        process.became(process.send(event("e1"), at=now())[1])
        (reader,) = Path(f"/proc/{service}/task/{service}/children").read_text().split()
        own, other = (os.getpriority(os.PRIO_PROCESS, each) for each in (service, int(reader)))
        assert own < other
        assert process.end() == 0


def test_a_log_that_nobody_reads_holds_up_neither_reading_nor_the_end(tmp_path: Path) -> None:
    """As when the terminal is stopped, or what ships the log hangs: lines are lost, and counted."""
    with serving(tmp_path) as process:
        with process.log_held_up():
            for number in range(60):
                answer = process.send(event(f"e{number}"), at=now())[1]
            assert process.became(answer) == "stored"
            process.popen.terminate()
            assert process.popen.wait(PATIENCE_S) == 0
        process.code()
        assert 0 < process.log.count(b'"verdict":"stored"') < 60


def headers_of(body: bytes) -> bytes:
    """Return the head of a genuine request, without its last blank line."""
    fields = b"".join(name + b": " + value + b"\r\n" for name, value in signed(body, at=now()))
    return b"POST /webhooks/shop HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + fields


WHOLE = json.dumps(event("raw")).encode()
LARGE = b"x" * 10_000_000
RAW: dict[str, tuple[Callable[[], bytes], Any]] = {
    "genuine": (
        lambda: headers_of(WHOLE) + b"content-length: %d\r\n\r\n" % len(WHOLE) + WHOLE,
        200,
    ),
    "chunked": (
        lambda: (
            headers_of(WHOLE)
            + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(WHOLE)
            + WHOLE
            + b"\r\n0\r\n\r\n"
        ),
        200,
    ),
    "no HTTP": (lambda: b"\x16\x03\x01 hello\r\n\r\n", 400),
    "two lengths": (
        lambda: headers_of(WHOLE) + b"content-length: 3\r\ncontent-length: 5\r\n\r\nabcde",
        400,
    ),
    "length and chunks": (
        lambda: (
            headers_of(WHOLE) + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        400,
    ),
    "a length that is none": (lambda: headers_of(WHOLE) + b"content-length: -1\r\n\r\n", 400),
    "headers without end": (lambda: headers_of(WHOLE) + b"x: " + b"a" * 300_000, 431),
    "signature beyond ASCII": (
        lambda: (
            b"POST /webhooks/shop HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            b"webhook-id: a\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,\xe4\xff\r\n"
            b"content-length: 0\r\n\r\n"
        ),
        401,
    ),
    "an expectation": (
        lambda: headers_of(WHOLE) + b"expect: 100-continue\r\ncontent-length: 0\r\n\r\n",
        401,
    ),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> object:
    """One service for all requests that must not harm it."""
    with serving(tmp_path_factory.mktemp("raw")) as process:
        yield process


@pytest.mark.parametrize("name", RAW)
def test_bytes_on_the_wire(service: Process, name: str) -> None:
    """Whatever comes over the socket gets its status or a closed door, and harms nothing."""
    data, expected = RAW[name]
    answer = service.raw(data(), hang_up=name == "headers without end")
    # Who is still sending when the door closes may not hear why.
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 431
    if answer.startswith(b"HTTP/1.1 100"):
        status = int(answer.split(b"\r\n\r\n", 1)[1].split(b" ", 2)[1])
    assert status == expected, answer
    assert service.get("/readyz")["status"] == "ready"


@pytest.mark.parametrize("chunked", [False, True])
def test_ten_megabytes_on_the_wire(service: Process, chunked: bool) -> None:
    """10 MB are refused with 413, which reaches even who writes all of it before reading."""
    body = iter([LARGE[:100_000]] * 100) if chunked else LARGE
    status, headers, _ = service.request(
        "POST", "/webhooks/shop", body, [(n.decode(), v.decode()) for n, v in signed(LARGE)]
    )
    assert (status, headers["connection"]) == (413, "close")
    assert service.get("/readyz")["status"] == "ready"
    assert service.send(event(f"after-{chunked}"), at=now())[1]["verdict"] == "accepted"


def test_a_length_that_is_too_much_is_refused_before_the_body_comes(service: Process) -> None:
    """Nobody need send it to learn that."""
    said = headers_of(LARGE) + b"content-length: 99999999\r\n\r\n"
    assert service.raw(said).startswith(b"HTTP/1.1 413 ")


def test_sixty_four_at_once_on_the_wire(service: Process) -> None:
    """One event over 64 connections at once is stored once and counted 64 times."""
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: service.send(event("same"), at=now()), range(64)))
    verdicts = [service.became(answer) for _, answer in answers]
    assert sorted(verdicts) == ["duplicate"] * 63 + ["stored"]


def test_a_sender_that_hangs_up(service: Process) -> None:
    """Half a request leaves nothing behind."""
    service.raw(headers_of(WHOLE) + b"content-length: 5000\r\n\r\n" + WHOLE, hang_up=True)
    assert service.get("/readyz")["status"] == "ready"


def posted(name: str, *more: bytes, path: bytes = b"/webhooks/shop") -> bytes:
    """Return a whole, genuine delivery as bytes on the wire."""
    body = json.dumps(of_order(name, name)).encode()
    fields = [b"%b: %b" % each for each in signed(body, at=now())]
    fields += [b"host: a", b"content-length: %d" % len(body), *more]
    return b"POST %b HTTP/1.1\r\n%b\r\n\r\n%b" % (path, b"\r\n".join(fields), body)


def test_a_request_with_the_end_right_behind_it_is_answered(service: Process) -> None:
    """A sender may say at once that it will send no more (FIN): of a delivery, to the API, and of
    several requests in one go. Then we hang up, too."""
    get = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"
    feed = b"GET /api/v1/outcomes?wait=1 HTTP/1.1\r\nhost: a\r\nauthorization: Bearer no\r\n\r\n"
    stored = b'"verdict": "accepted"'
    for request, statuses, said in (
        (posted("fin-plain"), [200], stored),
        (posted("fin-query", path=b"/webhooks/shop?a=b"), [200], stored),
        (posted("fin-100", b"expect: 100-continue"), [100, 200], stored),
        (get, [200], b"alive"),
        (feed, [401], b"token_invalid"),
        (posted("fin-one") + get + posted("fin-two"), [200, 200, 200], stored),
        (get + b"GET / HT", [200], b"alive"),
    ):
        answer = service.raw(request, hang_up=True)
        assert [int(each[:3]) for each in answer.split(b"HTTP/1.1 ")[1:]] == statuses, answer
        assert said in answer
    assert service.get("/readyz")["status"] == "ready"


def test_a_reader_of_the_feed_that_has_hung_up_is_not_waited_for(tmp_path: Path) -> None:
    """A connection counts until its answer is out: readers that gave up would keep everybody else
    of their address out for as long as they had asked to wait."""
    waits = b"GET /api/v1/outcomes?wait=600 HTTP/1.1\r\nhost: a\r\nauthorization: Bearer %b\r\n\r\n"
    with serving(tmp_path, LONGPOLL_MAX_S="600", MAX_CONNECTIONS_PER_ADDRESS="3") as process:
        asks = waits % token(tmp_path).encode()
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", process.port)) as reader:
                reader.sendall(asks)
        until(lambda: process.request("GET", "/livez")[0] == 200)
        assert b'"outcomes": []' in process.raw(asks, hang_up=True)
