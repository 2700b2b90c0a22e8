"""The one clock. Nothing else in the package asks what time it is.

An operation reads its clock once and hands the instant on, so that everything it decides is
decided as of one moment.
"""

from __future__ import annotations

import time
from typing import Protocol

from reconcile.instants import Instant


class Clock(Protocol):
    """Anything that can say what time it is."""

    def now(self) -> Instant:
        """Microseconds since the Unix epoch, UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> Instant:
        """Microseconds since the Unix epoch, UTC."""
        return Instant(time.time_ns() // 1000)


class SetClock:
    """A clock that stands where it was put: for simulations and tests."""

    def __init__(self, instant: Instant) -> None:
        self._instant = instant

    def now(self) -> Instant:
        """The instant it was last put at."""
        return self._instant

    def put(self, instant: Instant) -> None:
        """Move the clock, in either direction."""
        self._instant = instant
