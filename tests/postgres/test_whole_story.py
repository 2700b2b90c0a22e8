"""Story of a shop from nothing to paid: Stripe's events behind Caddy, on PostgreSQL, with console
and figures. Also a restart under load, and a wrong secret that the runbook mends."""

import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from app.cli.golive import FOLDER
from app.core.clock import SystemClock
from app.providers.examples import WantedEvent, find_example, shape_event
from app.providers.profile import load_profile
from app.providers.source import Source
from reconcile.money import from_major
from tests.docs.test_runbook import RUNBOOK
from tests.e2e.processes import Process
from tests.e2e.test_deploying import listens, proxy
from tests.floods.burst import Sender
from tests.floods.wire import status_of
from tests.ports import free_port
from tests.postgres.conftest import ask
from tests.waiting import PATIENCE_S, until

SECRET = "whsec_test_9f8e7d6c5b4a3f2e1d0c"
RATE = 100
SECONDS = 5
"""Seconds of deliveries over the restart."""


class Machine:
    """A folder with a configuration, as the pages' commands make it, and what runs there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._environment = {
            **{name: value for name, value in os.environ.items() if "TALLYHOOK" not in name},
            "TALLYHOOK_CONFIG": str(folder / "tallyhook.env"),
            "PYTHONPATH": str(FOLDER.parents[1]),
        }

    def does(self, command: str, *, code: int = 0) -> str:
        """Run a page's command; check its exit code and return its output."""
        program, *words = command.split()
        assert program == "tallyhook"
        done = subprocess.run(
            [sys.executable, "-m", "app", *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def set(self, **values: str) -> None:
        path = self.folder / "tallyhook.env"
        lines = [] if not path.exists() else path.read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in values]
        path.write_text("\n".join([*kept, *(f"{n}={v}" for n, v in values.items())]) + "\n")

    def starts(self, *words: str) -> Process:
        process = Process([sys.executable, "-m", "app", *words], self._environment)
        self._stack.callback(_gone, process)
        if words[0] == "serve":
            process.wait_until_ready()
        return process


def _gone(process: Process) -> None:
    if process.popen.poll() is None:
        process.popen.kill()
    process.code()
    assert process.popen.stderr is not None
    process.popen.stderr.close()


def requests(secret: str, orders: Sequence[str]) -> list[bytes]:
    """Return Stripe's requests about a payment of each order, signed with this secret."""
    source = Source(name="stripe", profile=load_profile("stripe"), secrets=[secret])
    paid = find_example("stripe", "payment_intent.succeeded")
    made = []
    for order in orders:
        wanted = WantedEvent(order=order, session=None, amount=from_major("1500.00", "KES"))
        signed = shape_event(source, paid, wanted, now=SystemClock().now(), url="")
        lines = [f"{name}: {value}" for name, value in signed.headers]
        head = "\r\n".join(
            [
                "POST /webhooks/stripe HTTP/1.1",
                "Host: payments.shop.example",
                f"Content-Length: {len(signed.body)}",
                *lines,
            ]
        )
        made.append(f"{head}\r\n\r\n".encode("latin-1") + signed.body)
    return made


def asked(port: int, path: str, host: str, token: str = "") -> tuple[int, str]:
    """Return status and body of a GET for this name."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers={"Host": host, **bearer})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@contextmanager
def behind_caddy(folder: Path, *, port: int, receiver: int, console: int) -> Iterator[None]:
    """Run Caddy with the shipped configuration, but for certificates and ports."""
    text = (FOLDER / "proxy" / "Caddyfile").read_text()
    for name in ("payments", "console"):
        text = text.replace(f"{name}.shop.example {{", f"http://{name}.shop.example:{port} {{")
    text = text.replace(":8080", f":{receiver}").replace(":8081", f":{console}")
    path = folder / "Caddyfile"
    path.write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{text}")
    words = ["caddy", "run", "--adapter", "caddyfile", "--config", str(path)]
    with proxy(words, folder, port):
        yield


class Story:
    """The parts of the story."""

    def __init__(self, folder: Path, stack: ExitStack, database: str) -> None:
        self.machine = Machine(folder, stack)
        self.database = database
        self._folder, self._stack = folder, stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        self._listener.set_inheritable(True)
        self.receiver, self.port = self._listener.getsockname()[1], free_port()

    def serve(self) -> Process:
        """Serve behind the socket that stays open."""
        return self.machine.starts("serve", "--fd", str(self._listener.fileno()))

    def sent(self, orders: Sequence[str]) -> Sender:
        """Send the payments of these orders to Caddy, each on a connection of its own."""
        return Sender(self.port, requests(SECRET, orders), rate=RATE, kept=False)

    def until_paid(self, count: int) -> None:
        """Wait until so many orders are paid."""
        paid = "SELECT count(*) FROM ledgers WHERE outcome = 'succeeded'"
        until(lambda: ask(self.database, paid)[0][0] == count)

    def deploy(self) -> Process:
        """Connect, migrate and serve, with a console, behind Caddy, which shows no figures."""
        machine, console = self.machine, free_port()
        machine.set(
            TALLYHOOK_DATABASE_URL=self.database,
            TALLYHOOK_FORWARDED_ALLOW_IPS="127.0.0.0/8",
            TALLYHOOK_CONSOLE__PUBLIC_URL="https://console.shop.example",
        )
        (self._folder / "secret.txt").write_text(SECRET)
        machine.does("tallyhook connect stripe --secret-file secret.txt")
        machine.does("tallyhook db upgrade")
        service = self.serve()
        invited = machine.does("tallyhook operators invite ann --role admin")
        assert "https://console.shop.example/" in invited
        people = machine.starts("console", "--port", str(console))
        until(lambda: listens(console), otherwise=lambda: people.log)
        caddy = behind_caddy(self._folder, port=self.port, receiver=self.receiver, console=console)
        self._stack.enter_context(caddy)
        status, page = asked(self.port, "/sign-in", "console.shop.example")
        assert (status, "<form" in page) == (200, True), page
        assert asked(self.port, "/metrics", "payments.shop.example")[0] == 404
        return service

    def restart_under_load(self, service: Process) -> Process:
        """Restart; no delivery is refused, and each order is paid."""
        sender = self.sent([f"ORD-{number}" for number in range(RATE * SECONDS)])
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(sender.run)
            until(lambda: len(sender.burst.answers) > RATE)
            assert service.end() == 0
            service = self.serve()
            burst = sending.result()
        statuses = {status_of(answer) for answer in burst.answers.values()}
        assert (statuses, burst.lost) == ({200}, [])
        self.until_paid(RATE * SECONDS)
        return service

    def mend_a_wrong_secret(self, service: Process) -> None:
        """Correct a wrong secret as the runbook says; refused deliveries are then accepted."""
        machine = self.machine
        machine.set(TALLYHOOK_SOURCES__STRIPE__SECRETS="whsec_of_another_endpoint_1234")
        assert service.end() == 0
        service = self.serve()
        refused = self.sent(["ORD-late"]).run()
        assert [status_of(answer) for answer in refused.answers.values()] == [401]
        figures = asked(self.receiver, "/metrics", "127.0.0.1")[1]
        assert re.search(r'deliveries_total\{.*verdict="signature_mismatch"\} 1', figures)
        entry = RUNBOOK.read_text().partition("## A secret is wrong")[2].partition("\n## ")[0]
        look, diagnose, again = re.findall(r"`(tallyhook [^`]+)`", entry)
        kept = "SELECT count(*) FROM rejections"
        until(lambda: ask(self.database, kept)[0][0] == 1)  # the reader takes refused ones, too
        (delivery,) = re.findall(r"dlv_\w+", machine.does(f"{look} --format csv"))
        said = machine.does(diagnose.replace("ID", delivery), code=1)
        assert "secret is not configured here" in said
        machine.set(TALLYHOOK_SOURCES__STRIPE__SECRETS=SECRET)
        assert service.end() == 0
        self.serve()
        assert "1 accepted" in machine.does(again.replace("NAME", "stripe") + " --by ann")
        self.until_paid(RATE * SECONDS + 1)
        assert "succeeded" in machine.does("tallyhook orders show ORD-late")


@pytest.mark.soak
@pytest.mark.postgres
def test_from_nothing_to_a_mended_secret(empty_url: str, tmp_path: Path) -> None:
    """By the pages' own commands, from a fresh clone."""
    if shutil.which("caddy") is None:
        pytest.skip("Caddy is not installed")
    with ExitStack() as stack:
        story = Story(tmp_path, stack, empty_url)
        service = story.restart_under_load(story.deploy())
        story.mend_a_wrong_secret(service)
