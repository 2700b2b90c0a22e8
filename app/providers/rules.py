"""What each key of a profile file may hold, as one table, and what must hold between keys.

Every mistake is one sentence that begins with the key. The checks compile what they check with
the very functions that the engine uses, so that a file that loads also runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from app.providers.amounts import AMOUNT_UNITS
from app.providers.encodings import ENCODINGS, SECRET_ENCODINGS
from app.providers.fields import DATES, compile_location
from app.providers.formats import FORMATS
from app.providers.places import compile_place
from app.providers.schemes import SCHEMES
from app.providers.template import compile_template
from app.providers.timestamps import UNITS
from reconcile.events import CLAIM_KINDS

Values = dict[str, dict[str, Any]]
"""Section → key → checked value."""

_REQUIRED = object()


class Rule(NamedTuple):
    """One key: what makes its value (raising ValueError with a sentence), and its default."""

    read: Callable[[Any], Any]
    default: Any = _REQUIRED


def _text(value: Any) -> str:
    if type(value) is not str or not value.strip():
        raise ValueError("must be a text that is not blank")
    return value


def _words(value: Any) -> str:
    if not _text(value).isascii():
        raise ValueError("must be ASCII")
    return str(value)


def _one_of(known: Iterable[str]) -> Callable[[Any], str]:
    names = tuple(known)

    def read(value: Any) -> str:
        if type(value) is not str or value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value

    return read


def _compiled(compile_text: Callable[[str], object]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        compile_text(_text(value))
        return str(value)

    return read


def _integer(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def _locations(value: Any) -> tuple[str, ...]:
    texts = tuple(value) if type(value) is list else (value,)
    if not texts:
        raise ValueError("must name at least one location")
    for text in texts:
        compile_location(_text(text))
    return texts


_claim = _one_of(CLAIM_KINDS)
_place = _compiled(compile_place)
_tolerance = _integer(1, 7 * 24 * 3600)

SECTIONS: Final[dict[str, dict[str, Rule]]] = {
    "signature": {
        "mac": Rule(_one_of(SCHEMES)),
        "where": Rule(_place),
        "format": Rule(_one_of(FORMATS)),
        "encoding": Rule(_one_of(ENCODINGS)),
        "signed": Rule(_compiled(compile_template)),
        "label": Rule(_words, None),
        "prefix": Rule(_words, None),
        "separator": Rule(_words, None),
    },
    "secret": {"encoding": Rule(_one_of(SECRET_ENCODINGS))},
    "timestamp": {
        "where": Rule(_place),
        "unit": Rule(_one_of(UNITS), "s"),
        "past_s": Rule(_tolerance, 300),
        "future_s": Rule(_tolerance, 300),
    },
    "acknowledgement": {
        "status": Rule(_integer(200, 299), 200),
        "redelivery_days": Rule(_integer(1, 90), 30),
    },
    "event": {
        "id": Rule(_locations),
        "kind": Rule(_locations),
        "occurred_at": Rule(_locations, ()),
        "dates": Rule(_one_of(DATES), "rfc3339"),
        "order": Rule(_locations, ()),
        "session": Rule(_locations, ()),
        "payment": Rule(_locations, ()),
        "movement": Rule(_locations, ()),
        "reason": Rule(_locations, ()),
    },
    "environment": {
        "where": Rule(_locations, ()),
        "sandbox": Rule(_text, "sandbox"),
        "live": Rule(_text, "live"),
    },
    "amounts": {
        "unit": Rule(_one_of(AMOUNT_UNITS)),
        "payment": Rule(_locations, ()),
        "payment_currency": Rule(_locations, ()),
        "refund": Rule(_locations, ()),
        "refund_currency": Rule(_locations, ()),
        "order": Rule(_locations, ()),
        "order_currency": Rule(_locations, ()),
    },
}

_ABSENT_MEANS_NONE = frozenset({"timestamp"})
_CLAIMS = "claims"


def check(document: dict[str, Any]) -> tuple[Values, list[str]]:
    """The values of a whole file, and every mistake in single keys."""
    values: Values = {}
    problems = [
        f"{name}: there is no such section" for name in document if name not in (*SECTIONS, _CLAIMS)
    ]
    for name, rules in SECTIONS.items():
        if name in _ABSENT_MEANS_NONE and name not in document:
            values[name] = {}
        else:
            given = document.get(name, {})
            if type(given) is dict:
                values[name] = _section(name, rules, given, problems)
            else:
                problems.append(f"{name}: must be a section")
    values[_CLAIMS] = _claims(document.get(_CLAIMS), problems)
    return values, problems


def _section(
    name: str, rules: dict[str, Rule], given: dict[str, Any], problems: list[str]
) -> dict[str, Any]:
    problems.extend(f"{name}.{key}: there is no such key" for key in given if key not in rules)
    values = {}
    for key, rule in rules.items():
        try:
            values[key] = _value(given, key, rule)
        except ValueError as error:
            problems.append(f"{name}.{key}: {error}")
    return values


def _value(given: dict[str, Any], key: str, rule: Rule) -> Any:
    if key in given:
        return rule.read(given[key])
    if rule.default is _REQUIRED:
        raise ValueError("is missing")
    return rule.default


def _claims(given: Any, problems: list[str]) -> dict[str, Any]:
    if type(given) is not dict or not given:
        problems.append(f"{_CLAIMS}: must be a section that gives the provider's words a meaning")
        return {}
    for word, meaning in given.items():
        try:
            _claim(meaning)
        except ValueError as error:
            problems.append(f'{_CLAIMS}."{word}": {error}')
    return given


def _format_has_its_words(values: Values) -> Iterable[str]:
    signature = values["signature"]
    name = signature["format"]
    for key in ("label", "prefix", "separator"):
        needed = key in FORMATS[name].needs
        if needed and signature[key] is None:
            yield f"signature.{key}: is missing; format {name} needs it"
        if not needed and signature[key] is not None:
            yield f"signature.{key}: means nothing with format {name}"


def _body_is_signed(values: Values) -> Iterable[str]:
    if "body" not in compile_template(values["signature"]["signed"]).references:
        yield "signature.signed: must cover {body}, or anyone could change it"


def _time_is_signed(values: Values) -> Iterable[str]:
    signed = "ts" in compile_template(values["signature"]["signed"]).references
    if values["timestamp"] and not signed:
        yield "signature.signed: must cover {ts}, or an old request could be given a new time"
    if signed and not values["timestamp"]:
        yield "timestamp: is missing; signature.signed refers to {ts}"


def _event_belongs_somewhere(values: Values) -> Iterable[str]:
    if not any(values["event"][key] for key in ("order", "session", "payment")):
        yield "event.order: is missing, as are event.session and event.payment; one is needed"


def _amounts_have_currencies(values: Values) -> Iterable[str]:
    amounts = values["amounts"]
    for key in ("payment", "refund", "order"):
        if amounts[key] and not (amounts[f"{key}_currency"] or amounts["order_currency"]):
            yield f"amounts.{key}_currency: is missing; amounts.{key} needs it"


def _environments_differ(values: Values) -> Iterable[str]:
    if values["environment"]["sandbox"] == values["environment"]["live"]:
        yield "environment.live: must differ from environment.sandbox"


_TOGETHER = (
    _format_has_its_words,
    _body_is_signed,
    _time_is_signed,
    _event_belongs_somewhere,
    _amounts_have_currencies,
    _environments_differ,
)


def check_together(values: Values) -> list[str]:
    """Every mistake between keys that are each right in themselves."""
    problems: list[str] = []
    for rule in _TOGETHER:
        # A value that is wrong in itself is not among the values, and already reported.
        with suppress(KeyError):
            problems.extend(list(rule(values)))
    return problems
