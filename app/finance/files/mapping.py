"""What a merchant declares about a file: column names, marks, dates, words. A TOML file.

kind = "statement"         delimiter = ";"            encoding = "cp1252"
sheet = "Orders"
decimal = ","              thousands = "."
dates = "day_first"        zone = "Africa/Nairobi"    phone_country = "254"

heading_row = 7            skip_first = 1             skip_last = 2
brackets = "negative"      zone_column = "TimeZone"   optional = ["payout"]
empty = ["--", "N/A"]      # cells that say nothing, in any column

[columns]                  # our name = the file's name; "" leaves a column out
reference = "Order No."
phone = ["Phone", "Billing Phone"]    # the first nonempty one

[joined]                   # cells with a blank between them
placed_at = ["Date", "Time"]

[amounts.gross]            # columns that are added and subtracted
add = ["Paid In"]
subtract = ["Withdrawn"]
unsigned = true            # each counts without a minus sign of its own
sign = "DR/CR"             # the column that says the direction, in
plus = ["CR"]              # words that keep the sum's sign, and
minus = ["DR"]             # words that turn it round

[defaults]                 # for files without the column, and for empty cells
currency = "KES"

[above]                    # the same, as a line before the heading says: `Account:,Utility`
wallet = "Account"

[words.status]             # the file's word = ours; "" is an empty cell
bezahlt = "paid"

[keep]                     # only rows with one of these words in the file's column
Status = ["Completed"]

[ignore]                   # no rows with one of these; * stands for any text
Type = ["Payout", "*withdrawal*"]

[fold]                     # consecutive rows of the same name are one
by = "Name"
sum = ["Line amount"]

[currency_signs]           # which may stand beside an amount
"$" = "USD"

[suffixes]                 # behind an amount, and what its sign then is
DR = "minus"
CR = "plus"

[zones]                    # what zone_column says
PST = "-08:00"
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, create_model

from app.core.errors import ConfigurationError, UsageError
from app.core.toml_file import EMPTY, TomlMistake, TomlTable, Values, read_toml, yes_or_no
from app.core.zones import zone_named
from app.finance.files.amounts import (
    DECIMAL_MARKS,
    MINUS_SIGNS,
    THOUSANDS_MARKS,
    Marks,
    read_currencies,
)
from app.finance.files.tables import (
    DELIMITERS,
    CellMoment,
    UnclearCell,
    known_encoding,
    quoted,
)
from reconcile import instants

# --- dates as files write them --------------------------------------------------------------------


DateForm = Literal["iso", "day_first", "month_first", "unix_s", "unix_ms", "excel"]
DATE_FORMS: Final[tuple[DateForm, ...]] = get_args(DateForm)

REMEMBERED: Final = 100_000
"""Dates kept after parsing, about 10 MB: most files repeat theirs."""


_ISO: Final = re.compile(
    r"(\d{4})([-/.])(\d\d?)\2(\d\d?)"
    r"(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_SLASHED: Final = re.compile(
    r"(\d\d?)([-/.])(\d\d?)\2(\d{4}|\d\d)"
    r"(?:,?\s+(\d\d?):(\d\d)(?::(\d\d))?(?:\s?([AP])\.?M\.?)?(?:\s?(Z|[+-]\d\d:?\d\d))?)?",
    re.ASCII | re.IGNORECASE,
)
_SERIAL: Final = re.compile(r"\d{5,7}(?:\.\d{1,30})?", re.ASCII)
_SERIAL_1970: Final = 25_569
"""The days from the beginning of 1900 to the beginning of 1970, as Excel counts them."""
_MOST_DAYS: Final = 2_932_895
"""Days from 1970 to the last but one of the year 9999: a fraction may round up to the next."""
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)


def zone_of(name: str) -> tzinfo:
    """Return the zone of an offset such as `+03:00`, or of a name. Raises UsageError."""
    offset = _OFFSET.fullmatch(name)
    if name in ("Z", "UTC"):
        return UTC
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return zone_named(name)
    except UsageError:
        raise UsageError(
            f"{name[:40]!r} is no time zone; say one such as +03:00 or Africa/Nairobi"
        ) from None


NO_ZONE: Final = (
    "is a local time, and its zone is unknown: say "
    'zone = "Africa/Nairobi" in a mapping or --zone Africa/Nairobi, or set TALLYHOOK_TIMEZONE'
)


class Dates:
    """Reads cells as instants. Of an hour that comes twice, as in autumn, the first is meant."""

    def __init__(self, form: DateForm, zone: tzinfo | None) -> None:
        """zone: of dates that name none. If it is None, a time of day without a zone is not clear,
        and a day alone is a UTC day, as months are."""
        self._zone = zone
        forms: dict[DateForm, Callable[[str], instants.Instant]] = {
            "iso": self._iso,
            "day_first": lambda text: self._slashed(text, day=1, month=3),
            "month_first": lambda text: self._slashed(text, day=3, month=1),
            "unix_s": lambda text: _since_epoch(text, instants.SECOND),
            "unix_ms": lambda text: _since_epoch(text, instants.MILLISECOND),
            "excel": self._excel,
        }
        self._read = forms[form]
        self._known: dict[str, instants.Instant | None] = {"": None}

    def read(self, cells: Sequence[str]) -> list[instants.Instant | None]:
        """Return the instant of each cell; None for empty ones. Raises UnclearCell."""
        known = self._known
        try:
            return [known[cell] for cell in cells]
        except KeyError:
            if len(known) > REMEMBERED:
                known.clear()
            for cell in cells:
                if cell in known:
                    continue
                text = cell.strip()
                if text and type(cell) is CellMoment:  # a workbook writes a day as its midnight
                    known[cell] = self._iso(text.removesuffix("T00:00:00"))
                else:
                    known[cell] = self._read(text) if text else None
        return [known[cell] for cell in cells]

    def _iso(self, text: str) -> instants.Instant:
        match = _ISO.fullmatch(text)
        if match is None:
            if _SLASHED.fullmatch(text) is not None:
                raise UnclearCell(
                    "could begin with the day or with the month: declare "
                    'dates = "day_first" or dates = "month_first" in a mapping, or say --dates'
                )
            if _SERIAL.fullmatch(text) is not None:
                raise UnclearCell(
                    'is a number, as Excel counts days: declare dates = "excel" in a mapping, or '
                    "say --dates excel"
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
        return instant + instants.Duration((fraction or "").ljust(6, "0")[:6])

    def _slashed(self, text: str, *, day: int, month: int) -> instants.Instant:
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
        year = int(match[4]) if len(match[4]) == 4 else 2000 + int(match[4])
        date = (year, int(match[month]), int(match[day]))
        timed = match[5] is not None
        time = (hour, int(match[6] or 0), int(match[7] or 0)) if timed else None
        return self._instant(date, time, match[9])

    def _excel(self, text: str) -> instants.Instant:
        """Read days since the end of 1899 and their fraction, to the second."""
        if _SERIAL.fullmatch(text) is None:
            return self._iso(text)
        days, part = divmod(Decimal(text), 1)
        seconds = int((part * 86_400).to_integral_value())
        if not 0 <= (passed := int(days) - _SERIAL_1970) <= _MOST_DAYS:
            raise UnclearCell("lies outside the years 1970 to 9999")
        moment = datetime(1970, 1, 1) + timedelta(days=passed, seconds=seconds)
        time = (moment.hour, moment.minute, moment.second) if part else None
        return self._instant((moment.year, moment.month, moment.day), time, None)

    def _instant(
        self, date: tuple[int, int, int], time: tuple[int, int, int] | None, zone: str | None
    ) -> instants.Instant:
        if time is not None and zone is None and self._zone is None:
            raise UnclearCell(NO_ZONE)
        time = time or (0, 0, 0)
        try:
            if zone is not None:
                day, clock = "{:04}-{:02}-{:02}".format(*date), "{:02}:{:02}:{:02}".format(*time)
                offset = zone.upper() if len(zone) == 1 else f"{zone[:3]}:{zone[-2:]}"
                return instants.parse_instant(f"{day}T{clock}{offset}")
            moment = datetime(*date, *time, tzinfo=self._zone or UTC)
            instant = instants.instant_of(moment)
        except (ValueError, OverflowError):
            raise UnclearCell("is no day and time of the calendar") from None
        if not 0 <= instant <= instants.LATEST:
            raise UnclearCell("lies outside the years 1970 to 9999")
        return instant


def _since_epoch(text: str, unit: instants.Duration) -> instants.Instant:
    if not _NUMBER.fullmatch(text) or int(text) * unit > instants.LATEST:
        raise UnclearCell("is not a whole number of seconds or milliseconds since 1970")
    return instants.EARLIEST + int(text) * unit


# --- what a merchant declares about a file --------------------------------------------------------


MAX_BYTES: Final = 64 * 1024
"""Bytes of a mapping file; one page has two thousand."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fields:
    """The columns of a kind of file. Compared by identity, so that results can be cached by it.

    names     the columns
    words     the vocabulary of each column that holds words
    defaults  columns that a mapping may give one value for all rows
    amounts   columns that hold money
    dates     columns that hold dates
    """

    names: Sequence[str]
    words: Mapping[str, Sequence[str]]
    defaults: Sequence[str]
    amounts: Sequence[str] = ()
    dates: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOf:
    """A field read from the first of several columns that is not empty in a row."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedOf:
    """A field made of several cells with a blank between them."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumOf:
    """An amount made of columns added and subtracted; unsigned: each without its minus sign.

    sign         the column that says the sum's direction; None: its own sign does
    plus, minus  the words in that column that keep the sum's sign, and those that turn it round
    """

    add: Sequence[str]
    subtract: Sequence[str] = ()
    unsigned: bool = False
    sign: str | None = None
    plus: Sequence[str] = ()
    minus: Sequence[str] = ()

    @property
    def names(self) -> Sequence[str]:
        """All columns; the sign's column is the last."""
        return (*self.add, *self.subtract, *([] if self.sign is None else [self.sign]))


