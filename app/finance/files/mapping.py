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

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Final

from app.core.errors import UsageError
from app.finance.files.amounts import DECIMAL_MARKS, THOUSANDS_MARKS, Marks, read_currencies
from app.finance.files.csv_table import DELIMITERS
from app.finance.files.dates import DATE_FORMS, DateForm, zone_of
from app.finance.files.tables import Unclear
from app.finance.files.text import known_encoding

MAX_BYTES: Final = 64 * 1024
"""Bytes of a mapping file; a page of it has two thousand."""

_TEXTS: Final = (
    "delimiter",
    "encoding",
    "sheet",
    "decimal",
    "thousands",
    "dates",
    "zone",
    "phone_country",
)


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


def read_mapping(
    content: bytes, fields: Fields, *, delimiter: str | None = None, encoding: str | None = None
) -> FileMapping:
    """The mapping in a file's content. Raises UsageError that says all that is wrong with it.

    delimiter, encoding  said beside it, and go before it
    """
    if len(content) > MAX_BYTES:
        raise UsageError(f"the mapping is larger than {MAX_BYTES // 1024} KiB")
    try:
        said = tomllib.loads(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the mapping is not TOML: {error}") from None
    beside = {"delimiter": delimiter, "encoding": encoding}
    said |= {name: value for name, value in beside.items() if value is not None}
    wrong = list(_wrong_values(said, fields)) or list(_wrong_marks(said))
    if wrong:
        raise UsageError("the mapping: " + "; ".join(wrong))
    marks = Marks(decimal=said.get("decimal", "."), thousands=said.get("thousands", ""))
    return FileMapping(
        delimiter=said.get("delimiter"),
        encoding=said.get("encoding"),
        sheet=said.get("sheet"),
        marks=marks,
        dates=said.get("dates", "iso"),
        zone=zone_of(said.get("zone", "UTC")),
        phone_country=said.get("phone_country"),
        columns=said.get("columns", {}),
        defaults=said.get("defaults", {}),
        words=said.get("words", {}),
    )


def _wrong_values(said: Mapping[str, Any], fields: Fields) -> Iterator[str]:
    for name, value in said.items():
        if name in _TEXTS:
            if not isinstance(value, str):
                yield f"{name} is not a text"
        elif name not in ("columns", "defaults", "words"):
            yield f"there is no {name!r}; there are {', '.join(_TEXTS)}, [columns], [defaults]"
        elif not isinstance(value, dict):
            yield f"[{name}] is not a table"
        else:
            yield from _wrong_table(name, value, fields)


def _wrong_table(name: str, table: Mapping[str, Any], fields: Fields) -> Iterator[str]:
    known = {"columns": fields.names, "defaults": fields.defaults, "words": [*fields.words]}[name]
    for key, value in table.items():
        if key not in known:
            yield f"[{name}] has no {key!r}; it has {', '.join(known)}"
        elif name != "words":
            if not isinstance(value, str):
                yield f"{key} in [{name}] is not a text"
            elif name == "defaults":
                yield from _wrong_default(key, value, fields)
        elif not isinstance(value, dict):
            yield f"[words.{key}] is not a table"
        else:
            odd = [word for word, meant in value.items() if meant not in fields.words[key]]
            for word in odd:
                yield f"{word!r} in [words.{key}] means none of {', '.join(fields.words[key])}"


def _wrong_default(key: str, value: str, fields: Fields) -> Iterator[str]:
    if key in fields.words and value not in fields.words[key]:
        yield f"{key} in [defaults] is none of {', '.join(fields.words[key])}"
    if key == "currency":
        try:
            read_currencies([value])
        except Unclear as error:
            yield f"currency in [defaults]: {error}"


def _wrong_marks(said: Mapping[str, Any]) -> Iterator[str]:
    decimal, thousands = said.get("decimal", "."), said.get("thousands", "")
    if decimal not in DECIMAL_MARKS:
        yield 'decimal is "." or ","'
    if thousands not in THOUSANDS_MARKS:
        yield "thousands is one of , . ' and blanks"
    if decimal == thousands:
        yield "decimal and thousands are the same mark"
    if said.get("delimiter", ",") not in DELIMITERS:
        yield 'delimiter is one of "," ";" "|" and "\\t"'
    if said.get("dates", "iso") not in DATE_FORMS:
        yield f"dates is one of {', '.join(DATE_FORMS)}"
    country = said.get("phone_country", "254")
    if not (country.isascii() and country.isdigit() and 1 <= len(country) <= 3):
        yield "phone_country is a calling code such as 254"
    for read, name in ((zone_of, "zone"), (known_encoding, "encoding")):
        if name in said:
            try:
                read(said[name])
            except UsageError as error:
                yield str(error)
