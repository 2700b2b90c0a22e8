"""Parse dates as providers write them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from app.core.reading import Unreadable
from app.providers.paths import RequestPlace
from app.providers.request import Reason, Refusal, Request
from reconcile import instants
from reconcile.instants import EARLIEST, LATEST, MILLISECOND, SECOND, Duration, Instant

Date = Callable[[Any, str, str], Instant]
"""Function that parses a date from value, field's name and default zone.

The function raises Unreadable.
"""

ZONE: Final = re.compile(r"[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")

_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?)? ?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)", re.ASCII)
_DAY_FIRST = re.compile(r"(\d\d?)/(\d\d?)/(\d{4}) (\d\d?):(\d\d):(\d\d) ([AaPp])[Mm]", re.ASCII)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)


def _rfc_3339(value: Any, name: str, _zone: str) -> Instant:
    return _instant(
        _text(value, name), name, "an RFC 3339 date-time such as 2026-11-20T10:00:00.123Z"
    )


def _iso(value: Any, name: str, zone: str) -> Instant:
    match = _ISO.fullmatch(_text(value, name).strip())
    if match is None:
        raise Unreadable(f"{name} is not a date-time such as 2026-11-20T10:00:00")
    day, minutes, seconds, offset = match.groups()
    if offset and offset != "Z" and ":" not in offset:
        offset = f"{offset[:3]}:{offset[3:]}"
    written = f"{day}T{minutes or '00:00'}{seconds or ':00'}{offset or zone}"
    return _instant(written, name, "a real date-time")


def _compact(value: Any, name: str, zone: str) -> Instant:
    match = _COMPACT.fullmatch(str(value) if type(value) is int else _text(value, name))
    if match is None:
        raise Unreadable(f"{name} is not a date-time such as 20191219102115")
    year, month, day, hour, minute, second = match.groups()
    return _instant(
        f"{year}-{month}-{day}T{hour}:{minute}:{second}{zone}", name, "a real date-time"
    )


def _day_first(value: Any, name: str, zone: str) -> Instant:
    match = _DAY_FIRST.fullmatch(_text(value, name).strip())
    if match is None:
        raise Unreadable(f"{name} is not a date-time such as 17/11/2021 3:48:10 PM")
    day, month, year, twelve, minute, second, half = match.groups()
    if not 1 <= int(twelve) <= 12:
        raise Unreadable(f"{name} has an hour that a twelve-hour clock does not have")
    hour = int(twelve) % 12 + (12 if half in "Pp" else 0)
    written = f"{year}-{month:0>2}-{day:0>2}T{hour:02}:{minute}:{second}{zone}"
    return _instant(written, name, "a real date-time")


def _any(value: Any, name: str, zone: str) -> Instant:
    if type(value) is str and not _NUMBER.fullmatch(value):
        return (_day_first if "/" in value else _iso)(value, name, zone)
    digits = len(str(value).partition(".")[0])
    return _since_epoch(value, name, SECOND if digits <= _SECONDS_DIGITS else MILLISECOND)


_SECONDS_DIGITS: Final = 11
"""Maximum digits of a date in seconds; a longer number counts milliseconds."""


def _since_epoch(value: Any, name: str, unit: Duration) -> Instant:
    if type(value) not in (int, Decimal, str) or not _NUMBER.fullmatch(str(value)):
        raise Unreadable(f"{name} is not a number of seconds or milliseconds since 1970")
    instant = Instant(Decimal(str(value)) * unit)
    if instant > LATEST:
        raise Unreadable(f"{name} lies beyond the year 9999")
    return instant


def _text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    return value


def _instant(written: str, name: str, what: str) -> Instant:
    try:
        return instants.parse_instant(written)
    except ValueError:
        raise Unreadable(f"{name} is not {what}") from None


DATES: Final[Mapping[str, Date]] = {
    "rfc3339": _rfc_3339,
    "iso": _iso,
    "unix_s": lambda value, name, _zone: _since_epoch(value, name, SECOND),
    "unix_ms": lambda value, name, _zone: _since_epoch(value, name, MILLISECOND),
    "compact": _compact,
    "dmy_12h": _day_first,
    "any": _any,
}


@dataclass(frozen=True, slots=True)
class TimestampUnit:
    """Unit of a timestamp, with its maximum number of digits."""

    length: Duration
    digits: int
    word: str
    milliseconds_from: int = 999
    """Digits from which it counts milliseconds."""


UNITS: Final[Mapping[str, TimestampUnit]] = {
    "s": TimestampUnit(SECOND, 12, "seconds"),
    "ms": TimestampUnit(MILLISECOND, 15, "milliseconds"),
    "s_or_ms": TimestampUnit(SECOND, 15, "seconds or milliseconds", milliseconds_from=13),
    "iso8601": TimestampUnit(instants.NO_TIME, 0, "a date and time"),
    "any": TimestampUnit(
        SECOND, 15, "a date and time, seconds or milliseconds", milliseconds_from=13
    ),
}
"""Formats of a timestamp, by name in profiles; `any` is `iso8601` or `s_or_ms`."""

_ANY: Final = UNITS["any"]

_PLAUSIBLE: Final[Duration] = 365 * instants.DAY
"""Largest plausible difference from now, for hints about another unit."""

# Faults of a text that is not all digits, the most specific first.
_FAULTS = (
    (re.compile(rb"\Z"), "is empty"),
    (re.compile(rb"[\x00-\x7f]*[\x80-\xff]"), "has characters that are not ASCII"),
    (re.compile(rb".*\s", re.DOTALL), "has blanks"),
    (re.compile(rb"[0-9]+\.[0-9]*\Z"), "has a fraction"),
    (re.compile(rb"[+-][0-9]+\Z"), "has a sign"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """Rule of a profile about timestamps: place, unit, and allowed age."""

    place: RequestPlace
    unit: TimestampUnit
    past: Duration
    """Maximum age, inclusive."""
    future: Duration
    """Maximum time ahead of our clock, inclusive."""

    def text(self, request: Request) -> bytes | Refusal:
        """Return the request's only timestamp as received, or else a refusal."""
        found = self.place.values(request)
        if len(found) == 1:
            return found[0]
        fault = "came more than once" if found else "is missing"
        return self._refusal("timestamp_missing", fault)

    def write(self, now: Instant) -> bytes:
        """Return the time `now` in the format that the profile prescribes."""
        if not self.unit.length or self.unit is _ANY:
            return instants.format_instant(now).encode("ascii")
        return b"%d" % (now // self.unit.length)

    def check(self, text: bytes, now: Instant) -> Refusal | None:
        """Return a refusal unless the timestamp's age is allowed."""
        if not self.unit.length or (self.unit is _ANY and not text.isdigit()):
            try:
                signed_at = instants.parse_instant(text.decode("ascii"))
            except ValueError:
                return self._refusal("timestamp_missing", "is no date and time with its zone")
        elif not text.isdigit():  # `isdigit` of bytes: ASCII digits only
            faults = (fault for pattern, fault in _FAULTS if pattern.match(text))
            fault = next(faults, "is not written in digits only")
            return self._refusal("timestamp_missing", fault)
        elif len(text) > self.unit.digits:
            return self._too_long(text, now)
        else:
            fine = len(text) >= self.unit.milliseconds_from
            signed_at = EARLIEST + int(text) * (MILLISECOND if fine else self.unit.length)
        age = now - signed_at
        if -self.future <= age <= self.past:
            return None
        if age > 0:
            allowed = instants.format_duration(self.past)
            fault = f"is {instants.format_duration(age)} old; at most {allowed} is allowed"
            return self._refusal("timestamp_too_old", fault)
        allowed = instants.format_duration(self.future)
        lead = instants.format_duration(-age)
        fault = f"lies {lead} ahead of our clock; at most {allowed} is allowed"
        return self._refusal("timestamp_too_new", fault)

    def _too_long(self, text: bytes, now: Instant) -> Refusal:
        unit = self.unit
        # A finer unit has three digits more, which is a common mistake of senders.
        if len(text) <= unit.digits + 3:
            moment = int(text) * unit.length // 1000
            if abs(moment - now) <= _PLAUSIBLE:
                finer = "milliseconds" if unit.length == SECOND else "microseconds"
                fault = f"counts {finer} where {unit.word} are meant"
                return self._refusal("timestamp_too_new", fault)
        return self._refusal("timestamp_missing", f"has more than {unit.digits} digits")

    def _refusal(self, reason: Reason, fault: str) -> Refusal:
        return Refusal(reason, f"The timestamp in {self.place.text} {fault}.")
