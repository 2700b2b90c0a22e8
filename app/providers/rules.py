"""Kinds of values that a key of a profile file may have.

Each kind is a function that returns the value or raises ValueError.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from app.providers import dates, kit, paths, schemes
from app.providers.fields import compile_location
from app.providers.request import header_values
from reconcile.ledger.events import CLAIM_KINDS
from reconcile.money import EXPONENTS

T = TypeVar("T")

MAX_ANSWER: Final = 1_000
"""Maximum number of characters of an acknowledgement."""

MAX_NOTE: Final = 300
"""Maximum number of characters of a sentence that is shown to people."""

MAX_EVENT: Final = 100
"""Maximum number of characters of an event's name at a provider."""

MOST_EVENTS: Final = 60
MOST_NOTES: Final = 12


class Free(NamedTuple):
    """Rule for a section with freely chosen keys."""

    read: Callable[[tuple[str, Any]], Any]


def text(value: Any) -> str:
    if type(value) is not str or not value.strip():
        raise ValueError("must be a text that is not blank")
    return value


def words(value: Any) -> str:
    if not text(value).isascii():
        raise ValueError("must be ASCII")
    return str(value)


def flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def one_of(known: Iterable[str]) -> Callable[[Any], str]:
    """Return a rule that accepts one of these names."""
    names = tuple(known)

    def read(value: Any) -> str:
        if type(value) is not str or value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value

    return read


def compiled(compile_text: Callable[[str], object]) -> Callable[[Any], str]:
    """Return a rule that accepts every text that `compile_text` accepts."""

    def read(value: Any) -> str:
        compile_text(text(value))
        return str(value)

    return read


def integer(least: int, most: int) -> Callable[[Any], int]:
    """Return a rule that accepts a whole number from `least` to `most`, both included."""

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def listed(read_one: Callable[[Any], T], most: int | None = None) -> Callable[[Any], tuple[T, ...]]:
    """Return a rule that accepts one value, or a list, as a tuple.

    read_one  rule for each value
    most  maximum length; None for none
    """

    def read(value: Any) -> tuple[T, ...]:
        given = value if type(value) is list else [value]
        if not given:
            raise ValueError("must not be an empty list")
        if most is not None and len(given) > most:
            raise ValueError(f"must be a list of at most {most}")
        return tuple(read_one(each) for each in given)

    return read


locations: Final = listed(compiled(compile_location))
items_path: Final = compiled(lambda path: paths.compile_path(path, each=True))
place: Final = compiled(paths.compile_place)


def _one_line(value: str) -> str:
    # A line break in an answer would let one answer be read as two.
    if "\r" in value or "\n" in value:
        raise ValueError("must be one line, without CR or LF")
    return value


def mac(value: Any) -> str:
    """Check the name of a signature scheme."""
    if type(value) is str and value.startswith("named:"):
        if kit.named_scheme(value) is None:
            raise ValueError(f"must be named: plus one of {', '.join(kit.names_of('SCHEME'))}")
        return value
    return one_of((*schemes.SCHEMES, schemes.UNSIGNED, "named:NAME"))(value)


def code(value: Any) -> str:
    """Check the name of a module in `named/`. The module must define PARTICULARS."""
    if type(value) is str and kit.particulars(value):
        return value
    return one_of(kit.names_of("PARTICULARS"))(value)


def timestamp_place(value: Any) -> str:
    """Check the location of a timestamp: a place in the request, or `signature:LABEL`."""
    kind, _, label = text(value).partition(":")
    return words(value) if kind == "signature" and label else place(value)


def zone(value: Any) -> str:
    if not dates.ZONE.fullmatch(text(value)):
        raise ValueError("must be an offset from UTC such as +03:00")
    return str(value)


def note(value: Any) -> str:
    """Check that a sentence is short and on one line."""
    if len(text(value)) > MAX_NOTE or not value.isprintable():
        raise ValueError(f"must be one line of at most {MAX_NOTE} printable characters")
    return str(value)


def event_name(value: Any) -> str:
    """Check the name of an event."""
    if not re.fullmatch(r"[!-~]+", text(value)) or len(value) > MAX_EVENT or "*" in value:
        raise ValueError(
            f"must be an exact name of at most {MAX_EVENT} ASCII characters, without blanks or *"
        )
    return str(value)


def answer_text(value: Any) -> str:
    """Check that an answer's text is short and on one line."""
    if type(value) is not str or len(value) > MAX_ANSWER:
        raise ValueError(f"must be a text of at most {MAX_ANSWER} characters")
    return _one_line(value)


def media_type(value: Any) -> str:
    return _one_line(words(value))


def calling_code(value: Any) -> str:
    """Check a country's calling code (ITU-T E.164), such as `254`."""
    if not re.fullmatch(r"[1-9][0-9]{0,2}", text(value)):
        raise ValueError('must be a calling code of one to three digits, such as "254"')
    return str(value)


def claims(pair: tuple[str, Any]) -> str:
    """Check the claim that a provider's word stands for."""
    word, meaning = pair
    if "*" in word[:-1]:
        raise ValueError("may have a * only at its end")
    return one_of(CLAIM_KINDS)(meaning)


def kinds(value: Any) -> str:
    """Check the name of a kind of events."""
    if "*" in words(value)[:-1]:
        raise ValueError("may have a * only at its end")
    return str(value)


def credential_note(pair: tuple[str, Any]) -> str:
    name, value = pair
    if not re.fullmatch(r"[a-z0-9_]{1,40}", name):
        raise ValueError("is not a credential's name: lower case letters, digits and _")
    return note(value)


def header(pair: tuple[str, Any]) -> str:
    """Check the name and value of a header that we send to the provider."""
    name, value = pair
    header_values(name)  # raises where it is not a header name in lower case
    return words(value)


def decimals(pair: tuple[str, Any]) -> int:
    """Check the number of decimals that the provider uses for a currency."""
    currency, value = pair
    if currency not in EXPONENTS:
        raise ValueError("is not a currency code of ISO 4217")
    return integer(0, 6)(value)


def days_of(most: int) -> Callable[[tuple[str, Any]], int]:
    """Return a rule for a method's number of days."""

    def read(pair: tuple[str, Any]) -> int:
        method, value = pair
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", method):
            raise ValueError("is not a method's name: letters, digits, _, . and -")
        return integer(0, most)(value)

    return read


def constants(pair: tuple[str, Any]) -> Any:
    """Check a member of an answer."""
    name, value = pair
    _one_line(name)
    if type(value) in (int, bool):
        return value
    return tuple(_one_line(each) for each in locations(value))


def options(pair: tuple[str, Any]) -> Any:
    """Check the type of a verifier's option."""
    _, value = pair
    if type(value) is list:
        return listed(text)(value)
    if type(value) not in (str, int, bool):
        raise ValueError("must be a text, a whole number, true, false or a list of texts")
    return value
