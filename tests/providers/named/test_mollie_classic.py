"""Mollie's embedded refunds and chargebacks: what became of each, and when."""

from typing import Any

import pytest

from app.core.reading import Unreadable
from app.providers.named.mollie_classic import PARTICULARS

CREATED, REVERSED = "2026-01-30T10:00:00Z", "2026-02-03T10:00:00Z"


def stated(**embedded: Any) -> list[tuple[str, str, object]]:
    assert PARTICULARS.movements is not None
    found = PARTICULARS.movements({"_embedded": embedded})
    return [(each.member, each.word, each.at) for each in found]


@pytest.mark.parametrize(
    ("status", "word", "at"),
    [
        ("refunded", "done", CREATED),
        ("queued", "pending", CREATED),
        ("failed", "undone", None),
        ("canceled", "undone", None),
    ],
)
def test_a_refund_that_came_to_nothing_is_not_dated_by_its_creation(
    status: str, word: str, at: str | None
) -> None:
    assert stated(refunds=[{"status": status, "createdAt": CREATED}]) == [("refund", word, at)]


def test_a_chargeback_is_undone_when_it_was_reversed() -> None:
    both = [{"createdAt": CREATED}, {"createdAt": CREATED, "reversedAt": REVERSED}]
    expected = [("chargeback", "done", CREATED), ("chargeback", "undone", REVERSED)]
    assert stated(chargebacks=both) == expected


def test_other_shapes_of_an_answer_are_no_error_of_ours() -> None:
    assert stated(refunds=5) == stated(refunds=None) == []
    for refund in (5, {"status": ["refunded"]}):
        with pytest.raises(Unreadable):
            stated(refunds=[refund])
