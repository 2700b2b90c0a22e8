"""Read a mapping, a TOML file with the merchant's declarations about a file. README.md in this
folder lists all keys."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, create_model

from app.core.errors import ConfigurationError, UsageError
from app.core.toml_file import EMPTY, TomlMistake, TomlTable, Values, read_toml
from app.finance.files import amounts
from app.finance.files.dates import DATE_FORMS, DateForm, zone_of
from app.finance.files.tables import DELIMITERS, UnclearCell, known_encoding

MAX_BYTES: Final = 64 * 1024
"""Maximum number of bytes in a mapping file."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fields:
    """Columns of a kind of file, by the kind of their cells."""

    names: Sequence[str]
    words: Mapping[str, Sequence[str]]
    defaults: Sequence[str]
    amounts: Sequence[str] = ()
    dates: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOf:
    """Field with the first nonempty cell of several columns."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedOf:
    """Field that joins the cells of several columns."""

    names: Sequence[str]


Signs = Literal["minus", "none", "any", "sum"]
SIGNS: Final[tuple[Signs, ...]] = get_args(Signs)
"""Ways in which a file writes outgoing money.

- minus: a minus sign
- none: no sign; the row's type or column shows the direction
- any: signs are ignored
- sum: the row's columns are added and subtracted
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumOf:
    """Amount that is made by adding and subtracting columns."""

    add: Sequence[str]
    subtract: Sequence[str] = ()
    sign: str | None = None
    plus: Sequence[str] = ()
    minus: Sequence[str] = ()

    @property
    def names(self) -> Sequence[str]:
        """Return all columns, with the sign's column last."""
        return (*self.add, *self.subtract, *([] if self.sign is None else [self.sign]))


Made = FirstOf | JoinedOf | SumOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Rule that joins consecutive rows with equal texts."""

    by: str
    sum: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """Rules that say which rows of a file are data. `heading_row` is None to find the heading, and
    0 without one."""

    heading_row: int | None = None
    skip_first: int = 0
    skip_last: int = 0
    empty: frozenset[str] = frozenset()
    keep: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ignore: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fold: Fold | None = None

    @property
    def names(self) -> Iterator[str]:
        yield from (*self.keep, *self.ignore)
        if self.fold is not None:
            yield from (self.fold.by, *self.fold.sum)

    @property
    def changes_rows(self) -> bool:
        """Return whether the rules do more than find the heading."""
        return bool(
            (self.skip_first or self.skip_last or self.empty or self.keep or self.ignore)
            or self.fold is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMapping:
    """Valid mapping: how to read the columns of a file. `preset` is empty for a changed preset, and
    None without a preset."""

    kind: str | None = None

    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    marks: amounts.Marks = field(default_factory=amounts.Marks)
    dates: DateForm = "iso"
    zone: tzinfo | None = None
    phone_country: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    unnamed_ignored: bool = False
    zone_column: str | None = None
    zones: Mapping[str, str] = field(default_factory=dict)
    shape: RowRules = field(default_factory=RowRules)
    defaults: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    signs: Signs | None = None
    preset: str | None = None
    rows: str | None = None

    def names(self, field: str) -> bool:
        """Check if the mapping names a field's column or words."""
        return bool(self.columns.get(field) or field in self.made or self.words.get(field))

    def looked_for(self, fields: Fields) -> list[str]:
        """Return the names of all columns that the mapping reads."""
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
    """Return a list of nonempty texts as a tuple. Raise ValueError for any other value."""
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
    """Return a section that lists texts for each column. Raise ValueError for any other form."""
    if not isinstance(value, dict):
        raise ValueError(
            'must be a section with a list of words for each column, such as Status = ["Completed"]'
        )
    for column, words in value.items():
        if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
            raise ValueError(f'{column!r} must be words in square brackets, such as ["Completed"]')
    return {column: tuple(words) for column, words in value.items()}


_DIGITS_OR_MARKS: Final = re.compile(rf"[0-9(),+{re.escape(amounts.MINUS_SIGNS)}]")
_NO_MARKS: Final = re.compile(r"[^\s.'’]")


