"""Alarm about a wrong clock, and limits on storing rejections."""

import ipaddress
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Final, Literal

from app.core.alarm import Alarm
from app.core.text import counted
from reconcile.instants import EARLIEST, MINUTE, Duration, Instant

MAX_ADDRESSES: Final = 4096
"""Maximum number of remembered addresses, which take about 1 MiB."""

Decision = Literal["kept", "counted", "too_many"]
"""Decision about a rejected request.

kept      the request is stored and logged
counted   the request is only counted
too_many  the request's address must wait
"""


class Allowance:
    """Allowance that is refilled at a constant rate, up to the amount for one minute."""

    __slots__ = ("_at", "_left", "_per_minute")

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def take(self, now: float, amount: int = 1) -> bool:
        """Use up an allowance. Return whether enough was left."""
        refilled = self._left + (now - self._at) * self._per_minute / 60
        self._left, self._at = min(refilled, float(self._per_minute)), now
        if self._left < amount:
            return False
        self._left -= amount
        return True


class RejectionRate:
    """Limits on stored rejections, in total and for each address."""

    def __init__(
        self, *, in_all: int, per_address: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._clock = clock
        self._per_address = per_address
        self._all = Allowance(in_all, clock())
        self._addresses: OrderedDict[str, Allowance] = OrderedDict()

    def decide(self, address: str) -> Decision:
        """Decide on one more rejection, and use up the allowance."""
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
    """Return an address's IPv4 address or IPv6 /64 network."""
    if "." in address and ":" not in address:
        return address if len(address) <= 15 else "none"
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return "none"
    mapped = found.ipv4_mapped
    return str(int(found) >> 64) if mapped is None else str(mapped)


LANES: Final = 4_096
"""Number of groups of senders, which take turns in questions."""


def lane_of(address: str) -> int:
    """Return the number of the address's group."""
    return zlib.crc32(network_of(address).encode()) % LANES


@lru_cache(maxsize=1_024)  # called for each delivery; most come from few addresses
def kind_of(address: str) -> str:
    """Return an address's kind: `loopback`, `private`, `public`, or `none` for other text."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "none"
    mapped = getattr(found, "ipv4_mapped", None)
    known = found if mapped is None else mapped
    return "loopback" if known.is_loopback else "private" if known.is_private else "public"


AGES: Final = ("timestamp_too_old", "timestamp_too_new")

WINDOW: Final[Duration] = 15 * MINUTE
"""Time for which a rejection counts."""

REFUSALS: Final = 3
"""Number of rejections in a row that raise the alarm."""

BODIES: Final = 2
"""Minimum number of different rejected bodies for the alarm."""

KEPT: Final = 100
"""Maximum number of remembered rejected bodies for each source."""


@dataclass(slots=True, kw_only=True)
class RefusedBody:
    """Body that was rejected for its age."""

    times: int = 0
    last: Instant = EARLIEST
    problem: str = ""


class RefusedAges:
    """Deliveries rejected for their age, by source."""

    def __init__(self) -> None:
        self._sources: dict[str, OrderedDict[str, RefusedBody]] = {}

    def taken(self, source: str) -> None:
        """Clear the rejections of a source after a genuine delivery."""
        self._sources.pop(source, None)

    def refused(
        self,
        source: str,
        *,
        digest: str,
        at: Instant,
        problem: str,
    ) -> None:
        """Count a genuine delivery with a wrong timestamp."""
        bodies = self._sources.setdefault(source, OrderedDict())
        body = bodies.setdefault(digest, RefusedBody())
        body.times, body.last, body.problem = body.times + 1, at, problem
        bodies.move_to_end(digest)
        if len(bodies) > KEPT:
            bodies.popitem(last=False)

    def alarm(self, now: Instant) -> Alarm | None:
        """Return an alarm if rejections suggest a wrong clock."""
        suspect = {}
        for source, bodies in self._sources.items():
            # Refusals with a future time were made before the clock was set back.
            recent = [body for body in bodies.values() if now - WINDOW <= body.last <= now]
            if len(recent) >= BODIES and sum(body.times for body in recent) >= REFUSALS:
                suspect[source] = recent
        return _alarm(suspect) if suspect else None


def _alarm(sources: dict[str, list[RefusedBody]]) -> Alarm:
    times = {source: sum(body.times for body in found) for source, found in sources.items()}
    each = ", ".join(f"{count:,} of {source}" for source, count in sorted(times.items()))
    refused = counted(sum(times.values()), "genuine delivery", "genuine deliveries")
    latest = max((body for found in sources.values() for body in found), key=lambda b: b.last)
    return Alarm(
        reason="deliveries_refused_for_age",
        problem=f"{refused} were refused because of their age ({each}), and none was accepted in "
        "between. The clock of this machine or of the sender may be wrong, or old requests are "
        f"being sent again. Reason of the latest refusal: {latest.problem.removesuffix('.')}",
        do="set this machine's clock by NTP and run `tallyhook doctor`, which compares it with the "
        "provider's if TALLYHOOK_CHECKOUT__BASE_URL is set. Refused deliveries are not "
        "acknowledged, so most providers send them again",
    )
