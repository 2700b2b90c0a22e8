"""What each key of a profile file may hold, as one table.

What must hold between keys is in `rules_together.py`.

Every mistake is one sentence with its key. The checks compile what they check with the very
functions that the engine uses, so that a file that loads also runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import Field, PlainValidator, create_model

from app.core.toml_file import EMPTY, Mistake, TomlTable, Values
from app.providers import dates, encodings, paths, reader, schemes, template
from app.providers.fields import LOCATIONS, compile_location
from app.providers.named.contract import NAMED
from app.providers.request import header_values
from reconcile.ledger.events import CLAIM_KINDS
from reconcile.money import EXPONENTS

# --- the kinds of values that a key of a profile file may hold ------------------------------------


T = TypeVar("T")

REQUIRED: Final = object()

MAX_ANSWER: Final = 1_000
"""Characters of an acknowledgement; providers want a word or two."""

MAX_NOTE: Final = 300
"""Characters of a sentence for people; what is longer is not read."""

MAX_EVENT: Final = 100
"""Characters of an event's name at a provider."""

MOST_EVENTS: Final = 60
MOST_NOTES: Final = 12


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
    known = (*schemes.SCHEMES, schemes.UNSIGNED, *(schemes.NAMED + name for name in NAMED))
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


def listed(read_one: Callable[[Any], T], most: int | None = None) -> Callable[[Any], tuple[T, ...]]:
    """One, or a list of at least one, and of at most so many."""

    def read(value: Any) -> tuple[T, ...]:
        given = value if type(value) is list else [value]
        if not given:
            raise ValueError("must not be an empty list")
        if most is not None and len(given) > most:
            raise ValueError(f"must be a list of at most {most}")
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
    return compiled(paths.compile_place)(value)


def items_path(value: Any) -> str:
    """A path that may hold one `[*]`."""
    paths.compile_path(text(value), each=True)
    return str(value)


def json_path(value: Any) -> str:
    """A path into a JSON document, to one value."""
    return compiled(paths.compile_path)(value)


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
    if not dates.ZONE.fullmatch(text(value)):
        raise ValueError("must be an offset from UTC such as +03:00")
    return str(value)


def note(value: Any) -> str:
    """A sentence for people, in one line that a terminal can show."""
    if len(text(value)) > MAX_NOTE or not value.isprintable():
        raise ValueError(f"must be one line of at most {MAX_NOTE} printable characters")
    return str(value)


def event_name(value: Any) -> str:
    """An event as the provider's own page calls it."""
    if not re.fullmatch(r"[!-~]+", text(value)) or len(value) > MAX_EVENT or "*" in value:
        raise ValueError(
            f"must be an exact name of at most {MAX_EVENT} ASCII characters, without blanks and *"
        )
    return str(value)


def credential_note(pair: tuple[str, Any]) -> str:
    """What a credential of this name is."""
    name, value = pair
    if not re.fullmatch(r"[a-z0-9_]{1,40}", name):
        raise ValueError("is not a credential's name: lower case letters, digits and _")
    return note(value)


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
    """The options of a named verifier; the verifier itself judges them."""
    _, value = pair
    if type(value) is list:
        return listed(text)(value)
    if type(value) not in (str, int, bool):
        raise ValueError("must be a text, a whole number, true, false or a list of texts")
    return value


__all__ = ["LOCATIONS", "Rule"]


# --- what each key of a profile file may hold, as one table ---------------------------------------


MARKS: Final = ("official-sdk", "official-doc", "third-party", "general-knowledge")
KEYS: Final = ("merchant", "provider")
METHODS: Final = ("POST", "PUT", "GET")
WRITTEN_AMOUNTS: Final = ("major_number", "major_text", "minor_number")
MAY_BE_REQUIRED: Final = ("phone", "success_url", "cancel_url")

_tolerance = integer(1, 7 * 24 * 3600)

TOP: Final[Mapping[str, Rule]] = {
    "verifies_only": Rule(flag, False),
    "confirm": Rule(one_of(["fetch_back"]), None),
}

