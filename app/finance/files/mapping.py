"""What a merchant says about a file: names of columns, marks, dates, words. A TOML file.

delimiter = ";"            encoding = "cp1252"        sheet = "Orders"
decimal = ","              thousands = "."
dates = "day_first"        zone = "Africa/Nairobi"    phone_country = "254"

[columns]                  # our name = the file's name; "" leaves a column out
reference = "Order No."

[defaults]                 # for files without the column, and for empty cells
currency = "KES"

[words.status]             # the file's word = ours
bezahlt = "paid"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any, Final, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, create_model

from app.core.errors import ConfigurationError, UsageError
from app.core.toml_file import EMPTY, Mistake, TomlTable, Values, read_toml
from app.finance.files.tables import (
    DELIMITERS,
    CellMoment,
    Number,
    UnclearCell,
    known_encoding,
    quoted,
)
from reconcile.instants import (
    EARLIEST,
    LATEST,
    MILLISECOND,
    SECOND,
    Duration,
    Instant,
    parse_instant,
)
from reconcile.money import MAX_MINOR, MoneyError, exponent_of

# --- amounts in major units, exact, with the marks that were declared and no others ---------------


DECIMAL_MARKS: Final = (".", ",")

THOUSANDS_MARKS: Final = ("", ",", ".", "'", "’", " ", "\u00a0", "\u202f")
"""None, and those in use: the last are blanks that keep a number together."""

_CANONICAL: Final = re.compile(r"(-?)([0-9]{1,30})(?:\.([0-9]{1,60}))?")
_MARKS: Final = re.compile(r"[.,'’ \u00a0\u202f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What divides the decimals from the whole, and what groups its thousands."""

    decimal: str = "."
    thousands: str = ""


class Amounts:
    """Reads cells as minor units."""

    def __init__(self, marks: Marks) -> None:
        self._decimal, self._thousands = marks.decimal, marks.thousands
        grouped = ""
        if marks.thousands:  # in India two digits stand between the marks that follow the last
            mark = re.escape(marks.thousands)
            grouped = f"[0-9]{{1,3}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}|"
        self._pattern = re.compile(
            f"(-?)({grouped}[0-9]{{1,30}})(?:{re.escape(marks.decimal)}([0-9]{{1,60}}))?"
        )

    def read(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int]:
        """Minor units of each cell in its currency. Raises UnclearCell."""
        return self._in_full(cells, currencies) or [
            self._minor(cell, exponent_of(currency))
            for cell, currency in zip(cells, currencies, strict=True)
        ]

    def _in_full(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int] | None:
        """The same where all are of one currency and written with all of its decimals and no other
        mark, as most files do; a million of them feels the difference."""
        exponent = exponent_of(currencies[0])
        if self._decimal != "." or not exponent or len(set(currencies)) > 1:
            return None
        together = "\n".join(cells)
        amount = rf"[0-9]{{1,15}}\.[0-9]{{{exponent}}}"
        if not re.fullmatch(rf"{amount}(?:\n{amount})*", together):
            return None
        found = [int(digits) for digits in together.replace(".", "").split("\n")]
        return found if len(found) == len(cells) else None

    def optional(self, cells: Sequence[str], currencies: Sequence[str]) -> list[int | None]:
        """The same; None for empty cells."""
        return [
            self._minor(cell, exponent_of(currency)) if cell.strip() else None
            for cell, currency in zip(cells, currencies, strict=True)
        ]

    def _minor(self, cell: str, exponent: int) -> int:
        pattern = _CANONICAL if type(cell) is Number else self._pattern
        match = pattern.fullmatch(cell) or pattern.fullmatch(cell.strip())
        if match is None:
            raise UnclearCell(self._why_not(cell.strip()))
        sign, whole, decimals = match.groups("")
        if self._thousands and type(cell) is not Number:
            whole = whole.replace(self._thousands, "")
        if len(decimals) > exponent:
            if len(decimals) == 3 or decimals[exponent:].strip("0"):
                raise UnclearCell(
                    f"has more decimals than its currency, which has {exponent}: if the mark groups"
                    ' thousands, declare thousands = "." and decimal = "," in a mapping'
                )
            decimals = decimals[:exponent]
        minor = int(whole + decimals.ljust(exponent, "0"))
        if minor > MAX_MINOR:
            raise UnclearCell("does not fit in 64 bits of minor units")
        return -minor if sign else minor

    def _why_not(self, text: str) -> str:
        if not text:
            return "is empty"
        if text.startswith("="):
            return "is a formula: put its value there"
        if text.startswith("(") and text.endswith(")"):
            return "is in brackets: write a negative amount with a minus sign, such as -1.00"
        if _MARKS.search(text) and not re.search(r"[^-0-9.,'’ \u00a0\u202f]", text):
            return (
                f"{quoted(text)} can be read in two ways: declare in a mapping what marks decimals "
                'and thousands, such as decimal = "," and thousands = "."'
            )
        return f"{quoted(text)} is not an amount such as 1500.00"


