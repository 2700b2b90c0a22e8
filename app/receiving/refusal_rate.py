"""How many rejections are worth keeping: a flood of them is counted, not written.

The same allowances hold what no signature proves, of a source that has none, within bounds.

Verification comes first, so a genuine delivery is never held back, whatever else comes from its
address. Of what does not verify, each address has an allowance, and all together have one.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final, Literal

MAX_ADDRESSES: Final = 4096
"""Addresses remembered, the latest ones: some 1 MiB. Who is forgotten begins afresh, which is why
there is an allowance for all together too."""

Fate = Literal["kept", "counted", "too_many"]
"""Of one rejection. kept: written and logged; counted: only that; too_many: this address must wait.
"""


class Allowance:
    """So many a minute, and at once at most as many as a minute has."""

    __slots__ = ("_at", "_left", "_per_minute")

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def take(self, now: float) -> bool:
        """Use one, if one is left as of `now`, in seconds."""
        refilled = self._left + (now - self._at) * self._per_minute / 60
        self._left, self._at = min(refilled, float(self._per_minute)), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class RejectionRate:
    """The allowances of one receiver. Times are of a clock that never goes back."""

    def __init__(
        self, *, in_all: int, per_address: int, clock: Callable[[], float] = monotonic
    ) -> None:
        """Both in rejections a minute."""
        self._clock = clock
        self._per_address = per_address
        self._all = Allowance(in_all, clock())
        self._addresses: OrderedDict[str, Allowance] = OrderedDict()

    def fate(self, address: str) -> Fate:
        """What becomes of one more rejection from this address."""
        now = self._clock()
        if not self._of(network_of(address), now).take(now):
            return "too_many"
        return "kept" if self._all.take(now) else "counted"

    def _of(self, address: str, now: float) -> Allowance:
        allowance = self._addresses.get(address)
        if allowance is None:
            allowance = self._addresses[address] = Allowance(self._per_address, now)
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        else:
            self._addresses.move_to_end(address)
        return allowance


def network_of(address: str) -> str:
    """Whose allowance an address uses: its own; of IPv6, its /64, which one subscriber has whole.

    All texts that are no address, which a proxy may hand on, share one.
    """
    if "." in address and ":" not in address:
        return address if len(address) <= 15 else "none"
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return "none"
    mapped = found.ipv4_mapped
    return str(int(found) >> 64) if mapped is None else str(mapped)
