"""Limits on the number of open connections, and on the time that each may take.

A connection costs memory and a file descriptor before a byte of it is verified. So the number of
connections is limited, both in total and for each address. Stalled connections are closed. They are
checked once a second, because a timer for each request would slow every delivery.

Leaves out: parsing (`guard`).
"""

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.receiving.refusals import network_of

SWEEP_S: Final = 1.0
"""Seconds between two checks of all connections. A connection may therefore exceed its deadline by
a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Limits of connections. The description of each setting gives the reason.

    receive_deadline_s  seconds for the whole request, from its first byte or the opening of the
                        connection
    send_deadline_s     seconds for the client to read bytes that wait in this process's memory
    connections         maximum number of open connections
    per_address         maximum number of open connections from one address that is not a proxy
    max_head_bytes      maximum number of bytes of a request without its body
    """

    receive_deadline_s: float
    send_deadline_s: float
    connections: int
    per_address: int
    max_head_bytes: int
    proxies: Sequence[str] = ()


class Guarded(Protocol):
    """Interface of a connection that ConnectionLimits can limit."""

    def overdue(self, now: float) -> str | None:
        """Return why the connection must be closed at `now`, the event loop's time; None to keep it
        open."""
        ...

    def abort(self) -> None:
        """Close the connection now, even if bytes are unsent."""
        ...


class ConnectionLimits:
    """Admission of connections to one server, and closing of stalled ones."""

    def __init__(self, limits: GateLimits) -> None:
        self.limits = limits
        self.open: dict[Guarded, str] = {}
        """Every open connection, with its address."""
        self.refused: Counter[str] = Counter()
        """Counts of connections that were refused or closed, by reason."""
        self._of_address: Counter[str] = Counter()
        self._proxies = [ipaddress.ip_network(network) for network in limits.proxies]

    def admits(self, connection: Guarded, address: str) -> bool:
        """Return whether the connection may open. If so, count it until `leaves` is called."""
        if len(self.open) >= self.limits.connections:
            self.refused["too_many_connections"] += 1
            return False
        network = network_of(address)
        if self._of_address[network] >= self.limits.per_address and not self._is_proxy(address):
            self.refused["too_many_of_one_address"] += 1
            return False
        self.open[connection] = network
        self._of_address[network] += 1
        return True

    def leaves(self, connection: Guarded) -> None:
        """Remove a closed connection from the count, if it was admitted."""
        network = self.open.pop(connection, None)
        if network is not None:
            self._of_address[network] -= 1
            if not self._of_address[network]:
                del self._of_address[network]

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False  # a socket that has no address
        return any(found in network for network in self._proxies)

    def sweep(self, now: float) -> None:
        """Close overdue connections. `now` is the event loop's time."""
        for connection in list(self.open):
            reason = connection.overdue(now)
            if reason is not None:
                self.refused[reason] += 1
                connection.abort()
