"""The kinds of values that a key of a profile file may hold.

Each reader takes a TOML value and gives the checked one, or raises ValueError with a sentence that
says what would be right. Readers of free sections take the pair of key and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from app.providers.dates import ZONE
from app.providers.fields import LOCATIONS, compile_location
from app.providers.named.registry import NAMED
from app.providers.paths import compile_path, compile_place
from app.providers.request import header_values
from app.providers.schemes import NAMED as NAMED_PREFIX
from app.providers.schemes import SCHEMES, UNSIGNED
from reconcile.ledger.events import CLAIM_KINDS
from reconcile.money import EXPONENTS

T = TypeVar("T")

REQUIRED: Final = object()

MAX_ANSWER: Final = 1_000
"""Characters of an acknowledgement; providers want a word or two."""


class Rule(NamedTuple):
    """One key: what makes its value (raising ValueError with a sentence), and its default."""

    read: Callable[[Any], Any]
    default: Any = REQUIRED


def text(value: Any) -> str:
    """A text that is not blank."""
    if type(value) is not str or not value.strip():
        raise ValueError("must be a text that is not blank")
    return value


def words(value: Any) -> str:
    """The same in ASCII."""
    if not text(value).isascii():
        raise ValueError("must be ASCII")
    return str(value)


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def one_of(known: Iterable[str]) -> Callable[[Any], str]:
    """One of these names."""
    names = tuple(known)

    def read(value: Any) -> str:
        if type(value) is not str or value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value

    return read


def mac(value: Any) -> str:
    """A scheme of the engine, `none`, or `named:NAME`."""
    known = (*SCHEMES, UNSIGNED, *(NAMED_PREFIX + name for name in NAMED))
    return one_of(known)(value)


def compiled(compile_text: Callable[[str], object]) -> Callable[[Any], str]:
    """A text that compiles."""

    def read(value: Any) -> str:
        compile_text(text(value))
        return str(value)

    return read


def integer(least: int, most: int) -> Callable[[Any], int]:
    """A whole number within bounds, both included."""

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def listed(read_one: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """One, or a list of at least one."""

    def read(value: Any) -> tuple[T, ...]:
        given = value if type(value) is list else [value]
        if not given:
            raise ValueError("must not be an empty list")
        return tuple(read_one(each) for each in given)

    return read


def locations(value: Any) -> tuple[str, ...]:
    """A location, or a list of them."""
    return listed(compiled(compile_location))(value)


def timestamp_place(value: Any) -> str:
    """A place, or `signature:LABEL`."""
    kind, _, name = text(value).partition(":")
    if kind == "signature" and name:
        return words(value)
    return compiled(compile_place)(value)


def items_path(value: Any) -> str:
    """A path that may hold one `[*]`."""
    compile_path(text(value), each=True)
    return str(value)


def json_path(value: Any) -> str:
    """A path into a JSON document, to one value."""
    return compiled(compile_path)(value)


def address_path(value: Any) -> str:
    """What comes after a base URL: a path alone, so that nothing else of the address changes."""
    if not re.fullmatch(r"(?:/[A-Za-z0-9._~%-]+)+", text(value)) or len(value) > MAX_ANSWER:
        raise ValueError("must be a path such as /api/v1/checkout/sessions")
    return str(value)


def token_pattern(value: Any) -> str:
    """How a token is written, with * for whatever; one that is only * would fit every token."""
    if not words(value).strip("*?") or "[" in value:
        raise ValueError("must be a pattern such as live_* with something beside the *")
    return str(value)


def zone(value: Any) -> str:
    """An offset from UTC."""
    if not ZONE.fullmatch(text(value)):
        raise ValueError("must be an offset from UTC such as +03:00")
    return str(value)


def answer_text(value: Any) -> str:
    """A short text in one line; an empty one is an empty answer."""
    if type(value) is not str or len(value) > MAX_ANSWER:
        raise ValueError(f"must be a text of at most {MAX_ANSWER} characters")
    return _one_line(value)


def media_type(value: Any) -> str:
    """The value of a header that we answer with."""
    return _one_line(words(value))


def _one_line(value: str) -> str:
    # A line break in an answer is how one answer is made into two.
    if "\r" in value or "\n" in value:
        raise ValueError("must be one line, without CR or LF")
    return value


def handshake_answer(value: Any) -> str:
    """`text`, `json:KEY` or `header:NAME`."""
    if not re.fullmatch(r"text|json:[A-Za-z0-9_.-]{1,100}|header:[a-z0-9-]{1,100}", text(value)):
        raise ValueError("must be text, json:KEY or header:NAME")
    return str(value)


def claims(pair: tuple[str, Any]) -> str:
    """What the provider's word means; `*` only at the word's end."""
    word, meaning = pair
    if "*" in word[:-1]:
        raise ValueError("may have a * at its end only")
    return one_of(CLAIM_KINDS)(meaning)


def calling_code(value: Any) -> str:
    """A country's calling code, as ITU-T E.164 gives it."""
    if not re.fullmatch(r"[1-9][0-9]{0,2}", text(value)):
        raise ValueError('must be a calling code of one to three digits, such as "254"')
    return str(value)


def header(pair: tuple[str, Any]) -> str:
    """The value of a header that we send, under its name in lower case."""
    name, value = pair
    header_values(name)  # raises for what is no header name
    return words(value)


def decimals(pair: tuple[str, Any]) -> int:
    """A currency's decimals at the provider."""
    currency, value = pair
    if currency not in EXPONENTS:
        raise ValueError("is not a currency code of ISO 4217")
    return integer(0, 6)(value)


def constants(pair: tuple[str, Any]) -> Any:
    """A location, a list of them, or a constant that is no text."""
    name, value = pair
    _one_line(name)
    if type(value) in (int, bool):
        return value
    found = locations(value)
    for each in found:
        _one_line(each)
    return found


def options(pair: tuple[str, Any]) -> Any:
    """What a named verifier is told; the verifier itself judges it."""
    _, value = pair
    if type(value) is list:
        return listed(text)(value)
    if type(value) not in (str, int, bool):
        raise ValueError("must be a text, a whole number, true, false or a list of texts")
    return value


__all__ = ["LOCATIONS", "Rule"]
