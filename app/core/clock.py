"""The one clock: no other module reads the time.

An operation reads its clock once and passes the instant on, so that all its decisions are as of one
moment.
"""

import time
from time import monotonic
from typing import Final, Protocol

from reconcile.instants import MINUTE, SECOND, Duration, Instant

CLOCKS_DIFFER: Final[Duration] = 15 * MINUTE
"""Largest normal difference between clocks. A revision dated ahead by less becomes correct by
waiting; a date further ahead comes from a wrong clock."""


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> Instant:
        """Return microseconds since the Unix epoch, UTC."""
        ...


LEAP_REST_S: Final = 86_400.0
"""Seconds for which nothing is deleted by date after the clock jumped forward, so that somebody may
notice."""


class LeapGuard:
    """Detector of jumps of the clock, by the machine's elapsed time, which nobody can set. It
    protects data from deletion by a wrong date."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[Instant, float] | None = None
        self._rests_until = 0.0

    def has_leapt(self) -> bool:
        """Return whether the clock jumped forward within the last LEAP_REST_S. Call this regularly,
        because a jump is noticed only here."""
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
    """Clock that stands still between calls of `put`, for simulations and tests."""

    def __init__(self, instant: Instant) -> None:
        self._instant = instant

    def now(self) -> Instant:
        """Return the instant to which the clock was last set."""
        return self._instant

    def put(self, instant: Instant) -> None:
        """Set the clock to an instant, earlier or later."""
        self._instant = instant
