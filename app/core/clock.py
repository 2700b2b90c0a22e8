"""The program's only source of the current time.

An operation reads its clock once and passes the instant on.
"""

import time
from time import monotonic
from typing import Final, Protocol

from reconcile.instants import MINUTE, SECOND, Duration, Instant

CLOCKS_DIFFER: Final[Duration] = 15 * MINUTE
"""Maximum difference between two clocks that counts as normal. If a stored revision is dated
further ahead, a clock is wrong."""


class Clock(Protocol):
    """Source of the current time. A test can use a clock of its own."""

    def now(self) -> Instant:
        """Return the current time in microseconds since the Unix epoch, in UTC."""
        ...


LEAP_REST_S: Final = 86_400.0
"""Seconds after a forward jump of the clock in which nothing is deleted, so that somebody can
notice the jump."""


class LeapGuard:
    """Detector of forward jumps of the clock, by comparison with the monotonic clock.

    No data is deleted because of a wrong date.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[Instant, float] | None = None
        self._rests_until = 0.0

    def has_leapt(self) -> bool:
        """Return whether the clock jumped forward within the last 24 hours. Call this function
        regularly, because only its calls detect jumps."""
        now, elapsed = self._clock.now(), monotonic()
        if self._seen is not None:
            leap = now - self._seen[0] - round((elapsed - self._seen[1]) * SECOND)
            if leap > CLOCKS_DIFFER:
                self._rests_until = elapsed + LEAP_REST_S
        self._seen = now, elapsed
        return elapsed < self._rests_until


class SystemClock:
    """Clock that shows the time of the machine."""

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1000)


class SetClock:
    """Clock that shows a fixed time until `put` sets another time."""

    def __init__(self, instant: Instant) -> None:
        self._instant = instant

    def now(self) -> Instant:
        """Return the instant to which the clock was last set."""
        return self._instant

    def put(self, instant: Instant) -> None:
        """Set the clock to another instant, which may be earlier or later."""
        self._instant = instant
