"""Find ports for servers that must know theirs before they start."""

import os
import socket
from itertools import count

FIRST = 20_000
"""Below the ports that the kernel hands out itself, so that nobody gets this one meanwhile."""

EACH = 1_000
"""Number of ports for each worker of the suite."""

_numbers = count(os.getpid())


def free_port() -> int:
    """Return a loopback port that nobody listens on and no other test gets."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = FIRST + EACH * (worker % 10) + next(_numbers) % EACH
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
