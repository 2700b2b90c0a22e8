"""Documents made of the attributes of values."""

from types import SimpleNamespace
from typing import Annotated, TypedDict

import pytest

from app.core.document_of import document_of
from reconcile.documents import InstantText, MoneyDocument
from reconcile.instants import SECOND
from reconcile.money import Money


class PartDocument(TypedDict):
    name: str


class WholeDocument(TypedDict):
    at: InstantText
    until: Annotated[InstantText | None, "A note."]
    money: MoneyDocument | None
    last: PartDocument | None
    parts: list[PartDocument]
    count: int


def test_a_document_has_the_members_of_its_type_in_their_json_form() -> None:
    value = SimpleNamespace(at=SECOND, until=None, money=Money(minor=150, currency="KES"))
    value.last, value.parts = None, (SimpleNamespace(name="a", secret="s"),)
    assert document_of(WholeDocument, value, count=3) == {
        "at": "1970-01-01T00:00:01Z",
        "until": None,
        "money": {"amount": "1.50", "currency": "KES"},
        "last": None,
        "parts": [{"name": "a"}],
        "count": 3,
    }
    with pytest.raises(AttributeError, match="count"):
        document_of(WholeDocument, value)