def read_currencies(cells: Sequence[str]) -> list[str]:
    """ISO 4217 codes, in capital letters. Raises UnclearCell."""
    plain = [cell.strip().upper() for cell in cells]
    for code in set(plain):
        try:
            exponent_of(code)
        except MoneyError:
            what = f"{quoted(code)} is not a currency code" if code else "is empty"
            raise UnclearCell(f"{what}: write one of ISO 4217, such as KES") from None
    return plain


# --- dates as files write them --------------------------------------------------------------------


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


NO_ZONE: Final = (
    "is a local time, and nobody has said of which zone: say "
    'zone = "Africa/Nairobi" in a mapping, or set TALLYHOOK_TIMEZONE'
)


class Dates:
    """Reads cells as instants. Where an hour comes twice, as in autumn, the first one is meant."""

    def __init__(self, form: DateForm, zone: tzinfo | None) -> None:
        """zone: of dates that name none; None: nobody has said, and a time of day without one is
        not clear. A day alone is then one of UTC, as months are."""
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
        """The instant of each cell; None for empty ones. Raises UnclearCell."""
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
        if type(cell) is CellMoment:  # a workbook writes a day as its midnight
            return self._iso(text.removesuffix("T00:00:00"))
        return self._read(text)

    def _iso(self, text: str) -> Instant:
        match = _ISO.fullmatch(text)
        if match is None:
            if _SLASHED.fullmatch(text) is not None:
                raise UnclearCell(
                    "could begin with the day or with the month: declare "
                    'dates = "day_first" or dates = "month_first" in a mapping'
                )
            raise UnclearCell(
                f"{quoted(text)} is not a date such as 2026-11-20 or 2026-11-20T10:00Z"
            )
        year, _, month, day, hour, minute, second, fraction, zone = match.groups()
        instant = self._instant(
            (int(year), int(month), int(day)),
            None if hour is None else (int(hour), int(minute or 0), int(second or 0)),
            zone,
        )
        return instant + Duration((fraction or "").ljust(6, "0")[:6])

    def _day_first(self, text: str) -> Instant:
        return self._slashed(text, day=1, month=3)

    def _month_first(self, text: str) -> Instant:
        return self._slashed(text, day=3, month=1)

    def _slashed(self, text: str, *, day: int, month: int) -> Instant:
        match = _SLASHED.fullmatch(text)
        if match is None:
            if _ISO.fullmatch(text) is not None:
                return self._iso(text)
            raise UnclearCell(f"{quoted(text)} is not a date in the declared form")
        hour, half = int(match[5] or 0), match[8]
        if half is not None:
            if not 1 <= hour <= 12:
                raise UnclearCell("has an hour that no clock of twelve hours shows")
            hour = hour % 12 + (12 if half in "Pp" else 0)
        date = (int(match[4]), int(match[month]), int(match[day]))
        timed = match[5] is not None
        time = (hour, int(match[6] or 0), int(match[7] or 0)) if timed else None
        return self._instant(date, time, None)

    def _instant(
        self, date: tuple[int, int, int], time: tuple[int, int, int] | None, zone: str | None
    ) -> Instant:
        if time is not None and zone is None and self._zone is None:
            raise UnclearCell(NO_ZONE)
        time = time or (0, 0, 0)
        try:
            if zone is not None:
                day, clock = "{:04}-{:02}-{:02}".format(*date), "{:02}:{:02}:{:02}".format(*time)
                offset = zone.upper() if len(zone) == 1 else f"{zone[:3]}:{zone[-2:]}"
                return parse_instant(f"{day}T{clock}{offset}")
            moment = datetime(*date, *time, tzinfo=self._zone or UTC)
            instant = Instant((moment - _EPOCH) // _TICK)
        except (ValueError, OverflowError):
            raise UnclearCell("is no day and time of the calendar") from None
        if not 0 <= instant <= LATEST:
            raise UnclearCell("lies outside the years 1970 to 9999")
        return instant


def _since_epoch(text: str, unit: Duration) -> Instant:
    if not _NUMBER.fullmatch(text) or int(text) * unit > LATEST:
        raise UnclearCell("is not a whole number of seconds or milliseconds since 1970")
    return EARLIEST + int(text) * unit


# --- what a merchant says about a file ------------------------------------------------------------


MAX_BYTES: Final = 64 * 1024
"""Bytes of a mapping file; a page of it has two thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What a kind of file can say.

    names     its columns
    words     of those that hold words: the vocabulary of each
    defaults  which columns a mapping may give a value for all rows
    """

    names: Sequence[str]
    words: Mapping[str, Sequence[str]]
    defaults: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMapping:
    """A mapping that makes sense. Nothing said: names and forms are the usual ones."""

    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    marks: Marks = field(default_factory=Marks)
    dates: DateForm = "iso"
    zone: tzinfo | None = None
    phone_country: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _checked(is_right: Callable[[str], bool], sentence: str) -> AfterValidator:
    def read(value: str) -> str:
        if not is_right(value):
            raise ValueError(sentence)
        return value

    return AfterValidator(read)


def _known(read: Callable[[str], object]) -> AfterValidator:
    def known(value: str) -> str:
        try:
            read(value)
        except (UsageError, UnclearCell) as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(known)


def _is_calling_code(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= len(text) <= 3


class _MappingFile(TomlTable):
    delimiter: (
        Annotated[str, _checked(DELIMITERS.__contains__, 'must be one of "," ";" "|" and "\\t"')]
        | None
    ) = None
    encoding: Annotated[str, _known(known_encoding)] | None = None
    sheet: str | None = None
    decimal: Annotated[str, _checked(DECIMAL_MARKS.__contains__, 'must be "." or ","')] = "."
    thousands: Annotated[
        str, _checked(THOUSANDS_MARKS.__contains__, "must be one of , . ' and blanks")
    ] = ""
    dates: Annotated[
        str, _checked(DATE_FORMS.__contains__, f"must be one of {', '.join(DATE_FORMS)}")
    ] = "iso"
    zone: Annotated[str, _known(zone_of)] | None = None
    phone_country: (
        Annotated[str, _checked(_is_calling_code, 'must be a calling code such as "254"')] | None
    ) = None


def _model(fields: Fields) -> type[TomlTable]:
    """What a mapping of this kind of file may hold."""
    columns: dict[str, Any] = dict.fromkeys(fields.names, (str | None, None))
    defaults: dict[str, Any] = {name: (_default(name, fields), None) for name in fields.defaults}
    words: dict[str, Any] = {
        name: (dict[str, Literal[tuple(known)]], EMPTY)  # type: ignore[misc]
        for name, known in fields.words.items()
    }
    tables: dict[str, Any] = {
        name: (create_model(name, __base__=TomlTable, **keys), EMPTY)
        for name, keys in (("columns", columns), ("defaults", defaults), ("words", words))
    }
    return create_model("mapping", __base__=_MappingFile, **tables)


def _default(name: str, fields: Fields) -> Any:
    if name in fields.words:
        return Literal[tuple(fields.words[name])] | None
    if name == "currency":
        return Annotated[str, _known(lambda code: read_currencies([code]))] | None
    return str | None


def read_mapping(
    content: bytes,
    fields: Fields,
    *,
    name: str = "the mapping",
    delimiter: str | None = None,
    encoding: str | None = None,
) -> FileMapping:
    """The mapping in a file's content. Raises UsageError that says all that is wrong with it.

    name                 what the file is called in mistakes
    delimiter, encoding  said beside it, and go before it
    """
    said = {"delimiter": delimiter, "encoding": encoding}
    beside = {key: value for key, value in said.items() if value is not None}
    try:
        values = read_toml(
            content,
            _model(fields),
            name=name,
            most_bytes=MAX_BYTES,
            together=_same_mark,
            beside=beside,
        )
    except ConfigurationError as error:
        raise UsageError(str(error)) from None
    return FileMapping(
        delimiter=values["delimiter"],
        encoding=values["encoding"],
        sheet=values["sheet"],
        marks=Marks(decimal=values["decimal"], thousands=values["thousands"]),
        dates=values["dates"],
        zone=None if values["zone"] is None else zone_of(values["zone"]),
        phone_country=values["phone_country"],
        columns=_given(values["columns"]),
        defaults=_given(values["defaults"]),
        words=_given(values["words"]),
    )


def _given(table: Values) -> Values:
    return {key: value for key, value in table.items() if value is not None}


def _same_mark(values: Values) -> Iterator[Mistake]:
    if values.get("decimal") == values.get("thousands", ""):
        yield Mistake("thousands", "decimal and thousands are the same mark")
