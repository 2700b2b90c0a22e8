"""Calendar days and months as periods in a time zone."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from reconcile.instants import EARLIEST, LATEST, Instant, instant_of, moment_of

_NAME = re.compile(r"(?!9999-12)(19[7-9]\d|[2-9]\d{3})-(0[1-9]|1[0-2])", re.ASCII)
_DAY = re.compile(r"(?:19[7-9]\d|[2-9]\d{3})-\d\d-\d\d", re.ASCII)
_ONE_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """One calendar month in a time zone. The bounds of a month in UTC are None."""

    year: int
    number: int
    zone: str = "UTC"
    bounds: tuple[Instant, Instant] | None = None

    @property
    def name(self) -> str:
        """Return the name of the month, such as `2026-10`."""
        return f"{self.year}-{self.number:02d}"

    @property
    def start(self) -> Instant:
        return self.bounds[0] if self.bounds else _month_start(self.year, self.number, UTC)

    @property
    def end(self) -> Instant:
        """Return the first microsecond after the month."""
        return self.bounds[1] if self.bounds else _month_start(self.year, self.number + 1, UTC)

    @property
    def is_of_utc(self) -> bool:
        """Check whether the month's zone, start and end are those of UTC."""
        plain = Month(year=self.year, number=self.number)
        return (self.zone, self.start, self.end) == (plain.zone, plain.start, plain.end)

    @property
    def following_name(self) -> str:
        later, place = divmod(self.year * 12 + self.number, 12)
        return f"{later}-{place + 1:02d}"


def month_named(name: str) -> Month:
    """Parse a UTC month such as `2026-10`. Raise ValueError otherwise."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError("a period is a month, such as 2026-10")
    return Month(year=int(match[1]), number=int(match[2]))


def _midnight(day: date, zone: tzinfo) -> Instant:
    return instant_of(datetime(day.year, day.month, day.day, tzinfo=zone))


def _month_start(year: int, number: int, zone: tzinfo) -> Instant:
    later, place = divmod(year * 12 + number - 1, 12)
    return _midnight(date(later, place + 1, 1), zone)


class Calendar:
    """Days and months in one time zone, with closed months."""

    def __init__(self, zone: tzinfo = UTC, *, closed: Month | None = None) -> None:
        self.zone, self._closed = zone, closed

    @property
    def name(self) -> str:
        return str(self.zone)

    def day(self, text: str) -> tuple[Instant, Instant]:
        """Return the start of a day such as `2026-10-12` and of the next day. Raise ValueError
        otherwise."""
        if _DAY.fullmatch(text) is None:
            raise ValueError("not a day such as 2026-10-01")
        day = date.fromisoformat(text)
        begin = max(_midnight(day, self.zone), EARLIEST)
        return begin, LATEST if day == date.max else _midnight(day + _ONE_DAY, self.zone)

    def day_of(self, instant: Instant) -> str:
        """Return the day of an instant in the calendar's zone, such as `2026-10-12`."""
        return self._date(instant).isoformat()

    def next_day(self, instant: Instant, *, days: int = 1) -> Instant:
        """Return the start of the day `days` days later."""
        return _midnight(self._date(instant) + days * _ONE_DAY, self.zone)

    def next_month(self, instant: Instant) -> Instant:
        """Return the start of the calendar month after the month of the instant."""
        day = self._date(instant)
        return _month_start(day.year, day.month + 1, self.zone)

    def month(self, name: str) -> Month:
        """Return the open month with this name. Raise ValueError otherwise."""
        plain = month_named(name)
        start = _month_start(plain.year, plain.number, self.zone)
        end = _month_start(plain.year, plain.number + 1, self.zone)
        if self._closed is not None and self._closed.following_name == plain.name:
            start = self._closed.end
        month = Month(year=plain.year, number=plain.number, zone=self.name, bounds=(start, end))
        return plain if month.is_of_utc else month

    def month_at(self, instant: Instant) -> Month:
        """Return an instant's open month. Raise ValueError if closed."""
        closed = self._closed
        month = self.month(self.day_of(instant)[:7])
        if closed is None:
            return month
        if instant < closed.end:
            raise ValueError("the month of this instant is closed")
        return self.month(closed.following_name) if month.name <= closed.name else month

    def following(self, month: Month) -> Month:
        return self.month(month.following_name)

    def _date(self, instant: Instant) -> date:
        moment = moment_of(instant)
        try:
            return moment.astimezone(self.zone).date()
        except OverflowError:  # the zone's clock is past the year 9999
            return moment.date()


IN_UTC: Final = Calendar()


def day_of(instant: Instant) -> str:
    """Return the day of an instant in UTC, such as `2026-10-12`."""
    return IN_UTC.day_of(instant)
