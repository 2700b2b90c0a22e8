"""Dates as files write them; `02/03/2026` only where a mapping says which is the month."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.core.errors import UsageError
from app.finance.files.tables import Moment, Unclear, quoted
from reconcile.instants import LATEST, MILLISECOND, SECOND, Instant, parse_instant

DateForm = Literal["iso", "day_first", "month_first", "unix_s", "unix_ms"]
DATE_FORMS: Final[tuple[DateForm, ...]] = get_args(DateForm)

REMEMBERED: Final = 100_000
"""Dates kept as read, about 10 MB: most files repeat theirs."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)

_ISO: Final = re.compile(
    r"(\d{4})([-/.])(\d\d?)\2(\d\d?)"
    r"(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_SLASHED: Final = re.compile(
    r"(\d\d?)([-/.])(\d\d?)\2(\d{4})"
    r"(?:,?\s+(\d\d?):(\d\d)(?::(\d\d))?(?:\s?([AP])\.?M\.?)?)?",
    re.ASCII | re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)


def zone_of(name: str) -> tzinfo:
    """`+03:00`, or a name such as `Africa/Nairobi`. Raises UsageError."""
    offset = _OFFSET.fullmatch(name)
    if name in ("Z", "UTC"):
        return UTC
    if offset is not None:
        return _offset(offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"{name[:40]!r} is no time zone; say one such as +03:00 or Africa/Nairobi"
        ) from None


def _offset(match: re.Match[str]) -> tzinfo:
    minutes = int(match[2]) * 60 + int(match[3])
    return timezone(timedelta(minutes=minutes if match[1] == "+" else -minutes))


class Dates:
    """Reads cells as instants. Where an hour comes twice, as in autumn, the first one is meant."""

    def __init__(self, form: DateForm, zone: tzinfo) -> None:
        self._zone = zone
        forms: dict[DateForm, Callable[[str], Instant]] = {
            "iso": self._iso,
            "day_first": self._day_first,
            "month_first": self._month_first,
            "unix_s": lambda text: _since_epoch(text, SECOND),
            "unix_ms": lambda text: _since_epoch(text, MILLISECOND),
        }
        self._read = forms[form]
        self._known: dict[str, Instant | None] = {"": None}

    def read(self, cells: Sequence[str]) -> list[Instant | None]:
        """The instant of each cell; None for empty ones. Raises Unclear."""
        known = self._known
        try:
            return [known[cell] for cell in cells]
        except KeyError:
            if len(known) > REMEMBERED:
                known.clear()
            for cell in cells:
                if cell not in known:
                    known[cell] = self._one(cell)
        return [known[cell] for cell in cells]

    def _one(self, cell: str) -> Instant | None:
        text = cell.strip()
        if not text:
            return None
        return self._iso(text) if type(cell) is Moment else self._read(text)

    def _iso(self, text: str) -> Instant:
        match = _ISO.fullmatch(text)
        if match is None:
            if _SLASHED.fullmatch(text) is not None:
                raise Unclear(
                    "could begin with the day or with the month: declare "
                    'dates = "day_first" or dates = "month_first" in a mapping'
                )
            raise Unclear(f"{quoted(text)} is not a date such as 2026-11-20 or 2026-11-20T10:00Z")
        year, _, month, day, hour, minute, second, fraction, zone = match.groups()
        instant = self._instant(
            (int(year), int(month), int(day)),
            (int(hour or 0), int(minute or 0), int(second or 0)),
            zone,
        )
        return instant + int((fraction or "").ljust(6, "0")[:6])

    def _day_first(self, text: str) -> Instant:
        return self._slashed(text, day=1, month=3)

    def _month_first(self, text: str) -> Instant:
        return self._slashed(text, day=3, month=1)

    def _slashed(self, text: str, *, day: int, month: int) -> Instant:
        match = _SLASHED.fullmatch(text)
        if match is None:
            if _ISO.fullmatch(text) is not None:
                return self._iso(text)
            raise Unclear(f"{quoted(text)} is not a date in the declared form")
        hour, half = int(match[5] or 0), match[8]
        if half is not None:
            if not 1 <= hour <= 12:
                raise Unclear("has an hour that no clock of twelve hours shows")
            hour = hour % 12 + (12 if half in "Pp" else 0)
        date = (int(match[4]), int(match[month]), int(match[day]))
        return self._instant(date, (hour, int(match[6] or 0), int(match[7] or 0)), None)

    def _instant(
        self, date: tuple[int, int, int], time: tuple[int, int, int], zone: str | None
    ) -> Instant:
        try:
            if zone is not None:
                day, clock = "{:04}-{:02}-{:02}".format(*date), "{:02}:{:02}:{:02}".format(*time)
                offset = zone.upper() if len(zone) == 1 else f"{zone[:3]}:{zone[-2:]}"
                return parse_instant(f"{day}T{clock}{offset}")
            moment = datetime(*date, *time, tzinfo=self._zone)
            instant = (moment - _EPOCH) // _TICK
        except (ValueError, OverflowError):
            raise Unclear("is no day and time of the calendar") from None
        if not 0 <= instant <= LATEST:
            raise Unclear("lies outside the years 1970 to 9999")
        return instant


def _since_epoch(text: str, unit: int) -> Instant:
    if not _NUMBER.fullmatch(text) or int(text) * unit > LATEST:
        raise Unclear("is not a whole number of seconds or milliseconds since 1970")
    return int(text) * unit
