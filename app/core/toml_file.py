"""Read TOML files strictly: a pydantic model checks the values, and reports all mistakes.

A mistake is one line with file, line, key, and what would be right. A model is a subclass of
`TomlTable`, whose validators raise ValueError with a sentence.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from app.core.errors import ConfigurationError
from app.core.text import counted

Values = dict[str, Any]
"""Checked values by key. A table is a dict, and an array of tables is a list. Keys with mistakes
are missing."""

_STRICT: Final = ConfigDict(strict=True, extra="forbid", validate_default=True, defer_build=True)


MOST_LISTED: Final = 100

EMPTY: Final[Any] = {}


class TomlTable(BaseModel):
    """Base class for the model of a table. Only declared keys are allowed, with values of exactly
    the declared type."""

    model_config = _STRICT


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


@dataclass(frozen=True, slots=True)
class TomlMistake:
    """Mistake in a TOML file, with a sentence on what would be right."""

    key: str
    """The dotted key, such as `fee.2` in the second `[[fee]]`. Empty for the whole file."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.key}: {self.sentence}" if self.key else self.sentence


def read_toml(
    content: bytes | str,
    model: type[TomlTable],
    *,
    name: str,
    most_bytes: int,
    together: Callable[[Values], Iterable[TomlMistake]] = lambda values: (),
    beside: Mapping[str, Any] | None = None,
) -> Values:
    """Return the checked values of a TOML file.

    name        name of the file in messages
    most_bytes  maximum size of the file
    together    yields mistakes that concern several keys; can add computed values
    beside      top-level values that replace those in the file

    Raises ConfigurationError with every mistake, sorted by line.
    """
    try:
        written = content if isinstance(content, bytes) else content.encode()
        # Check this before parsing: a TOML parser's time grows with the square.
        if len(written) > most_bytes:
            raise ConfigurationError([f"{name}: is larger than {counted(most_bytes, 'byte')}"])
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeError:  # also half of a surrogate pair, which JSON can bring
        raise ConfigurationError([f"{name}: is not UTF-8"]) from None
    document = parsed_toml(text, name=name) | dict(beside or {})
    mistakes = [TomlMistake(key, "is a number that is too large") for key in _beyond(document)]
    if not mistakes:
        try:
            values = model.model_validate(document).model_dump()
        except ValidationError as error:
            found = [_mistake(model, each) for each in error.errors(include_url=False)]
            mistakes = [mistake for _, mistake in found]
            values = _right(model, document, frozenset(place for place, _ in found), ())
        mistakes += together(values)
        if not mistakes:
            return values
    lines, last = lines_of_keys(text), text.count("\n") + 2
    placed = [(line_of_key(lines, mistake.key), mistake) for mistake in dict.fromkeys(mistakes)]
    placed.sort(key=lambda each: each[0] or last)
    messages = [f"{name}{f':{line}' if line else ''}: {mistake}" for line, mistake in placed]
    more = len(messages) - MOST_LISTED
    if more > 0:
        messages[MOST_LISTED:] = [f"{name}: {counted(more, 'more mistake')}"]
    raise ConfigurationError(messages)


MOST_DOTS: Final = 500
"""Maximum number of dots in a line. A key with thirty thousand parts (64 KiB) would take a minute
to parse."""


def parsed_toml(text: str, *, name: str) -> Values:
    """Return the unchecked values of a TOML file. Raise ConfigurationError for a syntax error."""
    for number, each in enumerate(text.split("\n"), 1):
        if each.count(".") > MOST_DOTS:
            raise ConfigurationError([f"{name}:{number}: has more than {MOST_DOTS} dots"])
    try:
        return tomllib.loads(text, parse_float=_decimal)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        found = re.search(r"\(at line ([0-9]+), column [0-9]+\)$", str(error))
        line = found[1] if found else len(text.splitlines())
        raise ConfigurationError([f"{name}:{line}: is not TOML: {error}"]) from None


_BEYOND: Final = object()
"""Placeholder for a number that is too large for Decimal, reported later with its line."""


def _decimal(written: str) -> Any:
    try:
        return Decimal(written)
    except InvalidOperation:
        return _BEYOND


