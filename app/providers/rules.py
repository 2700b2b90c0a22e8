"""What each key of a profile file may hold, as one table.

What must hold between keys is in `rules_together.py`.

Every mistake is one sentence with its key. The checks compile what they check with the very
functions that the engine uses, so that a file that loads also runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.providers.amounts import AMOUNT_UNITS
from app.providers.dates import DATES
from app.providers.encodings import ENCODINGS, SECRET_ENCODINGS
from app.providers.formats import FORMATS
from app.providers.paths import compile_place
from app.providers.rule_kinds import (
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

Values = dict[str, Any]
"""Section → key → checked value; keys without a section by themselves."""

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


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong: the key it is about, dotted, and what would be right."""

    key: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.key}: {self.sentence}"


def check(document: dict[str, Any]) -> tuple[Values, list[Mistake]]:
    """The values of a whole file, and every mistake in single keys."""
    values: Values = {}
    mistakes = _unknown(document)
    _keys(TOP, document, prefix="", values=values, mistakes=mistakes)
    for name, rules in SECTIONS.items():
        _check_section(name, rules, document, values=values, mistakes=mistakes)
    for name, rule in FREE.items():
        _check_free(name, rule, document, values=values, mistakes=mistakes)
    return values, mistakes


def _check_section(
    name: str,
    rules: Mapping[str, Rule],
    document: dict[str, Any],
    *,
    values: Values,
    mistakes: list[Mistake],
) -> None:
    given = _given(document, name)
    if given is None and name in _MAY_BE_ABSENT:
        _put(values, name, None)
    elif given is None or type(given) is dict:
        section: Values = {}
        _keys(rules, given or {}, prefix=f"{name}.", values=section, mistakes=mistakes)
        _put(values, name, section)
    else:
        mistakes.append(Mistake(name, "must be a section"))


def _check_free(
    name: str, rule: Rule, document: dict[str, Any], *, values: Values, mistakes: list[Mistake]
) -> None:
    given = _given(document, name)
    if given is not None and type(given) is not dict:
        mistakes.append(Mistake(name, "must be a section"))
        return
    read, before = [], len(mistakes)
    for key, value in (given or {}).items():
        try:
            read.append((key, rule.read((key, value))))
        except ValueError as error:
            mistakes.append(Mistake(f'{name}."{key}"', str(error)))
    if len(mistakes) == before:
        _put(values, name, tuple(read))


def _keys(
    rules: Mapping[str, Rule],
    given: dict[str, Any],
    *,
    prefix: str,
    values: Values,
    mistakes: list[Mistake],
) -> None:
    for key, rule in rules.items():
        try:
            values[key] = rule.value(given, key)
        except ValueError as error:
            mistakes.append(Mistake(prefix + key, str(error)))


def _unknown(document: dict[str, Any]) -> list[Mistake]:
    sections = {*SECTIONS, *FREE}
    mistakes = [
        Mistake(name, "there is no such section" if type(value) is dict else "there is no such key")
        for name, value in document.items()
        if name not in sections and name not in TOP
    ]
    for section in SECTIONS:
        given = _given(document, section)
        for key in given if type(given) is dict else ():
            if key not in SECTIONS[section] and f"{section}.{key}" not in sections:
                mistakes.append(Mistake(f"{section}.{key}", "there is no such key"))
    return mistakes


def _given(document: dict[str, Any], name: str) -> Any:
    outer, _, inner = name.partition(".")
    value = document.get(outer)
    if not inner:
        return value
    return value.get(inner) if type(value) is dict else None


def _parent(values: Values, name: str) -> Values | None:
    outer, _, inner = name.partition(".")
    parent = values.get(outer) if inner else values
    return parent if type(parent) is dict else None


def _put(values: Values, name: str, value: Any) -> None:
    parent = _parent(values, name)
    if parent is not None:
        parent[name.rpartition(".")[2]] = value
