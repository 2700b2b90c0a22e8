"""The deployed service: a restart behind a socket that stays open, and deliveries through
proxies."""

import http.client
import re
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Protocol

import pytest

from app.cli.golive import FOLDER
from tests.api.driving import event
from tests.e2e.processes import Process, deliver, end, running, serving
from tests.e2e.test_service import rows
from tests.floods.burst import Sender
from tests.floods.test_burst import written
from tests.floods.wire import status_of
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

RATE = 500
"""Deliveries a second, each on a connection of its own."""

ANY_PROXY = "127.0.0.0/8"
"""The senders are taken for a proxy, which speaks for everybody: all connections are its own."""

KEPT = "SELECT event_id FROM deliveries"

SLOW = b"the store is slow to answer"
"""Log message of a service that refuses because its disk is slow."""


def restarted(folder: Path, *, seconds: int, times: int) -> None:
    """Deliveries come steadily, whoever answers; the service is restarted so often meanwhile, as
    systemd does it: the socket stays open. Each must be taken at its first try, and stored once."""
    messages, requests = written(RATE * seconds)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=4096) as listener,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as stack,
    ):
        listener.set_inheritable(True)
        sender = Sender(listener.getsockname()[1], requests, rate=RATE, kept=False)
        burst, gaps, logs = sender.burst, [], list[bytearray]()

        def start() -> Process:
            words = ("serve", "--fd", str(listener.fileno()))
            process = stack.enter_context(running(folder, *words, FORWARDED_ALLOW_IPS=ANY_PROXY))
            logs.append(process.log)
            return process

        service = start()
        sending = pool.submit(sender.run)
        for number in range(times):
            due = (number + 1) * len(requests) // (times + 1)
            until(lambda due=due: sending.done() or len(burst.answers) + len(burst.lost) >= due)
            began = monotonic()
            assert service.end() == 0
            service = start()
            gaps.append(monotonic() - began)
        sending.result()
        taken = {
            messages[place].event_id
            for place, answer in burst.answers.items()
            if status_of(answer) == 200
        }
        until(lambda: rows(folder, "SELECT count(*) FROM deliveries")[0][0] >= len(taken))
        assert service.end() == 0
    statuses = Counter(status_of(answer) for answer in burst.answers.values())
    print(
        f"{len(requests):,} deliveries at {RATE} a second over {times} restarts of "
        f"{max(gaps):.1f} s at most: {dict(statuses)}, {len(burst.lost)} lost, {burst.late} sent "
        f"late, the slowest answer after {burst.slowest:.1f} s"
    )
    assert burst.lost == []
    assert set(statuses) <= ({200, 503} if any(SLOW in bytes(log) for log in logs) else {200})
    assert Counter(row[0] for row in rows(folder, KEPT)) == Counter(taken)


def test_no_delivery_is_refused_while_the_service_is_restarted(tmp_path: Path) -> None:
    """Whoever holds the socket open, as systemd does, lets the next process answer those who
    connected while there was none. Only a disk that is slow may refuse, and says so."""
    restarted(tmp_path, seconds=2, times=1)


@pytest.mark.soak
def test_no_delivery_is_refused_in_four_restarts(tmp_path: Path) -> None:
    """The same at full length."""
    restarted(tmp_path, seconds=20, times=4)


# --- proxies --------------------------------------------------------------------------------------


class Made(Protocol):
    """A proxy's configuration, written into a folder; returns the words that start it."""

    __name__: str

    def __call__(self, folder: Path, *, port: int, service: int) -> list[str]: ...


def nginx(folder: Path, *, port: int, service: int) -> list[str]:
    """Run nginx with the shipped configuration, but for names, certificates and ports."""
    shipped = (FOLDER / "proxy" / "nginx.conf").read_text()
    plain = re.sub(r"\s*ssl_certificate[^;]*;", "", shipped)
    plain = plain.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    plain = plain.replace("127.0.0.1:8080", f"127.0.0.1:{service}")
    path = folder / "nginx.conf"
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off;\n{places}{plain}}}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(path)]


def caddy(folder: Path, *, port: int, service: int) -> list[str]:
    """Caddy, the same."""
    shipped = (FOLDER / "proxy" / "Caddyfile").read_text()
    plain = shipped.replace("payments.shop.example {", f"http://payments.shop.example:{port} {{")
    plain = plain.replace("console.shop.example {", f"http://console.shop.example:{port} {{")
    plain = plain.replace("127.0.0.1:8080", f"127.0.0.1:{service}")
    path = folder / "Caddyfile"
    path.write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{plain}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(path)]


@contextmanager
def proxy(words: list[str], folder: Path, port: int) -> Iterator[None]:
    """Run a proxy until the block ends."""
    log = folder / "proxy.log"
    with log.open("wb") as out:
        environment = {"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/bin"}
        started = subprocess.Popen(words, stdout=out, stderr=out, env=environment)
    try:
        until(lambda: started.poll() is not None or listens(port), otherwise=log.read_text)
        assert started.poll() is None, log.read_text()
        yield
    finally:
        end(started)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("made", [nginx, caddy], ids=["nginx", "caddy"])
def test_deliveries_come_through_a_proxy(tmp_path: Path, made: Made) -> None:
    """Signatures hold, the sender's own address is the one that counts, whatever he says of it, and
    nothing but deliveries is let through."""
    if shutil.which(made.__name__) is None:
        pytest.skip(f"{made.__name__} is not installed")
    port = free_port()
    folder = tmp_path / "proxy"
    folder.mkdir()
    settings = {"FORWARDED_ALLOW_IPS": "127.0.0.1", "REJECTIONS_PER_MINUTE_PER_ADDRESS": "3"}
    with serving(tmp_path, **settings) as service:
        with proxy(made(folder, port=port, service=service.port), folder, port):
            assert deliver(port, event("e1"), headers=HOST)[0] == 200
            assert ask(port, "GET", "/readyz") == 404
            assert ask(port, "GET", "/metrics") == 404
            assert ask(port, "GET", "/api/v1/orders/ORD-1") == 404
            unsigned = [
                ask(port, "POST", "/webhooks/shop", sender="127.0.0.2", says=f"203.0.113.{n}")
                for n in range(4)
            ]
            assert unsigned == [401, 401, 401, 429]
            assert ask(port, "POST", "/webhooks/shop", sender="127.0.0.3") == 401
        until(lambda: "stored" in verdicts(service))


HOST = {"Host": "payments.shop.example"}


def ask(port: int, method: str, path: str, *, sender: str = "127.0.0.1", says: str = "") -> int:
    """Return the status of an answer. says: the address that the sender claims to have."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=PATIENCE_S, source_address=(sender, 0)
    )
    try:
        claimed = {"X-Forwarded-For": says} if says else {}
        connection.request(method, path, b"{}" if method == "POST" else b"", HOST | claimed)
        return connection.getresponse().status
    finally:
        connection.close()


def verdicts(service: Process) -> list[str]:
    figures = service.request("GET", "/metrics")[2].decode()
    found = re.findall(r'deliveries_read_total\{source="shop",verdict="(\w+)"\} (\S+)', figures)
    return [verdict for verdict, count in found if float(count)]
