"""The one clock: no other module reads the time.

An operation reads its clock once and passes the instant on, so that all its decisions are based on
one time.
"""

import time
from time import monotonic
from typing import Final, Protocol

from reconcile.instants import MINUTE, SECOND, Duration, Instant

CLOCKS_DIFFER: Final[Duration] = 15 * MINUTE
"""Largest difference between two clocks that counts as normal. If a revision is dated further
ahead, a clock is wrong."""


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> Instant:
        """Return microseconds since the Unix epoch, UTC."""
        ...


LEAP_REST_S: Final = 86_400.0
"""Seconds for which nothing is deleted after the clock jumped forward. In this time, somebody can
notice the jump."""


class LeapGuard:
    """Detector of forward jumps of the clock. It keeps data from being deleted because of a wrong
    date. It compares the clock with the machine's monotonic clock, which nobody can set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[Instant, float] | None = None
        self._rests_until = 0.0

    def has_leapt(self) -> bool:
        """Return whether the clock jumped forward within the last LEAP_REST_S. Call this regularly,
        because only this call detects jumps."""
        now, elapsed = self._clock.now(), monotonic()
        if self._seen is not None:
            leap = now - self._seen[0] - round((elapsed - self._seen[1]) * SECOND)
            if leap > CLOCKS_DIFFER:
                self._rests_until = elapsed + LEAP_REST_S
        self._seen = now, elapsed
        return elapsed < self._rests_until


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1000)


class SetClock:
    """Clock that shows a fixed time until `put` changes it."""

    def __init__(self, instant: Instant) -> None:
        self._instant = instant

    def now(self) -> Instant:
        """Return the instant to which the clock was last set."""
        return self._instant

    def put(self, instant: Instant) -> None:
        """Set the clock to an instant, earlier or later."""
        self._instant = instant
