"""Instants as integers: microseconds since 1970-01-01T00:00:00Z, always in UTC.

Integers compare, sort and store exactly, and cannot lose their time zone. No function here reads
the clock; every instant is a parameter.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, overload

if TYPE_CHECKING:
    # For the type checker only: two instants can't be added. At run time both are plain integers.
    class Duration(int):
        """Length of time in microseconds."""

        @overload  # type: ignore[override]
        def __add__(self, other: Instant, /) -> Instant: ...
        @overload
        def __add__(self, other: Duration, /) -> Duration: ...
        def __add__(self, other: int, /) -> int: ...
        def __sub__(self, other: Duration, /) -> Duration: ...  # type: ignore[override]
        def __mul__(self, other: int, /) -> Duration: ...
        def __rmul__(self, other: int, /) -> Duration: ...
        def __neg__(self) -> Duration: ...
        def __abs__(self) -> Duration: ...
        @overload  # dividing by a plain integer gives a shorter Duration
        def __floordiv__(self, other: Duration, /) -> int: ...  # type: ignore[overload-overlap]
        @overload
        def __floordiv__(self, other: int, /) -> Duration: ...
        def __floordiv__(self, other: int, /) -> int: ...
        def __mod__(self, other: Duration, /) -> Duration: ...  # type: ignore[override]
        def __divmod__(self, other: Duration, /) -> tuple[int, Duration]: ...  # type: ignore[override]

    class Instant(int):
        """Instant in microseconds since the Unix epoch, in UTC."""

        def __add__(self, other: Duration, /) -> Instant: ...  # type: ignore[override]
        @overload  # type: ignore[override]
        def __sub__(self, other: Instant, /) -> Duration: ...
        @overload
        def __sub__(self, other: Duration, /) -> Instant: ...
        def __sub__(self, other: int, /) -> int: ...
        def __floordiv__(self, other: Duration, /) -> int: ...  # type: ignore[override]
        def __mod__(self, other: Duration, /) -> Duration: ...  # type: ignore[override]
        def __divmod__(self, other: Duration, /) -> tuple[int, Duration]: ...  # type: ignore[override]

else:
    Instant = Duration = int

NO_TIME: Final = Duration(0)

TICK: Final = Duration(1)

MILLISECOND: Final = Duration(1_000)
SECOND: Final = Duration(1_000_000)
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

EARLIEST: Final = Instant(0)
"""1970-01-01, the earliest time that an event may have. An earlier time is a mistake, such as a
number in the wrong unit."""

LATEST: Final = Instant(253_402_300_799_999_999)
"""9999-12-31T23:59:59.999999Z, the last instant that RFC 3339 can express."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

# The form of nearly every provider, which the standard library parses exactly.
_PLAIN = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d(?:\.(?:\d{3}|\d{6}))?(?:Z|[+-]\d\d:[0-5]\d)", re.ASCII
)
_RFC_3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})",
    re.ASCII,
)


def instant_of(moment: datetime) -> Instant:
    """Convert a datetime with a time zone to an instant. The instant may lie before 1970."""
    return Instant((moment - _EPOCH) // _TICK)


def moment_of(instant: Instant) -> datetime:
    """Convert an instant to a datetime in UTC. Raises OverflowError for an instant after the year
    9999."""
    seconds, rest = divmod(instant, SECOND)
    return _EPOCH + timedelta(seconds=seconds, microseconds=rest)


def parse_instant(text: str) -> Instant:
    """Parse an RFC 3339 date-time.

    Digits beyond the microsecond are cut off. A leap second (:60) is read as the next second.
    Raises ValueError with a sentence for any other text, or a time outside 1970 to 9999.
    """
    if _PLAIN.fullmatch(text) is not None:
        try:
            return _within(instant_of(datetime.fromisoformat(text)))
        except ValueError as error:
            raise ValueError(f"not a real date and time: {error}") from None
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 date-time such as 2026-11-20T10:00:00.123Z")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    leap = second == 60
    try:
        moment = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"not a real date and time: {error}") from None
    whole = instant_of(moment) + (SECOND if leap else NO_TIME)
    fraction = Duration((match[7] or "").ljust(6, "0")[:6])
    offset = NO_TIME
    if (zone := match[8]) not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise ValueError("not a real offset from UTC")
        offset = (1 if zone[0] == "+" else -1) * (hours * HOUR + minutes * MINUTE)
    return _within(whole + fraction - offset)


def _within(instant: Instant) -> Instant:
    if not EARLIEST <= instant <= LATEST:
        raise ValueError("the moment lies outside the years 1970 to 9999")
    return instant


# Cached: events of one burst, and their lines in a log, often have the same second.
@lru_cache(maxsize=1_024)
def _second(seconds: int) -> str:
    return moment_of(Instant(seconds * SECOND)).isoformat(timespec="seconds")[:19]


def format_instant(instant: Instant) -> str:
    """Format an instant as RFC 3339 in UTC with `Z`, and with 0, 3 or 6 decimals of a second."""
    seconds, fraction = divmod(instant, SECOND)
    text = _second(seconds)
    if fraction == 0:
        return text + "Z"
    if fraction % 1000 == 0:
        return f"{text}.{fraction // 1000:03d}Z"
    return f"{text}.{fraction:06d}Z"


def format_known(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


THURSDAY: Final = 3
"""Weekday number of 1970-01-01. Monday has number 0."""


def add_business_days(instant: Instant, days: int) -> Instant:
    """Return the instant that is `days` business days later, at the same time of day.

    Business days are Monday to Friday in UTC; bank holidays count. The result is never after 9999.
    """
    if days <= 0:
        return instant
    weekday = (instant // DAY + THURSDAY) % 7
    beyond = max(0, weekday - 4)  # a weekend counts from its Friday, so Monday is the first day
    weeks, left = divmod(days, 5)
    calendar = 7 * weeks + left - beyond
    if weekday - beyond + left > 4:
        calendar += 2
    return min(instant + calendar * DAY, LATEST)


def plain_instant(instant: Instant) -> str:
    """Format an instant for people, to the minute: `22 November 2026, 10:05 UTC`."""
    moment = moment_of(instant)
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment:%Y, %H:%M} UTC"


def format_duration(duration: Duration) -> str:
    """Format a duration in its two largest units: `2 h 5 min`, `45 s`, `300 ms`."""
    if duration < 0:
        return "-" + format_duration(-duration)
    if duration < SECOND:
        return f"{duration // MILLISECOND} ms"
    parts = []
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        count, duration = divmod(duration, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