def _beyond(document: Values) -> Iterator[str]:
    left: list[tuple[str, Any]] = [(_written(key), value) for key, value in document.items()]
    while left:
        key, value = left.pop()
        if value is _BEYOND:
            yield key
        elif isinstance(value, dict):
            left += [(f"{key}.{_written(name)}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            left += [(f"{key}.{place}", inner) for place, inner in enumerate(value, 1)]


def _mistake(model: type[TomlTable], error: Any) -> tuple[tuple[int | str, ...], TomlMistake]:
    place: tuple[int | str, ...] = error["loc"]
    key = ".".join(_written(each) for each in place)
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return place, TomlMistake(key, str(context["error"]))
    if kind == "extra_forbidden":
        known = ", ".join(_table_at(model, place[:-1]).model_fields)
        noun = "section" if isinstance(error["input"], dict) and len(place) == 1 else "key"
        return place, TomlMistake(key, f"there is no such {noun}; there are {known}")
    if kind == "literal_error":
        known = context["expected"].replace("'", "").replace(" or ", ", ")
        return place, TomlMistake(key, f"must be one of {known}")
    if isinstance(place[-1], int):
        return place, TomlMistake(key, f"must be a table, written [[{key.rpartition('.')[0]}]]")
    examples = (
        _table_at(model, place[:-1]).model_fields[place[-1]].examples if kind in _EXAMPLE else ()
    )
    example = "".join(f" {each}" for each in examples or ())
    return place, TomlMistake(key, _SENTENCES[kind].format(key=key, example=example))


_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "string_type": "must be a text",
    "dict_type": "must be a section, such as [{key}]{example}",
    "model_type": "must be a section, such as [{key}]{example}",
    "list_type": "must be tables, each written [[{key}]]",
}
_EXAMPLE: Final = frozenset({"dict_type", "model_type"})


def _written(part: int | str) -> str:
    if isinstance(part, int):
        return str(part + 1)
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else '"' + part + '"'


def _table_at(model: type[TomlTable], place: Sequence[int | str]) -> type[TomlTable]:
    for part in place:
        if isinstance(part, str):
            model = _table_of(model.model_fields[part].annotation) or model
    return model


def _table_of(annotation: Any) -> type[TomlTable] | None:
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, TomlTable):
            return each
    return None


def _right(
    model: type[TomlTable],
    given: Values,
    wrong: frozenset[tuple[int | str, ...]],
    at: tuple[Any, ...],
) -> Values:
    values: Values = {}
    for name, field in model.model_fields.items():
        place, value = (
            (*at, name),
            given.get(name, field.get_default(call_default_factory=True, validated_data={})),
        )
        table = _table_of(field.annotation)
        if place in wrong or (name not in given and field.is_required()):
            continue
        if table is not None and isinstance(value, dict):
            values[name] = _right(table, value, wrong, place)
        elif table is not None and isinstance(value, list):
            values[name] = [
                _right(table, each, wrong, (*place, number))
                for number, each in enumerate(value)
                if (*place, number) not in wrong
            ]
        elif name not in given:
            values[name] = value
        elif get_origin(field.annotation) is dict and not field.metadata:
            sound = {key: each for key, each in value.items() if (*place, key) not in wrong}
            values[name] = _adapter(model, name).validate_python(sound)
        elif not any(each[: len(place)] == place for each in wrong):
            values[name] = _adapter(model, name).validate_python(value)
    return values


def _adapter(model: type[TomlTable], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(kind, config=_STRICT)


# --- lines ---------------------------------------------------------------------------------------

# All quantifiers are possessive, since the patterns also run over arbitrary multi-line texts.
_HEADER: Final = re.compile(r"\s*+(\[\[?)([^\[\]]++)\]\]?\s*+(?:#.*)?$")
_KEY: Final = re.compile(
    r"""\s*+((?:"(?:[^"\\]|\\.)*+"|'[^']*+'|[A-Za-z0-9_-]++|\s*+\.\s*+)++)\s*+="""
)
_LONG_TEXT: Final = re.compile(r"\"\"\"|'''")
_NAME: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"|\'([^\']*+)\'|([^."\']++)|["\'].*', re.DOTALL)


Lines = Mapping[tuple[str, ...], int]


def lines_of_keys(text: str) -> Lines:
    """Return the line number of each table header and key in a TOML file.

    TOML parsers do not report lines.
    """
    found: dict[tuple[str, ...], int] = {}
    for number, names in _entries(text):
        found.setdefault(names, number)
    return found


def line_of_key(lines: Lines, key: str) -> int:
    """Return the line of a dotted key, or of the innermost table around the key. Return 0 if there
    is neither."""
    names = _names(key)
    inwards = (names[:depth] for depth in range(len(names), 0, -1))
    return next((lines[each] for each in inwards if each in lines), 0)


def _entries(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    section: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        was_inside, inside = inside, inside ^ (len(_LONG_TEXT.findall(line)) % 2 == 1)
        header, entry = _HEADER.match(line), _KEY.match(line)
        if was_inside:
            continue
        if header:
            section = _names(header[2])
            if header[1] == "[[":
                counts[section] = counts.get(section, 0) + 1
                section = (*section, str(counts[section]))
            yield number, section
        elif entry:
            yield number, section + _names(entry[1])


def _names(dotted: str) -> tuple[str, ...]:
    parts = ("".join(part) for part in _NAME.findall(dotted))
    return tuple(part.strip() for part in parts if part.strip())
