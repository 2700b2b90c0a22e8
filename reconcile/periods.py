"""Calendar days and months as periods: `2026-10` is from its first microsecond to November's, in
the zone of whoever counts it.

Leaves out: which zone that is, and which months are closed. A zone is handed over as what Python
calls a `tzinfo`; its days have 23 and 25 hours where its clocks are changed.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from reconcile.instants import EARLIEST, LATEST, Instant, instant_of, moment_of
from reconcile.values import frozen

_NAME = re.compile(r"(?!9999-12)(19[7-9]\d|[2-9]\d{3})-(0[1-9]|1[0-2])", re.ASCII)
"""Not the last month of 9999, after which no calendar goes on."""
_DAY = re.compile(r"(?:19[7-9]\d|[2-9]\d{3})-\d\d-\d\d", re.ASCII)
_ONE_DAY: Final = timedelta(days=1)


@frozen
class Month:
    """One calendar month.

    zone    the name of the zone in which it is counted
    bounds  its first microsecond and the first after it; None: those of UTC
    """

    year: int
    number: int
    zone: str = "UTC"
    bounds: tuple[Instant, Instant] | None = None

    @property
    def name(self) -> str:
        """`2026-10`"""
        return f"{self.year}-{self.number:02d}"

    @property
    def start(self) -> Instant:
        """Its first microsecond."""
        return (
            _midnight(date(self.year, self.number, 1), UTC) if not self.bounds else self.bounds[0]
        )

    @property
    def end(self) -> Instant:
        """The first microsecond after it."""
        if self.bounds:
            return self.bounds[1]
        return _midnight(_first_of(*_after(self.year, self.number)), UTC)

    @property
    def is_of_utc(self) -> bool:
        """Whether it begins and ends as months of UTC do, and is called so."""
        plain = Month(year=self.year, number=self.number)
        return (self.zone, self.start, self.end) == (plain.zone, plain.start, plain.end)

    @property
    def following_name(self) -> str:
        """The name of the month after it."""
        year, number = _after(self.year, self.number)
        return f"{year}-{number:02d}"


def _after(year: int, number: int) -> tuple[int, int]:
    later, place = divmod(year * 12 + number, 12)
    return later, place + 1


def _first_of(year: int, number: int) -> date:
    return date(year, number, 1)


def month_named(name: str) -> Month:
    """`2026-10` as a month of UTC. Raises ValueError with a sentence for anything else."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError("a period is a month, such as 2026-10")
    return Month(year=int(match[1]), number=int(match[2]))


def _midnight(day: date, zone: tzinfo) -> Instant:
    """When a day begins. Where clocks skip its midnight it begins with the skip."""
    return instant_of(datetime(day.year, day.month, day.day, tzinfo=zone))


class Calendar:
    """Days and months of one zone, on books of which some months may be closed.

    The first open month begins where the last closed one ended, whatever zone that was counted in:
    months neither overlap nor leave a gap.
    """

    def __init__(self, zone: tzinfo = UTC, *, closed: Month | None = None) -> None:
        """closed: the last closed month."""
        self.zone, self._closed = zone, closed

    @property
    def name(self) -> str:
        """The name of the zone."""
        return str(self.zone)

    def day(self, text: str) -> tuple[Instant, Instant]:
        """When the day `2026-10-12` begins, and when the one after it. Raises ValueError with a
        sentence for what is no day of 1970 to 9999."""
        if _DAY.fullmatch(text) is None:
            raise ValueError("not a day such as 2026-10-01")
        day = date.fromisoformat(text)
        begin = max(_midnight(day, self.zone), EARLIEST)
        return begin, LATEST if day == date.max else _midnight(day + _ONE_DAY, self.zone)

    def day_of(self, instant: Instant) -> str:
        """The day that an instant is on: `2026-10-12`."""
        return self._date(instant).isoformat()

    def next_day(self, instant: Instant, *, days: int = 1) -> Instant:
        """The first moment of the day so many days after the one of the instant."""
        return _midnight(self._date(instant) + days * _ONE_DAY, self.zone)

    def next_month(self, instant: Instant) -> Instant:
        """The first moment of the calendar month after the one that holds the instant."""
        day = self._date(instant)
        return _midnight(_first_of(*_after(day.year, day.month)), self.zone)

    def month(self, name: str) -> Month:
        """An open month. Raises ValueError with a sentence for what is no month."""
        plain = month_named(name)
        start = _midnight(_first_of(plain.year, plain.number), self.zone)
        end = _midnight(_first_of(*_after(plain.year, plain.number)), self.zone)
        if self._closed is not None and self._closed.following_name == plain.name:
            start = self._closed.end
        month = Month(year=plain.year, number=plain.number, zone=self.name, bounds=(start, end))
        return plain if month.is_of_utc else month

    def month_at(self, instant: Instant) -> Month:
        """The open month that an instant is in. Raises ValueError for an instant before its
        beginning: which closed month that is, its closing states."""
        closed = self._closed
        month = self.month(self.day_of(instant)[:7])
        if closed is None:
            return month
        if instant < closed.end:
            raise ValueError("the months of then are closed")
        return self.month(closed.following_name) if month.name <= closed.name else month

    def following(self, month: Month) -> Month:
        """The month after it."""
        return self.month(month.following_name)

    def _date(self, instant: Instant) -> date:
        moment = moment_of(instant)
        try:
            return moment.astimezone(self.zone).date()
        except OverflowError:  # the last hours of the calendar, which the zone has no more
            return moment.date()


IN_UTC: Final = Calendar()


def day_of(instant: Instant) -> str:
    """The day that an instant is on, in UTC: `2026-10-12`."""
    return IN_UTC.day_of(instant)
