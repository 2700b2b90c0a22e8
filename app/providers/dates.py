"""How providers write when something happened. One entry in DATES for each way.

Each takes what stood there, the field's name for the sentence, and the offset from UTC that the
profile declares for dates without a zone. Digits beyond the microsecond are cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from app.core.reading import Unreadable
from reconcile.instants import LATEST, MILLISECOND, SECOND, Duration, Instant, parse_instant

Date = Callable[[Any, str, str], Instant]
"""(value, name, zone such as `+03:00`) → instant, or Unreadable."""

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
        raise Unreadable(f"{name} has an hour that no clock of twelve hours shows")
    hour = int(twelve) % 12 + (12 if half in "Pp" else 0)
    written = f"{year}-{month:0>2}-{day:0>2}T{hour:02}:{minute}:{second}{zone}"
    return _instant(written, name, "a real date-time")


def _unix(unit: Duration) -> Date:
    def read(value: Any, name: str, _zone: str) -> Instant:
        return _since_epoch(value, name, unit)

    return read


def _any(value: Any, name: str, zone: str) -> Instant:
    if type(value) is str and not _NUMBER.fullmatch(value):
        return _iso(value, name, zone)
    digits = len(str(value).partition(".")[0])
    return _since_epoch(value, name, SECOND if digits <= _SECONDS_DIGITS else MILLISECOND)


_SECONDS_DIGITS: Final = 11
"""Seconds have eleven digits until the year 5138, milliseconds twelve from 1973 on."""


def _since_epoch(value: Any, name: str, unit: Duration) -> Instant:
    if type(value) not in (int, Decimal, str) or not _NUMBER.fullmatch(str(value)):
        raise Unreadable(f"{name} is not a number of seconds or milliseconds since 1970")
    instant = int(Decimal(str(value)) * unit)
    if instant > LATEST:
        raise Unreadable(f"{name} lies beyond the year 9999")
    return instant


def _text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    return value


def _instant(written: str, name: str, what: str) -> Instant:
    try:
        return parse_instant(written)
    except ValueError:
        raise Unreadable(f"{name} is not {what}") from None


DATES: Final[Mapping[str, Date]] = {
    "rfc3339": _rfc_3339,
    "iso": _iso,
    "unix_s": _unix(SECOND),
    "unix_ms": _unix(MILLISECOND),
    "compact": _compact,
    "dmy_12h": _day_first,
    "any": _any,
}
