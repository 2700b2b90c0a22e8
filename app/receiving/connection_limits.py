"""Limits on the number and duration of open connections."""

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.receiving.refusals import network_of

SWEEP_S: Final = 1.0
"""Seconds between two checks of all connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Limits of connections."""

    receive_deadline_s: float
    send_deadline_s: float
    """Maximum seconds for the client to read waiting bytes."""
    connections: int
    per_address: int
    """Maximum number of connections from one address without a proxy."""
    max_head_bytes: int
    proxies: Sequence[str] = ()


class Guarded(Protocol):
    """Interface of a connection that can be limited."""

    def overdue(self, now: float) -> str | None:
        """Return the reason to close the connection, or None."""
        ...

    def abort(self) -> None:
        """Close the connection now, even if bytes are unsent."""
        ...


class ConnectionLimits:
    """The open connections of one server. New connections are admitted or refused, and stalled
    connections are closed."""

    def __init__(self, limits: GateLimits) -> None:
        self.limits = limits
        self.open: dict[Guarded, str] = {}
        """Every open connection, with its address."""
        self.refused: Counter[str] = Counter()
        """Counts of connections that were refused or closed, by reason."""
        self._of_address: Counter[str] = Counter()
        self._proxies = [ipaddress.ip_network(network) for network in limits.proxies]

    def admits(self, connection: Guarded, address: str) -> bool:
        """Return whether the connection can open."""
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
        """Stop counting a connection that was closed. Do nothing if it was never admitted."""
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
        """Close the connections that have exceeded a deadline."""
        for connection in list(self.open):
            reason = connection.overdue(now)
            if reason is not None:
                self.refused[reason] += 1
                connection.abort()
