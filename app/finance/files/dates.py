"""Parse dates, times and time zones as files write them."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final, Literal, get_args

from app.core.errors import UsageError
from app.core.zones import zone_named
from app.finance.files.tables import BLANKS, CellMoment, UnclearCell, quoted
from reconcile import instants

# --- zones ----------------------------------------------------------------------------------------


def _table(text: str) -> Mapping[str, str]:
    return {
        name.casefold(): offset
        for offset, *names in map(str.split, text.strip().splitlines())
        for name in names
    }


ABBREVIATIONS: Final = _table("""
    +00:00 UTC GMT Z WET
    +01:00 CET MEZ WEST WAT
    +02:00 CEST MESZ EET CAT SAST
    +03:00 EEST EAT MSK TRT
    +05:00 PKT
    +07:00 WIB ICT
    +08:00 SGT HKT MYT PHT WITA AWST
    +09:00 JST KST WIT
    +09:30 ACST
    +10:00 AEST
    +10:30 ACDT
    +11:00 AEDT
    +12:00 NZST
    +13:00 NZDT
    -10:00 HST
    -09:00 AKST
    -08:00 AKDT
    -07:00 PDT
    -06:00 MDT
    -05:00 EST CDT
    -04:00 EDT
    -03:00 BRT ART
    -02:30 NDT
    -03:30 NST
""")
"""Offsets of zone abbreviations with one meaning (IANA, 2026)."""

AMBIGUOUS: Final[Mapping[str, str]] = {
    "ADT": "-03:00 (America/Halifax) or +04:00 (Asia/Baghdad)",
    "AST": "-04:00 (America/Halifax) or +03:00 (Asia/Riyadh)",
    "BST": "+01:00 (Europe/London) or +06:00 (Asia/Dhaka)",
    "CST": "-06:00 (America/Chicago) or +08:00 (Asia/Shanghai)",
    "GST": "+04:00 (Asia/Dubai) or -02:00 (Atlantic/South_Georgia)",
    "IST": "+05:30 (Asia/Kolkata), +01:00 (Europe/Dublin) or +02:00 (Asia/Jerusalem)",
    "MST": "-07:00 (America/Denver) or +08:00 (Asia/Kuala_Lumpur)",
    "PST": "-08:00 (America/Los_Angeles) or +08:00 (Asia/Manila)",
    "SST": "-11:00 (Pacific/Pago_Pago) or +08:00 (Asia/Singapore)",
}
"""Abbreviations that several time zones share."""

_OFFSET: Final = re.compile(
    r"(?:UTC|GMT)?\s?([+-])(\d\d?)(?::?([0-5]\d))?", re.ASCII | re.IGNORECASE
)


def zone_of(name: str) -> tzinfo:
    """Return the time zone of an offset such as `+03:00`, or of a zone's name. Raise UsageError for
    an unknown zone."""
    if name in ("Z", "UTC"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None and len(offset[2]) == 2 and int(offset[2]) < 24:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return zone_named(name)
    except UsageError:
        raise UsageError(
            f"{name[:40]!r} is not a known time zone; write one such as +03:00 or Africa/Nairobi"
        ) from None


ZONE_APART: Final = "\x1f"
"""Separator between a date and its row's zone."""


def with_zones(cells: Sequence[str], zones: Sequence[str]) -> Sequence[str]:
    """Append to each date the zone that its row states."""
    return [
        type(cell)(f"{cell}{ZONE_APART}{zone.strip()}") if cell.strip() and zone.strip() else cell
        for cell, zone in zip(cells, zones, strict=True)
    ]


# --- dates ----------------------------------------------------------------------------------------


DateForm = Literal["iso", "day_first", "month_first", "unix_s", "unix_ms", "excel"]
DATE_FORMS: Final[tuple[DateForm, ...]] = get_args(DateForm)

REMEMBERED: Final = 100_000
"""Maximum number of cached dates."""

_OFFSETS: Final = r"(?:(?:UTC|GMT)\s?[+-]\d\d?|[+-]\d\d)(?::?\d\d)?"
_ZONE: Final = rf"(?:\s?(?P<zone>{_OFFSETS}|[A-Z_]{{1,20}}(?:/[A-Z0-9_+-]{{1,30}}){{0,2}}))?"
_HALF: Final = r"(?:\s?(?P<half>[AP])\.?M(?![A-Z])\.?)?"
_TIME: Final = (
    r"(?:(?:\s?[T,]\s?|\s+)(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)"
    rf"(?:[.,](?P<fraction>\d{{1,9}}))?)?{_HALF}{_ZONE})?"
)
_DIGITS_OF_TIME: Final = (
    r"[T\s]?(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    rf"{_HALF}{_ZONE}"
)
_MONTH: Final = r"(?P<month>{})\.?".format(
    "|".join(f"{name[:3]}(?:{name[3:]})?" for name in instants.MONTHS).replace("Sep(", "Sept?(")
)
_MONTHS: Final = {name[:3].casefold(): number for number, name in enumerate(instants.MONTHS, 1)}
_YEAR: Final = r"(?P<year>\d{4}|\d\d)"


