"""Every document of a bundle has the members, the types and the written form that it may have."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest

from app.evidence.verify import MANIFEST, Bundle, Wrong, unpack
from app.evidence.verify_forms import DECIMALS, EVENT, POLICY, RECORD, canonical, whole
from reconcile.ledger.events import Event
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record
from reconcile.money import EXPONENTS
from reconcile.transparency.evidence import policy_document
from tests.evidence.conftest import Bundles
from tests.rows import for_each


def test_the_table_of_members_is_that_of_the_engine() -> None:
    assert {each.rstrip("?") for each in EVENT} == {each.name for each in fields(Event)}
    assert {each.rstrip("?") for each in RECORD} == {each.name for each in fields(Record)}
    policy = Policy(mismatch_held=("till",), provider_discount_percent=1)
    assert {each.rstrip("?") for each in POLICY} == policy_document(policy).keys()
    assert {code: n for code, n in EXPONENTS.items() if n != 2} == DECIMALS
    flags = {f.name for f in (*fields(Event), *fields(Record)) if f.type is bool}
    assert {n.rstrip("?") for n, form in (EVENT | RECORD).items() if form is True} == flags


@for_each(("number", "beyond"), [(0, -1), (2**53 - 1, 2**53)])
def test_a_whole_number_is_one_that_every_reader_of_json_knows(number: int, beyond: int) -> None:
    assert whole(number)
    assert not whole(float(number))
    assert not whole(beyond)


def test_a_sentence_has_at_most_so_many_of_a_strangers_characters() -> None:
    assert str(Wrong("x" * 401)) == "x" * 400


def _otherwise(found: Any, change: Callable[[Any], Iterator[None]]) -> Iterator[None]:
    """Make a change at each place of a document, one after the other, and take it back."""
    yield from change(found)
    if isinstance(found, dict):
        found = [value for name, value in found.items() if name not in OF_THE_FOLD]
    for each in found if isinstance(found, list) else ():
        yield from _otherwise(each, change)


def _certified(found: Any) -> Iterator[None]:
    if isinstance(found, dict):
        found["certified_by"] = "Visa Inc."
        yield
        del found["certified_by"]


def _members(found: Any, written: Callable[[Any], Any]) -> Iterator[None]:
    if isinstance(found, dict):
        for name, value in list(found.items()):
            found[name] = written(value)
            if found[name] is not value:
                yield
            found[name] = value


def _as_float(found: Any) -> Iterator[None]:
    return _members(found, lambda value: float(value) if type(value) is int else value)


def _as_number(found: Any) -> Iterator[None]:
    return _members(found, lambda value: int(value) if type(value) is bool else value)


def _as_number_of_text(found: Any) -> Iterator[None]:
    return _members(found, lambda value: 0 if type(value) is str else value)


OF_THE_FOLD = ("facts",)
"""Members whose own members only a fold knows, which gives the whole ledger."""


@for_each("change", [_certified, _as_float, _as_number, _as_number_of_text])
def test_no_document_may_say_it_otherwise(
    bundles: Bundles, change: Callable[[Any], Iterator[None]]
) -> None:
    """At no place of any document: another member, or another type."""
    members, count = unpack(bundles.full), 0
    for name in [each for each in members if each.endswith(".json") and each != MANIFEST]:
        document = json.loads(members[name])
        for _ in _otherwise(document, change):
            forged = Bundle({name: canonical(document)}, {})
            with pytest.raises(Wrong):
                forged.document(name)
            count += 1
    assert count
