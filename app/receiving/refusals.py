"""Judgement of clocks: one is off if genuine deliveries are refused for their age, and none is
taken.

An age is judged only once the signature was found right, so whoever sends knows the secret: the two
clocks differ, or an old request comes again.

What this receiver judged is remembered in memory and in the order in which it judged it. The times
that are stored show no order while the clock is in doubt: when it was set back, those of deliveries
that were taken before are those of deliveries that are refused now. And each receiver has a clock
of its own.
"""

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
"""Addresses remembered, the latest ones: some 1 MiB. Who is forgotten begins afresh, which is why
there is an allowance for all together too."""

Decision = Literal["kept", "counted", "too_many"]
"""Of one rejection. kept: written and logged; counted: only that; too_many: this address must wait.
"""


class Allowance:
    """Rate limiter: so many a minute, and at once at most as many as a minute has."""

    __slots__ = ("_at", "_left", "_per_minute")

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def take(self, now: float, amount: int = 1) -> bool:
        """Take an amount from the allowance, if that is left as of `now`, in seconds."""
        refilled = self._left + (now - self._at) * self._per_minute / 60
        self._left, self._at = min(refilled, float(self._per_minute)), now
        if self._left < amount:
            return False
        self._left -= amount
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

    def decide(self, address: str) -> Decision:
        """Decide whether one more rejection from this address is kept."""
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
    """Return the network whose allowance an address uses: the address, or for IPv6 its /64, which
    one subscriber has whole.

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


LANES: Final = 4_096
"""Senders that are told apart when questions are asked in turn. So few that a lane, which is
stored, names nobody: a million IPv4 addresses share each."""


def lane_of(address: str) -> int:
    """Return the lane, of LANES, of an address."""
    return zlib.crc32(network_of(address).encode()) % LANES


@lru_cache(maxsize=1_024)  # each delivery asks, and most come from a few
def kind_of(address: str) -> str:
    """Return the kind of address: `loopback`, `private`, `public`, or `none` for a text that is no
    address, as a socket file's is."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "none"
    mapped = getattr(found, "ipv4_mapped", None)
    known = found if mapped is None else mapped
    return "loopback" if known.is_loopback else "private" if known.is_private else "public"


AGES: Final = ("timestamp_too_old", "timestamp_too_new")
"""The verdicts on a genuine delivery that is not of its time."""

WINDOW: Final[Duration] = 15 * MINUTE
"""How long a refusal counts. Within that a provider has usually sent again what was refused; what
came earlier says little of the clock as it is now."""

REFUSALS: Final = 3
"""From how many on of one source, with none taken in between: fewer may be late by themselves."""

BODIES: Final = 2
"""Of how many different bodies they must be: one request that is replayed proves nothing."""

KEPT: Final = 100
"""Bodies that are remembered of a source, those that were refused last."""


@dataclass(slots=True, kw_only=True)
class RefusedBody:
    """One body that was refused for its age: how often, when last, and the last reason."""

    times: int = 0
    last: Instant = EARLIEST
    problem: str = ""


class RefusedAges:
    """Refusals for age of one receiver, by source, since it last accepted a delivery of the source.

    Sources are those that are configured, so they are few.
    """

    def __init__(self) -> None:
        self._sources: dict[str, OrderedDict[str, RefusedBody]] = {}

    def taken(self, source: str) -> None:
        """Note a delivery of this source that was genuine and of its time: the clocks agree."""
        self._sources.pop(source, None)

    def refused(
        self,
        source: str,
        *,
        digest: str,
        at: Instant,
        problem: str,
    ) -> None:
        """Count a genuine delivery that was not of its time. `problem` says by how much."""
        bodies = self._sources.setdefault(source, OrderedDict())
        body = bodies.setdefault(digest, RefusedBody())
        body.times, body.last, body.problem = body.times + 1, at, problem
        bodies.move_to_end(digest)
        if len(bodies) > KEPT:
            bodies.popitem(last=False)

    def alarm(self, now: Instant) -> Alarm | None:
        """Return an alarm if so many deliveries were refused that a clock may be off."""
        suspect = {}
        for source, bodies in self._sources.items():
            # Those of a time that is still to come were refused before the clock was set back.
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
        sentence=f"{refused} were refused for their age ({each}), and none was taken in between: "
        "the clock of this machine or of the sender may be off, or old requests are sent again. Of "
        f"the latest: {latest.problem} Keep this clock by NTP and run `tallyhook doctor`, which "
        "compares it with the provider's where TALLYHOOK_CHECKOUT__BASE_URL is set. What was "
        "refused is not acknowledged, so most providers send it again.",
    )
