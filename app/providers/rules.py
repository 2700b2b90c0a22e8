"""What each key of a profile file may hold, as one table.

What must hold between keys is in `rules_together.py`.

Every mistake is one sentence with its key. The checks compile what they check with the very
functions that the engine uses, so that a file that loads also runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, create_model

from app.core.toml_file import EMPTY, Mistake, Table, Values
from app.providers.amounts import AMOUNT_UNITS
from app.providers.dates import DATES
from app.providers.encodings import ENCODINGS, SECRET_ENCODINGS
from app.providers.formats import FORMATS
from app.providers.paths import compile_place
from app.providers.rule_kinds import (
    REQUIRED,
    Rule,
    address_path,
    answer_text,
    calling_code,
    claims,
    compiled,
    constants,
    decimals,
    flag,
    handshake_answer,
    header,
    integer,
    items_path,
    json_path,
    listed,
    locations,
    mac,
    media_type,
    one_of,
    options,
    text,
    timestamp_place,
    token_pattern,
    words,
    zone,
)
from app.providers.template import compile_template
from app.providers.timestamps import UNITS

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
    "signature": {
        "mac": Rule(mac),
        "key": Rule(one_of(KEYS), None),
        "where": Rule(compiled(compile_place), None),
        "format": Rule(one_of(FORMATS), "plain"),
        "encoding": Rule(one_of(ENCODINGS), None),
        "signed": Rule(compiled(compile_template), None),
        "signed_also": Rule(compiled(compile_template), None),
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
        "encoding": Rule(one_of(SECRET_ENCODINGS), None),
        "least_bytes": Rule(integer(1, 64), 24),
        "key_id": Rule(compiled(compile_place), None),
    },
    "timestamp": {
        "where": Rule(timestamp_place),
        "unit": Rule(one_of(UNITS), "s"),
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
        "dates": Rule(one_of(DATES), "rfc3339"),
        "zone": Rule(zone, "+00:00"),
        "order": Rule(locations, ()),
        "session": Rule(locations, ()),
        "payment": Rule(locations, ()),
        "movement": Rule(locations, ()),
        "capture": Rule(locations, ()),
        "reason": Rule(locations, ()),
    },
    "customer": {
        "phone": Rule(locations, ()),
        "country": Rule(calling_code, None),
    },
    "environment": {
        "where": Rule(locations, ()),
        "sandbox": Rule(text, "sandbox"),
        "live": Rule(text, "live"),
    },
    "amounts": {
        "unit": Rule(one_of(AMOUNT_UNITS), None),
        "payment": Rule(locations, ()),
        "payment_currency": Rule(locations, ()),
        "refund": Rule(locations, ()),
        "refund_currency": Rule(locations, ()),
        "refunded_total": Rule(locations, ()),
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
        "dates": Rule(one_of(DATES), "rfc3339"),
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
    return create_model(name, __base__=Table, **keys, **_sections(f"{name}."))


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

ProfileFile: Final = create_model("ProfileFile", __base__=Table, **_TOP_FIELDS, **_sections(""))
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
