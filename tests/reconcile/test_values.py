"""Values: what a maker makes is what the class makes."""

from dataclasses import FrozenInstanceError

import pytest

from reconcile.ledger.records import Record
from reconcile.money import Money
from reconcile.values import maker

PRICE = Money(minor=150_000, currency="KES")


def test_a_made_value_is_one_of_its_class_defaults_included() -> None:
    fields = {"record_id": "rec_1", "recorded_at": 2, "kind": "order_placed", "order": "A", "at": 1}
    made, called = maker(Record)(**fields), Record(**fields)  # type: ignore[arg-type]
    assert (type(made), made, hash(made), repr(made)) == (
        Record,
        called,
        hash(called),
        repr(called),
    )


def test_a_made_value_is_frozen() -> None:
    made = maker(Money)(minor=150_000, currency="KES")
    assert made == PRICE
    with pytest.raises(FrozenInstanceError):
        made.minor = 1  # type: ignore[misc]


def test_a_maker_wants_what_its_class_wants() -> None:
    with pytest.raises(TypeError):
        maker(Money)(minor=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        maker(Money)(minor=1, currency="KES", cents=0)  # type: ignore[call-arg]