Made = FirstOf | JoinedOf | SumOf
"""A field that no single column holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Consecutive rows that are one row: those with the same text in column `by`, or with none.

    Each cell is the first nonempty one, but cells of columns in `sum` are added.
    """

    by: str
    sum: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """Which rows of a file are its data.

    heading_row            the row of the column names; None: it is found
    skip_first, skip_last  number of rows after the heading and at the end that are no data
    empty                  words in small letters that say that there is nothing
    keep                   by column name: every row has one of these words
    ignore                 by column name: rows with one of these words are left out
    """

    heading_row: int | None = None
    skip_first: int = 0
    skip_last: int = 0
    empty: frozenset[str] = frozenset()
    keep: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ignore: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fold: Fold | None = None

    @property
    def names(self) -> Iterator[str]:
        """The columns that the rules name."""
        yield from (*self.keep, *self.ignore)
        if self.fold is not None:
            yield from (self.fold.by, *self.fold.sum)

    @property
    def changes_rows(self) -> bool:
        """Whether there is more to do than finding the heading."""
        return bool(
            (self.skip_first or self.skip_last or self.empty or self.keep or self.ignore)
            or self.fold is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMapping:
    """A valid mapping. What it leaves out has the usual names and forms.

    kind    the kind of file that it is for; None: it does not say it
    preset  the name of the preset that it is of; None: a mapping of its own
    """

    kind: str | None = None

    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    marks: Marks = field(default_factory=Marks)
    dates: DateForm = "iso"
    zone: tzinfo | None = None
    phone_country: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    zone_column: str | None = None
    zones: Mapping[str, str] = field(default_factory=dict)
    shape: RowRules = field(default_factory=RowRules)
    defaults: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    preset: str | None = None

    def names(self, field: str) -> bool:
        """Return whether the mapping says which column a field is, or what its words mean."""
        return bool(self.columns.get(field) or field in self.made or self.words.get(field))

    def looked_for(self, fields: Fields) -> list[str]:
        """Return the names of all columns that something is read from."""
        singles = [self.columns.get(name, name) for name in fields.names]
        made = [name for each in self.made.values() for name in each.names]
        zone = [] if self.zone_column is None else [self.zone_column]
        return [name for name in dict.fromkeys((*singles, *made, *zone, *self.shape.names)) if name]


def _checked(is_right: Callable[[str], object], sentence: str) -> AfterValidator:
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


def one_or_more(value: Any) -> Sequence[str]:
    """Check texts in square brackets. Raises ValueError."""
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError('must be texts in square brackets, such as ["Paid In"]')
    return tuple(value)


def _text_or_texts(value: Any) -> str | Sequence[str]:
    if not isinstance(value, str) and not isinstance(value, list):
        raise ValueError('must be a text, or texts in square brackets, such as ["Phone"]')
    return value if isinstance(value, str) else one_or_more(value)


def _row_count(least: int) -> AfterValidator:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= MOST_ROWS:
            raise ValueError(f"must be a number of rows from {least} to {MOST_ROWS:,}")
        return value

    return AfterValidator(read)


def words_of_columns(value: Any) -> Mapping[str, Sequence[str]]:
    """Check a section of columns with texts in square brackets. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError('must be a section of columns, such as Status = ["Completed"]')
    for column, words in value.items():
        if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
            raise ValueError(f'{column!r} must be words in square brackets, such as ["Completed"]')
    return {column: tuple(words) for column, words in value.items()}


_DIGITS_OR_MARKS: Final = re.compile(rf"[0-9(),+{re.escape(MINUS_SIGNS)}]")
_NO_MARKS: Final = re.compile(r"[^\s.'’]")
"""A character that is no mark: a dot may stand in `Rs.`, and not alone."""


def _currencies_of_signs(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError('must be a section, such as "$" = "USD"')
    if any(_DIGITS_OR_MARKS.search(sign) or not _NO_MARKS.search(sign) for sign in value):
        raise ValueError("has a sign that could be part of an amount")
    try:
        return dict(zip(value, read_currencies(list(value.values())), strict=True))
    except UnclearCell as error:
        raise ValueError(str(error)) from None


def _directions(value: Any) -> Mapping[str, str]:
    ways = {"minus": "-", "plus": "+"}
    if not isinstance(value, dict) or not all(each in ways for each in map(str, value.values())):
        raise ValueError('must be a section, such as DR = "minus" and CR = "plus"')
    if any(not _SUFFIX.fullmatch(suffix.strip()) for suffix in value):
        raise ValueError("has a suffix that is neither letters nor a minus sign")
    return {suffix.strip().casefold(): ways[way] for suffix, way in value.items()}


_SUFFIX: Final = re.compile(r"-|\+|[^\W\d_]{1,20}\.?")


def _offsets(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(each, str) and _OFFSET.fullmatch(each) for each in value.values()
    ):
        raise ValueError('must be a section of offsets, such as PST = "-08:00"')
    return {name.strip().casefold(): offset for name, offset in value.items()}


MOST_ROWS: Final = 1_000
"""Rows that may be skipped; the text before or after a table is a page at most."""

NONE: Final[Any] = []
"""The default of texts that may be omitted."""

_Texts = Annotated[Any, AfterValidator(one_or_more)]
_Columns = Annotated[Any, AfterValidator(words_of_columns)]


class _SumKeys(TomlTable):
    add: _Texts = NONE
    subtract: _Texts = NONE
    unsigned: Annotated[Any, AfterValidator(yes_or_no)] = False
    sign: str | None = None
    plus: _Texts = NONE
    minus: _Texts = NONE


class _FoldKeys(TomlTable):
    by: str
    sum: _Texts = NONE


class MappingFile(TomlTable):
    """The keys of a mapping that are the same for every kind of file."""

    kind: Literal["book", "statement", "bank"] | None = None
    heading_row: Annotated[Any, _row_count(1)] | None = None
    skip_first: Annotated[Any, _row_count(0)] = 0
    skip_last: Annotated[Any, _row_count(0)] = 0
    brackets: Annotated[str, _checked("negative".__eq__, 'must be "negative"')] | None = None
    zone_column: str | None = None
    optional: _Texts = NONE
    empty: _Texts = NONE
    keep: _Columns = EMPTY
    ignore: _Columns = EMPTY
    fold: _FoldKeys | None = None
    currency_signs: Annotated[Any, AfterValidator(_currencies_of_signs)] = EMPTY
    suffixes: Annotated[Any, AfterValidator(_directions)] = EMPTY
    zones: Annotated[Any, AfterValidator(_offsets)] = EMPTY
    delimiter: (
        Annotated[str, _checked(DELIMITERS.__contains__, 'must be one of "," ";" "|" and "\\t"')]
        | None
    ) = None
    encoding: Annotated[str, _known(known_encoding)] | None = None
    sheet: str | None = None
    decimal: Annotated[str, _checked(DECIMAL_MARKS.__contains__, 'must be "." or ","')] | None = (
        None
    )
    thousands: Annotated[
        str, _checked(THOUSANDS_MARKS.__contains__, "must be one of , . ' and blanks")
    ] = ""
    dates: Annotated[
        str, _checked(DATE_FORMS.__contains__, f"must be one of {', '.join(DATE_FORMS)}")
    ] = "iso"
    zone: Annotated[str, _known(zone_of)] | None = None
    phone_country: (
        Annotated[
            str,
            _checked(re.compile("[0-9]{1,3}").fullmatch, 'must be a calling code such as "254"'),
        ]
        | None
    ) = None


@cache
def _model(fields: Fields, base: type[TomlTable] = MappingFile) -> type[TomlTable]:
    column = Annotated[Any, AfterValidator(_text_or_texts)] | None
    tables: dict[str, dict[str, Any]] = {
        "columns": dict.fromkeys(fields.names, (column, None)),
        "joined": dict.fromkeys(fields.names, (_Texts | None, None)),
        "amounts": dict.fromkeys(fields.amounts, (_SumKeys | None, None)),
        "defaults": {name: (_default_type(name, fields), None) for name in fields.defaults},
        "above": dict.fromkeys(set(fields.defaults) - fields.words.keys(), (str | None, None)),
        "words": {
            name: (dict[str, Literal[tuple(known)]], EMPTY)  # type: ignore[misc]
            for name, known in fields.words.items()
        },
    }
    models: dict[str, Any] = {
        name: (create_model(name, __base__=TomlTable, **keys), EMPTY)
        for name, keys in tables.items()
    }
    return create_model("mapping", __base__=base, **models)


def _default_type(name: str, fields: Fields) -> Any:
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
    beside: Mapping[str, Any] | None = None,
) -> FileMapping:
    """Return the mapping in a file's content. Raises UsageError with all its mistakes.

    name    the file's name in mistakes
    beside  keys given outside the file, such as its encoding; they replace the file's own
    """
    return mapping_of(mapping_values(content, fields, name=name, beside=beside))


def mapping_values(
    content: bytes,
    fields: Fields,
    *,
    name: str,
    beside: Mapping[str, Any] | None = None,
    base: type[TomlTable] = MappingFile,
) -> Values:
    """Return the checked values of a mapping, or of a file with more keys.

    Raises as `read_mapping` does.
    """
    try:
        return read_toml(
            content,
            _model(fields, base),
            name=name,
            most_bytes=MAX_BYTES,
            together=lambda values: _mistakes(values, fields),
            beside=beside,
        )
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def mapping_of(values: Values, *, only_named: Sequence[str] = ()) -> FileMapping:
    """Build the mapping of these values.

    only_named  fields that are read only from a column that the mapping names, not from the column
                of their usual name
    """
    columns = given_in(values["columns"])
    made: dict[str, Made] = {
        field: FirstOf(names=names)
        for field, names in columns.items()
        if not isinstance(names, str)
    }
    made |= {field: JoinedOf(names=names) for field, names in given_in(values["joined"]).items()}
    made |= {field: SumOf(**parts) for field, parts in given_in(values["amounts"]).items()}
    singles = {field: name for field, name in columns.items() if isinstance(name, str)}
    fold = values["fold"]
    return FileMapping(
        kind=values["kind"],
        delimiter=values["delimiter"],
        encoding=values["encoding"],
        sheet=values["sheet"],
        marks=Marks(
            decimal=values["decimal"] or ".",
            thousands=values["thousands"],
            declared=bool(values["decimal"] or values["thousands"]),
            brackets=values["brackets"] is not None,
            signs=values["currency_signs"],
            suffixes=values["suffixes"],
        ),
        dates=values["dates"],
        zone=None if values["zone"] is None else zone_of(values["zone"]),
        phone_country=values["phone_country"],
        columns=dict.fromkeys((*only_named, *made), "") | singles,
        made=made,
        optional=frozenset(values["optional"]),
        zone_column=values["zone_column"],
        zones=values["zones"],
        shape=RowRules(
            heading_row=values["heading_row"],
            skip_first=values["skip_first"],
            skip_last=values["skip_last"],
            empty=frozenset(word.strip().casefold() for word in values["empty"]),
            keep=values["keep"],
            ignore=values["ignore"],
            fold=fold and Fold(by=fold["by"], sum=fold["sum"]),
        ),
        defaults=given_in(values["defaults"]),
        above=given_in(values["above"]),
        words=given_in(values["words"]),
    )


def given_in(table: Values) -> Values:
    return {key: value for key, value in table.items() if value is not None}


STAR: Final = (
    "has a star, which could give a meaning to money that nobody thought of: list the words; a "
    "word that is not listed is a problem of its row"
)


def _mistakes(values: Values, fields: Fields) -> Iterator[TomlMistake]:
    if (values.get("decimal") or ".") == values.get("thousands", ""):
        yield TomlMistake("thousands", "decimal and thousands are the same mark")
    named = {table: set(given_in(values.get(table) or {})) for table in ("columns", "joined")}
    for name in sorted(named["columns"] & named["joined"]):
        yield TomlMistake(f"joined.{name}", "there is a column for it already")
    for name, amount in given_in(values.get("amounts") or {}).items():
        if name in named["columns"] | named["joined"]:
            yield TomlMistake(f"amounts.{name}", "there is a column for it already")
        if not amount.get("add") and not amount.get("subtract"):
            yield TomlMistake(f"amounts.{name}", "names no column: say add, or subtract")
        for word in (*amount.get("plus", ()), *amount.get("minus", ())):
            if "*" in word:
                yield TomlMistake(f"amounts.{name}", f"{word!r} {STAR}")
        ways = [bool(amount.get(key)) for key in ("sign", "plus", "minus")]
        if any(ways) and not all(ways):
            yield TomlMistake(f"amounts.{name}", "say sign, plus and minus together")
    for name, words in (values.get("words") or {}).items():
        for word in words or ():
            if "*" in word:
                yield TomlMistake(f"words.{name}.{word}", f"{word!r} {STAR}")
    for name in values.get("optional", ()):
        if name not in fields.names:
            known = ", ".join(fields.names)
            yield TomlMistake("optional", f"{name!r} is no column of ours; there are {known}")
