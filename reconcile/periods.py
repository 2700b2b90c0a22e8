"""Calendar months as periods, in UTC: `2026-10` is from its first microsecond to November's.

Leaves out: other time zones. Books, statements and webhooks meet in one zone; a shop elsewhere
closes a month whose first and last hours are its neighbours', which the figures show as such.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from reconcile.instants import DAY, Instant
from reconcile.values import frozen

_NAME = re.compile(r"(?!9999-12)(19[7-9]\d|[2-9]\d{3})-(0[1-9]|1[0-2])", re.ASCII)
"""Not the last month of 9999, after which no calendar goes on."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)


@frozen
class Month:
    """One calendar month of UTC."""

    year: int
    number: int

    @property
    def name(self) -> str:
        """`2026-10`"""
        return f"{self.year}-{self.number:02d}"

    @property
    def start(self) -> Instant:
        """Its first microsecond."""
        return Instant((datetime(self.year, self.number, 1, tzinfo=UTC) - _EPOCH) // _TICK)

    @property
    def end(self) -> Instant:
        """The first microsecond after it."""
        return self.following.start

    @property
    def following(self) -> Month:
        """The month after it."""
        year, place = divmod(self.year * 12 + self.number, 12)
        return Month(year=year, number=place + 1)


def month_named(name: str) -> Month:
    """`2026-10` as a month. Raises ValueError with a sentence for anything else."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError("a period is a month, such as 2026-10")
    return Month(year=int(match[1]), number=int(match[2]))


def day_of(instant: Instant) -> str:
    """The day that an instant is on, in UTC: `2026-10-12`."""
    return (_EPOCH + timedelta(days=instant // DAY)).strftime("%Y-%m-%d")
