"""The one clock: no other module asks for the time.

An operation reads its clock once and hands the instant on, so that all its decisions are as of one
moment.
"""

import time
from typing import Final, Protocol

from reconcile.instants import MINUTE, Duration, Instant

CLOCKS_DIFFER: Final[Duration] = 15 * MINUTE
"""How far clocks of several machines may differ, and one may be stepped. What a clock so little
ahead has published comes true by itself within that time; what is dated later was dated wrongly."""


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> Instant:
        """Return microseconds since the Unix epoch, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1000)


class SetClock:
    """Clock that stands where it was put: for simulations and tests."""

    def __init__(self, instant: Instant) -> None:
        self._instant = instant

    def now(self) -> Instant:
        """Return the instant at which it was last put."""
        return self._instant

    def put(self, instant: Instant) -> None:
        """Move the clock, in either direction."""
        self._instant = instant