def _pattern(day: str, time: str = _TIME) -> re.Pattern[str]:
    return re.compile(f"{day}{time}", re.ASCII | re.IGNORECASE)


_ISO: Final = _pattern(r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)")
_DAY_FIRST: Final = _pattern(rf"(?P<day>\d\d?)(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark){_YEAR}")
_MONTH_FIRST: Final = _pattern(rf"(?P<month>\d\d?)(?P<mark>[-/.])(?P<day>\d\d?)(?P=mark){_YEAR}")
_COMPACT: Final = r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)"
_PLAIN: Final = (
    _ISO,
    _pattern(_COMPACT),
    _pattern(_COMPACT, _DIGITS_OF_TIME),
    _pattern(rf"(?P<day>\d\d?)(?:[-/ ]|\. ?)?{_MONTH}[-/, ] ?{_YEAR}"),
    _pattern(rf"{_MONTH}[-/ ]?(?P<day>\d\d?)(?:[-/ ]|, ?){_YEAR}"),
    _pattern(rf"(?P<year>\d{{4}})[-/ ]{_MONTH}[-/ ](?P<day>\d\d?)"),
)

_PARTS: Final = (
    "year", "month", "day", "hour", "minute", "second", "fraction", "half", "zone"
)  # fmt: skip

_USUAL: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{6})?(?:Z|[+-]\d\d:\d\d)?", re.ASCII
)

_SERIAL: Final = re.compile(r"\d{5,7}(?:\.\d{1,30})?", re.ASCII)
_SERIAL_1970: Final = 25_569
"""Number that stands for 1970-01-01 in Excel."""
_MOST_DAYS: Final = 2_932_895
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)

NO_ZONE: Final = (
    "is a local time, and its zone is unknown: set "
    'zone = "Africa/Nairobi" in a mapping, give --zone Africa/Nairobi, or set TALLYHOOK_TIMEZONE'
)


