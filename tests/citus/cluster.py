"""A Citus cluster of one coordinator and two workers, where Citus is installed.

They listen on sockets in folders of their own, and know each other by these folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from tests.memory import memory
from tests.postgres.conftest import ask
from tests.postgres.server import PORT, Programs, Server, programs

SETTINGS = (
    "shared_preload_libraries=citus",
    "max_prepared_transactions=100",
    "max_connections=100",
    "citus.shard_count=4",
    # A node that returns is to be told soon what became of its prepared transactions.
    "citus.recover_2pc_interval=1s",
    "citus.enable_statistics_collection=off",
)

_numbers = count(1)


@cache
def installed() -> Path | None:
    """Return the folder of PostgreSQL's programs that have Citus; None where there is none."""
    for control in sorted(Path("/usr/share/postgresql").glob("*/extension/citus.control")):
        programs_of = Path("/usr/lib/postgresql") / control.parts[4] / "bin"
        if (programs_of / "initdb").exists():
            return programs_of
    return None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The servers, which run."""

    coordinator: Server
    workers: tuple[Server, Server]

    def database(self) -> str:
        """Make an empty database on each node; return its URL on the coordinator."""
        name = f"tallyhook_{os.getpid()}_{next(_numbers)}"
        for server in (*self.workers, self.coordinator):
            ask(server.url("postgres"), f"CREATE DATABASE {name}")
            ask(server.url(name), "CREATE EXTENSION citus")
        nodes = [f"SELECT citus_add_node('{each.folder}', {PORT})" for each in self.workers]
        here = f"SELECT citus_set_coordinator_host('{self.coordinator.folder}', {PORT})"
        ask(self.coordinator.url(name), here, *nodes)
        return self.coordinator.url(name)


def settings_of(server: Server) -> tuple[str, ...]:
    """Return the settings with which a node starts."""
    return (*SETTINGS, f"citus.local_hostname={server.folder}")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a cluster of empty servers."""
    found = installed()
    assert found is not None
    with programs(within=memory()) as (_, folder):
        ours = Programs(folder, installed=found)
        servers = [Server(ours, folder / name) for name in ("c", "w1", "w2")]
        try:
            for each in servers:
                each.make()
                each.start(*settings_of(each))
            yield Cluster(servers[0], (servers[1], servers[2]))
        finally:
            for each in servers:
                each.stop()
