"""Ports for servers that must be told theirs before they start."""

from __future__ import annotations

import os
import socket
from itertools import count

FIRST = 20_000
"""Below those that the kernel gives to whoever asks for any: no client and no server that asks for
one can be in the way when the port is taken at last."""

EACH = 1_000
"""Ports for each worker of a run of the suite."""

_numbers = count(os.getpid())


def free_port() -> int:
    """A port of the loopback address that nobody listens on, and no other test is given."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = FIRST + EACH * (worker % 10) + next(_numbers) % EACH
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