SECTIONS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "setup": {
        "where": Rule(note, None),
        "secret": Rule(note, None),
        "events": Rule(listed(event_name, MOST_EVENTS), ()),
        "fields": Rule(listed(note, MOST_NOTES), ()),
        "traps": Rule(listed(note, MOST_NOTES), ()),
        "silence": Rule(note, None),
    },
    "signature": {
        "mac": Rule(mac),
        "key": Rule(one_of(KEYS), None),
        "where": Rule(compiled(paths.compile_place), None),
        "format": Rule(one_of(encodings.FORMATS), "plain"),
        "encoding": Rule(one_of(encodings.ENCODINGS), None),
        "signed": Rule(compiled(template.compile_template), None),
        "signed_also": Rule(compiled(template.compile_template), None),
        "label": Rule(words, None),
        "prefix": Rule(words, None),
        "separator": Rule(words, None),
        "per_item": Rule(flag, False),
    },
    "signature.also": {
        "mac": Rule(mac),
        "label": Rule(words),
        "secret_prefixes": Rule(listed(words)),
    },
    "account": {
        "where": Rule(locations, ()),
        "undocumented": Rule(flag, False),
    },
    "secret": {
        "encoding": Rule(one_of(encodings.SECRET_ENCODINGS), None),
        "least_bytes": Rule(integer(1, 64), 24),
        "key_id": Rule(compiled(paths.compile_place), None),
        "never_begins": Rule(listed(words), ()),
    },
    "timestamp": {
        "where": Rule(timestamp_place),
        "unit": Rule(one_of(dates.UNITS), "s"),
        "past_s": Rule(_tolerance, 300),
        "future_s": Rule(_tolerance, 300),
    },
    "request": {
        "methods": Rule(listed(one_of(METHODS)), ("POST",)),
        "body": Rule(one_of(["json", "form", "form_json", "query"]), "json"),
        "field": Rule(text, None),
    },
    "acknowledgement": {
        "status": Rule(integer(200, 299), 200),
        "redelivery_days": Rule(integer(1, 90), 30),
        "body": Rule(answer_text, None),
        "type": Rule(media_type, "application/json"),
    },
    "handshake": {
        "method": Rule(one_of(["POST", "GET", "OPTIONS"])),
        "when": Rule(locations),
        "equals": Rule(text, None),
        "equals_secret": Rule(flag, False),
        "echo": Rule(locations),
        "answer": Rule(handshake_answer, "text"),
    },
    "event": {
        "items": Rule(items_path, None),
        "id": Rule(locations, ()),
        "kind": Rule(locations, ()),
        "occurred_at": Rule(locations, ()),
        "dates": Rule(one_of(dates.DATES), "rfc3339"),
        "zone": Rule(zone, "+00:00"),
        "order": Rule(locations, ()),
        "session": Rule(locations, ()),
        "payment": Rule(locations, ()),
        "movement": Rule(locations, ()),
        "capture": Rule(locations, ()),
        "reason": Rule(locations, ()),
        "respond_by": Rule(locations, ()),
    },
    "customer": {
        "phone": Rule(locations, ()),
        "country": Rule(calling_code, None),
    },
    "environment": {
        "where": Rule(locations, ()),
        "sandbox": Rule(text, "sandbox"),
        "live": Rule(text, "live"),
        "either": Rule(text, None),
    },
    "amounts": {
        "unit": Rule(one_of(reader.AMOUNT_UNITS), None),
        "payment": Rule(locations, ()),
        "payment_currency": Rule(locations, ()),
        "refund": Rule(locations, ()),
        "refund_currency": Rule(locations, ()),
        "refunded_total": Rule(locations, ()),
        "won": Rule(locations, ()),
        "order": Rule(locations, ()),
        "order_currency": Rule(locations, ()),
    },
    "fetch_back": {
        "method": Rule(one_of(["GET", "POST"]), "GET"),
        "url": Rule(listed(text)),
        "sandbox_url": Rule(listed(text), ()),
        "auth": Rule(text, "none"),
        "credential": Rule(words, None),
        "token_url": Rule(text, None),
        "sandbox_token_url": Rule(text, None),
        "token_method": Rule(one_of(["GET", "POST"]), "POST"),
        "token_body": Rule(text, "grant_type=client_credentials"),
        "body": Rule(text, None),
        "kind": Rule(locations),
        "payment": Rule(locations, ()),
        "session": Rule(locations, ()),
        "order": Rule(locations, ()),
        "environment": Rule(locations, ()),
        "movement": Rule(locations, ()),
        "capture": Rule(locations, ()),
        "occurred_at": Rule(locations, ()),
        "dated_as_event": Rule(flag, False),
        "amount": Rule(locations, ()),
        "refund": Rule(locations, ()),
        "refunded_total": Rule(locations, ()),
        "currency": Rule(locations, ()),
    },
    "checkout": {
        "path": Rule(address_path, "/api/v1/checkout/sessions"),
        "amount": Rule(one_of(WRITTEN_AMOUNTS), "major_number"),
        "requires": Rule(listed(one_of(MAY_BE_REQUIRED)), ()),
        "accepted": Rule(listed(integer(200, 299)), (200, 201)),
        "reference": Rule(json_path, "reference"),
        "checkout_url": Rule(json_path, "checkout_url"),
        "expires_at": Rule(json_path, "expires_at"),
        "dates": Rule(one_of(dates.DATES), "rfc3339"),
        "order": Rule(json_path, "order.reference"),
        "key_lifetime_s": Rule(integer(60, 30 * 24 * 3600), 24 * 3600),
        "live_tokens": Rule(listed(token_pattern), ("live_*", "*_live_*")),
        "sandbox_tokens": Rule(
            listed(token_pattern), ("sandbox_*", "*_sandbox_*", "test_*", "*_test_*")
        ),
    },
    "rests_on": {"mark": Rule(one_of(MARKS)), "source": Rule(listed(text))},
}

