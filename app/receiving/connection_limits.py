"""Limits on connections: how many are open, and how long each may take.

A connection costs memory and a file descriptor before a single byte of it is verified, so their
number is bounded, in all and for each address, and one that does not get on is closed. One look at
all connections a second does that: a timer for each request would cost every delivery, and to be
a second late harms nobody.
"""

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.receiving.refusals import network_of

SWEEP_S: Final = 1.0
"""Seconds from one look at all connections to the next; nobody outstays a deadline by more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Each is a setting, where its reason stands.

    receive_deadline_s  from the first byte of a request, or from the connection's opening, until
                        the whole request is here
    send_deadline_s     until a reader has taken what waits for it in our memory
    connections         open at a time, in all
    per_address         open at a time from one address; the proxies are excepted
    max_head_bytes      of anything but a body, before the request is refused
    """

    receive_deadline_s: float
    send_deadline_s: float
    connections: int
    per_address: int
    max_head_bytes: int
    proxies: Sequence[str] = ()


class Guarded(Protocol):
    """A connection as its limits see it."""

    def overdue(self, now: float) -> str | None:
        """Return why the connection must be closed, as of the loop's time; None if it may stay."""
        ...

    def abort(self) -> None:
        """Close it now, whatever is still to be sent."""
        ...


class ConnectionLimits:
    """Admits connections and closes stalled ones. One for one server."""

    def __init__(self, limits: GateLimits) -> None:
        self.limits = limits
        self.open: dict[Guarded, str] = {}
        """Every open connection and whose it is."""
        self.refused: Counter[str] = Counter()
        """Connections that were not let in or were closed, by the reason."""
        self._of_address: Counter[str] = Counter()
        self._proxies = [ipaddress.ip_network(network, strict=False) for network in limits.proxies]

    def admits(self, connection: Guarded, address: str) -> bool:
        """Return whether the connection may be opened; if so, count it until `leaves`."""
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
        """Forget a connection that has ended. Harmless for one that was not admitted."""
        network = self.open.pop(connection, None)
        if network is not None:
            self._of_address[network] -= 1
            if not self._of_address[network]:
                del self._of_address[network]

    def _is_proxy(self, address: str) -> bool:
        """Return whether an address is a proxy's, whose connections are of many senders."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False  # a socket that has no address
        return any(found in network for network in self._proxies)

    def sweep(self, now: float) -> None:
        """Close connections that are overdue as of the loop's time."""
        for connection in list(self.open):
            reason = connection.overdue(now)
            if reason is not None:
                self.refused[reason] += 1
                connection.abort()