def _currencies_of_signs(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError('must be a section, such as "$" = "USD"')
    if any(_DIGITS_OR_MARKS.search(sign) or not _NO_MARKS.search(sign) for sign in value):
        raise ValueError("contains a character that could be part of an amount")
    try:
        return dict(zip(value, amounts.read_currencies(list(value.values())), strict=True))
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


def _zones(value: Any) -> Mapping[str, str]:
    try:
        return {name.strip().casefold(): zone for name, zone in value.items() if zone_of(zone)}
    except (AttributeError, TypeError, UsageError):
        raise ValueError('must be a section of offsets or zones, such as PST = "-08:00"') from None


MOST_ROWS: Final = 1_000
"""Maximum number of rows that a mapping may skip."""

NONE: Final[Any] = []

_Texts = Annotated[Any, AfterValidator(one_or_more)]
_Columns = Annotated[Any, AfterValidator(words_of_columns)]


class _SumKeys(TomlTable):
    add: _Texts = NONE
    subtract: _Texts = NONE
    sign: str | None = None
    plus: _Texts = NONE
    minus: _Texts = NONE


class _FoldKeys(TomlTable):
    by: str
    sum: _Texts = NONE


class MappingFile(TomlTable):
    """Keys that every mapping file may have."""

    kind: Literal["book", "statement", "bank"] | None = None
    heading_row: Annotated[Any, _row_count(0)] | None = None
    skip_first: Annotated[Any, _row_count(0)] = 0
    skip_last: Annotated[Any, _row_count(0)] = 0
    signs: (
        Annotated[str, _checked(SIGNS.__contains__, f"must be one of {', '.join(SIGNS)}")] | None
    ) = None
    brackets: Annotated[str, _checked("negative".__eq__, 'must be "negative"')] | None = None
    unnamed: Annotated[str, _checked("ignored".__eq__, 'must be "ignored"')] | None = None
    zone_column: str | None = None
    optional: _Texts = NONE
    empty: _Texts = NONE
    keep: _Columns = EMPTY
    ignore: _Columns = EMPTY
    fold: _FoldKeys | None = None
    currency_signs: Annotated[Any, AfterValidator(_currencies_of_signs)] = EMPTY
    suffixes: Annotated[Any, AfterValidator(_directions)] = EMPTY
    zones: Annotated[Any, AfterValidator(_zones)] = EMPTY
    delimiter: (
        Annotated[str, _checked(DELIMITERS.__contains__, 'must be one of "," ";" "|" and "\\t"')]
        | None
    ) = None
    encoding: Annotated[str, _known(known_encoding)] | None = None
    sheet: str | None = None
    decimal: (
        Annotated[str, _checked(amounts.DECIMAL_MARKS.__contains__, 'must be "." or ","')] | None
    ) = None
    thousands: Annotated[
        str, _checked(amounts.THOUSANDS_MARKS.__contains__, "must be one of , . ' and blanks")
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
        return Annotated[str, _known(lambda code: amounts.read_currencies([code]))] | None
    return str | None


def read_mapping(
    content: bytes,
    fields: Fields,
    *,
    name: str = "the mapping",
    beside: Mapping[str, Any] | None = None,
) -> FileMapping:
    """Parse a mapping file. Raise UsageError that lists all mistakes."""
    return mapping_of(mapping_values(content, fields, name=name, beside=beside))


def mapping_values(
    content: bytes,
    fields: Fields,
    *,
    name: str,
    beside: Mapping[str, Any] | None = None,
    base: type[TomlTable] = MappingFile,
) -> Values:
    """Return the checked values of a mapping."""
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
    """Build a mapping from checked values."""
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
        marks=amounts.Marks(
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
        signs=values["signs"],
        columns=dict.fromkeys((*only_named, *made), "") | singles,
        made=made,
        optional=frozenset(values["optional"]),
        unnamed_ignored=values["unnamed"] is not None,
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
    "has a star, which could match words about money that nobody foresaw: list the words "
    "instead. A word that is not listed is reported as a problem of its row"
)


def _mistakes(values: Values, fields: Fields) -> Iterator[TomlMistake]:
    if (values.get("decimal") or ".") == values.get("thousands", ""):
        yield TomlMistake("thousands", "decimal and thousands are the same mark")
    named = {table: set(given_in(values.get(table) or {})) for table in ("columns", "joined")}
    for name in sorted(named["columns"] & named["joined"]):
        yield TomlMistake(f"joined.{name}", "a column is already given for this value")
    for name, amount in given_in(values.get("amounts") or {}).items():
        if name in named["columns"] | named["joined"]:
            yield TomlMistake(f"amounts.{name}", "a column is already given for this value")
        if not amount.get("add") and not amount.get("subtract"):
            yield TomlMistake(f"amounts.{name}", "names no column: give add or subtract")
        for word in (*amount.get("plus", ()), *amount.get("minus", ())):
            if "*" in word:
                yield TomlMistake(f"amounts.{name}", f"{word!r} {STAR}")
        ways = [bool(amount.get(key)) for key in ("sign", "plus", "minus")]
        if any(ways) and not all(ways):
            yield TomlMistake(f"amounts.{name}", "give sign, plus and minus together")
    for name, words in (values.get("words") or {}).items():
        for word in words or ():
            if "*" in word:
                yield TomlMistake(f"words.{name}.{word}", f"{word!r} {STAR}")
    for name in values.get("optional", ()):
        if name not in fields.names:
            known = ", ".join(fields.names)
            yield TomlMistake(
                "optional",
                f"{name!r} is not a column that Tallyhook reads; the columns are {known}",
            )