class Dates:
    """Parser that turns cells into instants. A local time that occurs twice means the first
    instant."""

    def __init__(
        self, form: DateForm, zone: tzinfo | None, words: Mapping[str, str] | None = None
    ) -> None:
        """Set up the parser. `zone` is for dates without a zone; None makes such times unclear."""
        self._form, self._zone = form, zone
        self._zones = {name: zone_of(ABBREVIATIONS[name]) for name in ABBREVIATIONS}
        self._zones |= {name: zone_of(meant) for name, meant in (words or {}).items()}
        readers: dict[str, Callable[[str, str], instants.Instant]] = {
            "unix_s": lambda text, _: _since_epoch(text, instants.SECOND),
            "unix_ms": lambda text, _: _since_epoch(text, instants.MILLISECOND),
            "excel": self._serial,
        }
        self._read = readers.get(form, self._day)
        first = {"day_first": (_DAY_FIRST,), "month_first": (_MONTH_FIRST,)}.get(form, ())
        self._patterns = (*first, *_PLAIN)
        self._known: dict[str, instants.Instant | None] = {"": None}

    def read(self, cells: Sequence[str]) -> list[instants.Instant | None]:
        """Return each cell's instant; None for an empty cell. Raise UnclearCell for an unclear
        date."""
        known = self._known
        try:
            return [known[cell] for cell in cells]
        except KeyError:
            if len(known) > REMEMBERED:
                known.clear()
            for cell in cells:
                if cell in known:
                    continue
                text, _, zone = cell.strip().partition(ZONE_APART)
                if text and type(cell) is CellMoment:  # a workbook writes a day as its midnight
                    known[cell] = self._day(text.removesuffix("T00:00:00"), zone)
                else:
                    known[cell] = self._read(text, zone) if text else None
        return [known[cell] for cell in cells]

    def _day(self, text: str, zone: str) -> instants.Instant:
        if not zone and _USUAL.fullmatch(text) is not None:
            with suppress(ValueError):
                moment = datetime.fromisoformat(text)
                local = moment.tzinfo or self._zone
                if local is not None and 1971 <= moment.year <= 9998:
                    return instants.instant_of(moment.replace(tzinfo=local))
        plain = text if text.isascii() else text.translate(BLANKS).strip()
        for pattern in self._patterns:
            match = pattern.fullmatch(plain)
            if match is not None:
                return self._of_parts(match.group(*_PARTS), zone)
        if _DAY_FIRST.fullmatch(plain) is not None:
            raise UnclearCell(
                "could begin with the day or with the month: declare "
                'dates = "day_first" or dates = "month_first" in a mapping, or give --dates'
            )
        if self._form != "iso":
            raise UnclearCell(f"{quoted(text)} is not a date in the declared form")
        if _SERIAL.fullmatch(plain) is not None:
            raise UnclearCell(
                "is a number, which may be a date as Excel stores it: if so, declare dates = "
                '"excel" in a mapping, or give --dates excel'
            )
        raise UnclearCell(f"{quoted(text)} is not a date such as 2026-11-20 or 2026-11-20T10:00Z")

    def _of_parts(self, parts: Sequence[Any], column: str) -> instants.Instant:
        year, month, day, hour, minute, second, fraction, half, zone = parts
        if len(year) == 2:
            if self._form not in ("day_first", "month_first"):
                raise UnclearCell(
                    'has a year of two digits: declare dates = "day_first" or dates = '
                    '"month_first" in a mapping, or give --dates'
                )
            year = f"20{year}"
        number = int(month) if month.isdecimal() else _MONTHS[month[:3].casefold()]
        date = (int(year), number, int(day))
        if not hour:
            return self._instant(date, None, "", "")
        of_day = int(hour)
        if half:
            if not 1 <= of_day <= 12:
                raise UnclearCell("has an hour that does not exist on a 12-hour clock")
            of_day = of_day % 12 + (12 if half in "Pp" else 0)
        time = (of_day, int(minute or 0), int(second or 0))
        instant = self._instant(date, time, zone or "", column)
        return instant + instants.Duration(fraction.ljust(6, "0")[:6]) if fraction else instant

    def _serial(self, text: str, zone: str) -> instants.Instant:
        if _SERIAL.fullmatch(text) is None:
            return self._day(text, zone)
        days, part = divmod(Decimal(text), 1)
        seconds = int((part * 86_400).to_integral_value())
        if not 0 <= (passed := int(days) - _SERIAL_1970) <= _MOST_DAYS:
            raise UnclearCell("lies outside the years 1970 to 9999")
        moment = datetime(1970, 1, 1) + timedelta(days=passed, seconds=seconds)
        time = (moment.hour, moment.minute, moment.second) if part else None
        return self._instant((moment.year, moment.month, moment.day), time, "", zone)

    def _instant(
        self,
        date: tuple[int, int, int],
        time: tuple[int, int, int] | None,
        named: str,
        column: str,
    ) -> instants.Instant:
        zone = self._zone
        if time is not None and (named or column):
            zone = self._zone_named(named or column)
        elif time is not None and zone is None:
            raise UnclearCell(NO_ZONE)
        hour, minute, second = time or (0, 0, 0)
        # A leap second, which RFC 3339 allows, counts as the next second.
        late = instants.SECOND if second == 60 else instants.NO_TIME
        try:
            moment = datetime(*date, hour, minute, second - bool(late), tzinfo=zone or UTC)
            instant = instants.instant_of(moment) + late
        except (ValueError, OverflowError):
            raise UnclearCell("is not a real day and time") from None
        if time is not None and named and column:
            other = moment.replace(tzinfo=self._zone_named(column))
            if other.utcoffset() != moment.utcoffset():
                raise UnclearCell(
                    f"has the zone {quoted(named)}, but the row's zone column says {quoted(column)}"
                )
        if not 0 <= instant <= instants.LATEST:
            raise UnclearCell("lies outside the years 1970 to 9999")
        return instant

    def _zone_named(self, name: str) -> tzinfo:
        plain = name.strip().casefold()
        zone = self._zones.get(plain)
        if zone is not None:
            return zone
        offset = _OFFSET.fullmatch(plain)
        if offset is not None and int(offset[2]) < 24:
            zone = zone_of(f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}")
        elif "/" in name:
            with suppress(UsageError):
                zone = zone_of(name.strip())
        if zone is None:
            abbreviation = plain.upper()
            meanings = AMBIGUOUS.get(abbreviation)
            why = f"which may be {meanings}" if meanings else "which is not known"
            example = abbreviation if meanings else "PST"
            raise UnclearCell(
                f"has the zone {quoted(name)}, {why}: explain the zone in the mapping under "
                f'[zones], such as {example} = "{meanings[:6] if meanings else "-08:00"}"'
            )
        self._zones[plain] = zone
        return zone


def _since_epoch(text: str, unit: instants.Duration) -> instants.Instant:
    if not _NUMBER.fullmatch(text) or int(text) * unit > instants.LATEST:
        raise UnclearCell("is not a whole number of seconds or milliseconds since 1970")
    return instants.EARLIEST + int(text) * unit
