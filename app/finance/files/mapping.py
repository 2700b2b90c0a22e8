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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, create_model

from app.core.errors import ConfigurationError, UsageError
from app.core.toml_file import EMPTY, Mistake, Table, Values, read_toml
from app.finance.files.amounts import DECIMAL_MARKS, THOUSANDS_MARKS, Marks, read_currencies
from app.finance.files.csv_table import DELIMITERS
from app.finance.files.dates import DATE_FORMS, DateForm, zone_of
from app.finance.files.tables import Unclear
from app.finance.files.text import known_encoding

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
    zone: tzinfo = field(default_factory=lambda: zone_of("UTC"))
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
        except (UsageError, Unclear) as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(known)


def _is_calling_code(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= len(text) <= 3


class _MappingFile(Table):
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
    zone: Annotated[str, _known(zone_of)] = "UTC"
    phone_country: (
        Annotated[str, _checked(_is_calling_code, 'must be a calling code such as "254"')] | None
    ) = None


def _model(fields: Fields) -> type[Table]:
    """What a mapping of this kind of file may hold."""
    columns: dict[str, Any] = dict.fromkeys(fields.names, (str | None, None))
    defaults: dict[str, Any] = {name: (_default(name, fields), None) for name in fields.defaults}
    words: dict[str, Any] = {
        name: (dict[str, Literal[tuple(known)]], EMPTY)  # type: ignore[misc]
        for name, known in fields.words.items()
    }
    tables: dict[str, Any] = {
        name: (create_model(name, __base__=Table, **keys), EMPTY)
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
        zone=zone_of(values["zone"]),
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
