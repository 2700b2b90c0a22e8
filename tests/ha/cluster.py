"""A cluster on loopback, made from the files of `app/deploy/ha` with other addresses and folders.

Each machine of the example is an address of its own in 127.0.0.0/8, so the ports stay as they are.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from app.cli.golive import FOLDER
from tests.ha.tools import Tools
from tests.postgres.server import Programs, processes_of
from tests.waiting import until

NODES: Final = ("one", "two")
EXAMPLE: Final = FOLDER / "ha"
Mode = Literal["strict", "loose", "asynchronous"]
"""Waits of a commit for a standby: always, as in the example; only while one is there; or never."""

PASSWORD: Final = "password-of-tallyhook"
ASKED_S: Final = 2.0
"""Longest wait for an answer of Patroni's."""


class Cluster:
    """Three etcd members, two nodes and an HAProxy; each process is ended by its number."""

    def __init__(self, tools: Tools, programs: Programs, folder: Path, mode: Mode) -> None:
        """folder: is there, has a short name, and others may enter it."""
        self._tools, self._programs, self._folder = tools, programs, folder
        self._mode = mode
        pid = os.getpid()
        base = f"127.{100 + pid // 250 % 100}.{pid % 250 + 1}"
        self.address = {name: f"{base}.{n}" for n, name in enumerate((*NODES, "witness"), 1)}
        self.proxy = f"{base}.4"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.home = {name: folder / name for name in NODES}

    # --- files ------------------------------------------------------------------------------------

    def _example(self, name: str, changes: Mapping[str, str]) -> str:
        """Return a file of the example with parts replaced, each of which must be in it."""
        text = (EXAMPLE / name).read_text()
        for before, after in changes.items():
            assert before in text, f"{name}: {before}"
            text = text.replace(before, after)
        for number, machine in enumerate((*NODES, "witness"), 1):
            text = text.replace(f"10.0.0.{number}:", f"{self.address[machine]}:")
        return text

    def _patroni_file(self, name: str) -> Path:
        home = self.home[name]
        if not home.is_dir():
            self._programs.own(home)
        text = self._example(
            "patroni.yaml",
            {
                "name: one\n": f"name: {name}\n",
                "listen: 10.0.0.1": f"listen: {self.address[name]}",
                "connect_address: 10.0.0.1": f"connect_address: {self.address[name]}",
                "10.0.0.0/24": "127.0.0.0/8",
                "local all postgres peer": "local all postgres trust",
                "/usr/lib/postgresql/15/bin": str(self._programs.bin),
                "/var/lib/postgresql/15/tallyhook": str(home / "data"),
                "/var/run/postgresql": str(home),
                "mode: required": "mode: off",  # no watchdog may restart this machine
                "synchronous_mode: true": f"synchronous_mode: {self._mode != 'asynchronous'}",
                "mode_strict: true": f"mode_strict: {self._mode == 'strict'}",
            },
        )
        document = yaml.safe_load(text)
        document["postgresql"]["pgpass"] = str(home / "pgpass")
        return self._written(f"patroni-{name}.yaml", yaml.safe_dump(document))

    def _written(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        path.chmod(0o644)
        return path

    # --- processes --------------------------------------------------------------------------------

    def _start(self, name: str, *words: str | Path, **variables: str) -> None:
        user = self._programs.user
        group = None if user is None else pwd.getpwnam(user).pw_gid
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
                | variables,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )

    def start_etcd(self, machine: str) -> None:
        """Start the member of etcd on a machine."""
        data = self._folder / f"etcd-{machine}"
        if not data.is_dir():
            self._programs.own(data)
        changes = {
            "ETCD_NAME=one": f"ETCD_NAME={machine}",
            "URLS=http://10.0.0.1": f"URLS=http://{self.address[machine]}",
            "/var/lib/etcd/tallyhook": str(data),
        }
        lines = self._example("etcd.env", changes).splitlines()
        variables = dict(line.split("=", 1) for line in lines if line.startswith("ETCD_"))
        self._start(f"etcd-{machine}", self._tools.etcd, **variables)

    def start_patroni(self, node: str) -> None:
        """Start Patroni on a node, which starts PostgreSQL there."""
        self._start(f"patroni-{node}", self._tools.patroni, self._patroni_file(node))

    def start(self) -> None:
        """Start all; `one` leads, and `two` follows it."""
        for machine in self.address:
            self.start_etcd(machine)
        self.start_patroni("one")
        until(lambda: self.leader() == "one", otherwise=self.said)
        self.start_patroni("two")
        until(self.is_whole, otherwise=self.said)
        # HAProxy changes its user by itself; its file is read as it is but for the addresses.
        changes = {"bind 127.0.0.1": f"bind {self.proxy}"}
        file = self._written("haproxy.cfg", self._example("haproxy.cfg", changes))
        self._start("haproxy", self._tools.haproxy, "-db", "-f", file)

    def pid(self, name: str) -> int:
        """Return the process of a part: `etcd-witness`, `patroni-one`, `haproxy`."""
        return self._running[name].pid

    def servers(self, node: str) -> list[int]:
        """Return the processes of a node's PostgreSQL; none where it does not run."""
        with suppress(FileNotFoundError, ProcessLookupError):
            first = int((self.home[node] / "data" / "postmaster.pid").read_text().split()[0])
            return [first, *processes_of(first)]
        return []

    def kill(self, name: str) -> None:
        """Send a part SIGKILL, and wait until it is gone."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def kill_node(self, node: str) -> None:
        """Send Patroni and PostgreSQL of a node SIGKILL, as when its machine stops."""
        self.kill(f"patroni-{node}")
        self.signal(node, signal.SIGKILL)

    def signal(self, node: str, number: int) -> None:
        """Send all processes of a node's PostgreSQL a signal."""
        for pid in self.servers(node):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """End all, whatever state it is in."""
        for name in [name for name in self._running if name.startswith("patroni")]:
            self.kill_node(name.removeprefix("patroni-"))
        for node in NODES:
            self.signal(node, signal.SIGKILL)
        for name in list(self._running):
            self.kill(name)

    def said(self) -> str:
        """Return the ends of all logs."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"== {log.name}\n{log.read_text()[-1_500:]}" for log in logs)

    # --- questions --------------------------------------------------------------------------------

    def members(self) -> dict[str, dict[str, Any]]:
        """Return the nodes as any Patroni that answers describes them."""
        for node in NODES:
            with suppress(OSError, ValueError):
                url = f"http://{self.address[node]}:8008/cluster"
                with urllib.request.urlopen(url, timeout=ASKED_S) as answer:
                    return {each["name"]: each for each in json.load(answer)["members"]}
        return {}

    def leader(self) -> str | None:
        """Return the node that leads and takes writes."""
        for node in NODES:
            with suppress(OSError, urllib.error.HTTPError):
                url = f"http://{self.address[node]}:8008/primary"
                with urllib.request.urlopen(url, timeout=ASKED_S) as answer:
                    if answer.status == 200:
                        return node
        return None

    def is_whole(self) -> bool:
        """Return whether one node leads and the other follows, synchronously if it shall."""
        follows = "replica" if self._mode == "asynchronous" else "sync_standby"
        members = self.members().values()
        # Before 3.1 Patroni calls a standby that streams `running`, too.
        working = all(each["state"] in ("running", "streaming") for each in members)
        return working and sorted(each["role"] for each in members) == ["leader", follows]

    def control(self, *words: str) -> str:
        """Run `patronictl` as the runbook shows it; return its output."""
        done = subprocess.run(
            [str(self._tools.patronictl), "-c", str(self._patroni_file("one")), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def url_of(self, node: str, database: str, *, user: str = "postgres") -> str:
        """Return the URL of a database on one node."""
        place = f"{self.address[node]}:5432"
        return f"postgresql+asyncpg://{user}:password-of-{user}@{place}/{database}"

    def urls(self) -> dict[str, str]:
        """Return both addresses of the example: through HAProxy, and with several hosts."""
        lines = (EXAMPLE / "tallyhook.env").read_text().splitlines()
        name = "TALLYHOOK_DATABASE_URL="
        through, several = (line.partition(name)[2] for line in lines if name in line)
        for node, number in (("one", 1), ("two", 2)):
            several = several.replace(f"10.0.0.{number}", self.address[node])
        return {"haproxy": through.replace("127.0.0.1", self.proxy), "hosts": several}


@contextmanager
def whole(cluster: Cluster) -> Iterator[Cluster]:
    """Run a cluster until the block ends."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