FREE: Final[Mapping[str, Rule]] = {
    "setup.credentials": Rule(credential_note, ()),
    "signature.options": Rule(options, ()),
    "acknowledgement.fields": Rule(constants, ()),
    "amounts.decimals": Rule(decimals, ()),
    "fetch_back.headers": Rule(header, ()),
    "fetch_back.claims": Rule(claims, ()),
    "claims": Rule(claims, ()),
}
"""Sections whose keys are the file's own."""

_MAY_BE_ABSENT: Final = frozenset(
    {"signature.also", "timestamp", "handshake", "fetch_back", "rests_on"}
)


def _field(rule: Rule) -> Any:
    # A default is right as it stands; only what a file gives is read.
    field = {} if rule.default is REQUIRED else {"default": rule.default}
    return (Annotated[Any, PlainValidator(rule.read)], Field(**field, validate_default=False))


def _section(name: str) -> Any:
    """The table of a section with those in it, as a field."""
    keys: dict[str, Any] = {key: _field(rule) for key, rule in SECTIONS[name].items()}
    return create_model(name, __base__=TomlTable, **keys, **_sections(f"{name}."))


def _sections(prefix: str) -> dict[str, Any]:
    """The sections in the one with this prefix, as fields."""
    fields: dict[str, Any] = {}
    for name in (*SECTIONS, *FREE):
        inner = name.removeprefix(prefix)
        if not name.startswith(prefix) or "." in inner:
            continue
        if name in FREE:
            fields[inner] = (dict[str, Any], EMPTY)
        elif name in _MAY_BE_ABSENT:
            fields[inner] = (_section(name) | None, None)
        else:
            fields[inner] = (_section(name), EMPTY)
    return fields


_TOP_FIELDS: Final[dict[str, Any]] = {key: _field(rule) for key, rule in TOP.items()}

ProfileFile: Final = create_model("ProfileFile", __base__=TomlTable, **_TOP_FIELDS, **_sections(""))
"""The model of a whole file."""


def read_free(values: Values) -> Iterator[Mistake]:
    """Put checked pairs in the place of each section of free keys; one with mistakes is dropped."""
    for name, rule in FREE.items():
        outer, _, inner = name.rpartition(".")
        section = values.get(outer) if outer else values
        if not section or inner not in section:
            continue
        read, mistakes = [], []
        for key, value in section.pop(inner).items():
            try:
                read.append((key, rule.read((key, value))))
            except ValueError as error:
                mistakes.append(Mistake(f'{name}."{key}"', str(error)))
        if not mistakes:
            section[inner] = tuple(read)
        yield from mistakes
